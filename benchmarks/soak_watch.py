"""What the soak looks at: what was written, what was finished, who runs."""

import json
import os
from pathlib import Path

import psutil

CELLS = 2


class Losses:
    """Remembers what a run folder held, and finds what is no longer there."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._lines: dict[Path, bytes] = {}
        self._finished: dict[Path, bytes] = {}

    def see(self) -> None:
        """Remember all whole lines, and every byte of the cells that are complete."""
        self._lines = {file: whole_lines(file) for file in self.run.glob("cells/*/rank*.jsonl")}
        for record in self._records("complete"):
            self._finished[record] = record.read_bytes()

    def problems(self) -> list[str]:
        """What was there when it was last seen, and is not now."""
        gone = [file for file, lines in self._lines.items() if not whole_lines(file).startswith(lines)]
        changed = [file for file, content in self._finished.items() if file.read_bytes() != content]
        return [f"{file.relative_to(self.run)} has lost what was written" for file in gone + changed]

    def lines(self) -> int:
        """How many lines there are now."""
        return sum(whole_lines(file).count(b"\n") for file in self.run.glob("cells/*/rank?.jsonl"))

    def complete(self) -> bool:
        """Whether every cell of the study is."""
        return len(self._records("complete")) == CELLS

    def _records(self, state: str) -> list[Path]:
        records = sorted(self.run.glob("cells/*/cell.json"))
        return [file for file in records if json.loads(file.read_bytes())["state"] == state]


def whole_lines(file: Path) -> bytes:
    """The content up to the last end of a line."""
    content = file.read_bytes() if file.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def steps_of(run: Path) -> dict[tuple[str, str], dict[int, float]]:
    """The loss of each step, that of its last run, by cell and rank."""
    found = {}
    for file in sorted(run.glob("cells/*/rank?.jsonl")):
        steps = [json.loads(line) for line in whole_lines(file).splitlines()]
        found[file.parent.name, file.name] = {step["step"]: step["loss"] for step in steps if step["synchronised"]}
    return found


def family(parent: int) -> dict[str, list[psutil.Process]]:
    """The parent, its warm server, and the agents and workers that it has at this moment."""
    found: dict[str, list[psutil.Process]] = {"parent": [psutil.Process(parent)]}
    for process in found["parent"][0].children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        named = " ".join(command)
        for kind in ("agent", "worker"):
            if named.startswith(f"worldsize {kind} "):
                found.setdefault(kind, []).append(process)
        if "worldsize.launch.server" in named:
            found.setdefault("server", []).append(process)
    return found


def networks(*pids: int) -> set[str]:
    """The network namespaces that some process lives in; of these processes where any are named."""
    found = set()
    for process in [Path(f"/proc/{pid}") for pid in pids] or Path("/proc").glob("[0-9]*"):
        try:
            found.add(os.readlink(process / "ns" / "net"))  # noqa: PTH115 - the target is no path
        except OSError:
            continue
    return found
