"""What commands write beside their tables: an object on stdout for `--json`, and files that a flag names."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from worldsize.errors import OutputError
from worldsize.results.records import SCHEMA_VERSION


def print_json(content: Mapping[str, Any]) -> None:
    """Print the object of a command, in one line, its `schema_version` first (docs/json.md names the fields)."""
    print(json.dumps(finite({"schema_version": SCHEMA_VERSION, **content}), allow_nan=False))


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are null, as all that is absent."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def written_by(flag: str) -> Iterator[None]:
    """A file that cannot be written is given by this flag."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{str(error).splitlines()[0]}\nGive a file you may write to with {flag}.") from None
