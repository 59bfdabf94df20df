"""Runs in which every text that a user, a machine or a run folder from elsewhere gives is an attempt to break out."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from made_reports import ddp_large_batch, messages_of
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.results.folder import load_run
from worldsize.results.records import ErrorRecord, WarningRecord

OWNED = "document.title='owned'"
ATTEMPTS = (
    f"<script>{OWNED}</script>",
    f'"\'><img src=x onerror="{OWNED}">',
    f'</title></style></svg></table><svg onload="{OWNED}">',
    f"[a](javascript:{OWNED}) <javascript:{OWNED}> | `b` \n\n[c]: javascript:{OWNED}\n[c]",
    "<a href=\"http://127.0.0.1:9/\">x</a><iframe src='http://127.0.0.1:9/'></iframe>",
    "{{ 7 * 7 }}{% raw %} &lt;b&gt; --> ]]> \\input{/etc/passwd}\\write18{id}$",
    "\x0b\x1b[31m\x1b]0;owned\x07",
)
STARTS = ("=1+", "+1+", "-1+", "@SUM(1)+", "\t=1+", "\r=1+")
"""How a formula begins, for a program that opens a CSV as a sheet."""
FREE = (
    *("name", "message", "code", "model", "data", "data_dir", "location", "created", "command", "commit"),
    *("worldsize_version", "python_version", "torch_version", "hostname", "system", "cpu_model", "gpus"),
    *("formula", "parameter", "apart", "left_out", "order", "traceback"),
)
"""Fields that hold any text; what else is text in a record is chosen from a few words."""

SEEN_EVERYWHERE = ("name", "message")
"""These get all attempts at once."""
MAPPINGS = ("environment", "interfaces")


def strategies(folder: Path) -> Path:
    """Strategies of a user's own whose names are attempts, beside a run, errors and warnings that are."""
    own = [
        MadeCell(f"{attempt}:Mine", 2, step_s=0.6, shares=synchronised(SHARES, 0.1), comm_s=0.1, overlapped_s=0.04)
        for attempt in ATTEMPTS
    ]
    error = ErrorRecord(kind="<b>OutOfMemory</b>", message="".join(ATTEMPTS), rank=0)
    warning = WarningRecord(code=ATTEMPTS[0], message="".join(ATTEMPTS))
    cells = [MadeCell("single", 1, warnings=(warning,)), *own, MadeCell("ddp", 2, state="failed", error=error)]
    make_run(folder, cells, never_started=[MadeCell(ATTEMPTS[1], 4)], warnings=[warning])
    for cell in load_run(folder).cells.values():
        if cell.record.state == "complete":
            messages_of(cell, (ATTEMPTS[0],))
    return _poisoned(folder)


HOSTILE_RUNS: Mapping[str, Callable[[Path], Path]] = {
    "strategies": strategies,
    "ddp-large-batch": lambda folder: _poisoned(ddp_large_batch(folder)),
}


def _poisoned(folder: Path) -> Path:
    """Put an attempt into every free text of all records of a run folder."""
    texts = cycle(f"{start}{attempt}" for start in STARTS for attempt in ATTEMPTS)
    for path in (*folder.rglob("study.json"), *folder.rglob("cell.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(_with(content, texts)), encoding="utf-8")
    return folder


def _with(value: Any, texts: Iterator[str], *, free: bool = False) -> Any:
    if isinstance(value, str):
        return f"{next(texts)} {value}" if free else value
    if isinstance(value, list):
        return [_with(each, texts, free=free) for each in value]
    if isinstance(value, dict):
        everything = cycle([f"{next(texts)} {''.join(ATTEMPTS)}"])
        return {
            key: _with(each, everything if key in SEEN_EVERYWHERE else texts, free=_is_free(key, each) or free)
            for key, each in value.items()
        }
    return value


def _is_free(key: str, value: Any) -> bool:
    return key in MAPPINGS if isinstance(value, dict) else key in FREE
