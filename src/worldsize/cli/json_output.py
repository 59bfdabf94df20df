"""What `--json` prints: one object on stdout, its `schema_version` first (docs/json.md names the fields)."""

import json
import math
from collections.abc import Mapping
from typing import Any

from worldsize.results.records import SCHEMA_VERSION


def print_json(content: Mapping[str, Any]) -> None:
    """Print the object of a command, in one line."""
    print(json.dumps(finite({"schema_version": SCHEMA_VERSION, **content}), allow_nan=False))


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are null, as all that is absent."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
