"""Settings of an audit: what a person says of tables that do not say it themselves, and the file beside them."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from worldsize.config.base import Settings, absent
from worldsize.config.reading import validated
from worldsize.errors import UsageError

BESIDE = ".audit.toml"
"""Takes the place of a file's suffix: `README.md` has `README.audit.toml`."""
AS_READ = "as it was read"
BatchOf = Literal["local", "global"]
ScalingKind = Literal["weak", "strong"]
TableFormat = Literal["markdown", "html", "csv", "latex", "text", "json"]


class AuditSettings(Settings):
    """How `worldsize audit` reads tables."""

    column: tuple[str, ...] = absent(AS_READ, default=(), allowed="such as 'Time=epoch_time:s'")
    """What a column holds, by its heading; may be repeated. 'Table 2.Time' is that of the table whose caption says so.
    A mapping of headings to what they hold is taken as well."""
    samples: int | None = absent("as the text says", ge=1)
    """Samples per epoch."""
    model: str | None = absent("as the text says", allowed="a known network, and its classes: resnet18:10")
    """Model that was trained."""
    batch: BatchOf | None = absent(AS_READ)
    """Whether a batch size is that of one worker or of all."""
    scaling: ScalingKind | None = absent(AS_READ)
    """How the global batch scales: weak, it grows with the workers; strong, it stays."""
    format: TableFormat | None = absent("by the suffix, else by what is in it")
    """Format of the file."""
    table: int | None = absent("all", ge=1)
    """Show one table alone: 1 is the first."""

    @field_validator("column", mode="before")
    @classmethod
    def _as_flags(cls, given: Any) -> Any:
        """A mapping is what the flag says one by one."""
        if isinstance(given, Mapping):
            return tuple(f"{heading}={said}" for heading, said in given.items())
        return (given,) if isinstance(given, str) else given

    @field_validator("column")
    @classmethod
    def _heading_and_quantity(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        headings = set[str]()
        for each in given:
            heading, _, said = each.rpartition("=")
            if not heading.strip() or not said.strip():
                raise ValueError("HEADING=QUANTITY:UNIT is allowed, such as 'Time=epoch_time:s'")
            if heading.strip().lower() in headings:
                raise ValueError(f"{heading.strip()!r} is given twice; say once what it holds")
            headings.add(heading.strip().lower())
        return given

    @property
    def columns(self) -> dict[str, str]:
        """Heading to "quantity:unit"; of one heading the last counts."""
        parts = (each.rpartition("=") for each in self.column)
        return {heading.strip(): said.strip() for heading, _, said in parts}


def beside(source: str) -> Path | None:
    """The TOML file that holds settings for a file of tables, if there is one."""
    if source == "-" or not Path(source).name:
        return None
    found = Path(source).with_suffix(BESIDE)
    return found if found.is_file() else None


def audit_settings(source: str, given: dict[str, Any]) -> AuditSettings:
    """The settings for a file: what is given lies over the TOML file beside it; columns of both are kept.

    Raises UsageError for what is not allowed, and for a file that cannot be read.
    """
    asked = validated(AuditSettings, given)
    path = beside(source)
    if path is None:
        return asked
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be read as TOML: {error}\nIts keys are the flags of worldsize audit."
        ) from None
    kept = validated(AuditSettings, values, str(path))
    over = asked.model_dump(exclude_unset=True, exclude={"column"})
    return kept.model_copy(update={**over, "column": (*kept.column, *asked.column)})
