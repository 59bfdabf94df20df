"""What `worldsize audit` does, as a function, beside those of commands.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from worldsize.api.audited import Audited
    from worldsize.api.options import AuditOptions, PathLike


def audit(source: PathLike | None = None, *, text: str | None = None, **settings: Unpack[AuditOptions]) -> Audited:
    """Check whether the scaling tables of a file, of a run folder or of a text hold, and return what was found.

    The settings are the fields of `config.AuditSettings`; those of a TOML file beside the file (`README.audit.toml`)
    hold where none is given. Raises UsageError for what is not allowed or holds no table, OutputError for a folder
    that is no run.
    """
    from worldsize.api.audited import Audited
    from worldsize.config import audit_settings
    from worldsize.errors import UsageError
    from worldsize.report.audit_source import audited

    if (source is None) == (text is None):
        raise UsageError("a source or a text is needed, and not both: worldsize.audit('README.md')")
    name = "-" if source is None else str(source)
    return Audited.of(audited(name, audit_settings(name, dict(settings)), text))
