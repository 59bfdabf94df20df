"""Several runs, each made by itself, as the cells of one run folder: how a training scales that was only metered."""

import json
from collections.abc import Sequence
from pathlib import Path

from worldsize.errors import OutputError, UsageError
from worldsize.results.files import cell_folder, write_whole
from worldsize.results.folder import Cell, Run, load_run, write_cell, write_study
from worldsize.results.provenance import Provenance
from worldsize.results.rank_files import line_blocks
from worldsize.results.records import CellRecord, StudyRecord, WarningRecord
from worldsize.results.samples import KINDS

UNPAIRED = (
    "These runs were made one after another, not in turns: a machine that changed between them changes the ratios, and "
    "the intervals know nothing of it. Run each of them again to see how far equal runs differ."
)


def join_runs(folders: Sequence[Path | str], out: Path, provenance: Provenance) -> None:
    """Write a run folder with the cells of all runs, whose samples are those of sessions of their own.

    Runs of the same strategy, N and b become launches of one cell. Raises UsageError for fewer than two runs, one that
    is given twice, and a folder that holds a run; OutputError for one that cannot be read.
    """
    if len({Path(each).resolve() for each in folders}) < max(2, len(folders)):
        raise UsageError(f"{len(folders)} run folders were given; at least two are needed, each of them once")
    if (out / "study.json").exists():
        raise UsageError(f"{out} holds a study already; give another --out")
    runs = [load_run(folder) for folder in folders]
    joined: dict[str, list[tuple[int, Cell]]] = {}
    for session, run in enumerate(runs):
        for cell in _measured(run):
            record = cell.record
            name = f"{record.strategy}-w{record.world_size}-b{record.batch_size}"
            joined.setdefault(f"{name}-{record.label}" if record.label else name, []).append((session, cell))
    for name, cells in joined.items():
        _write(out, name, cells)
    warnings = [WarningRecord(code="unpaired", message=UNPAIRED), *_differences(runs)]
    write_study(out, StudyRecord(name=out.name, plan=[*joined], provenance=provenance, warnings=warnings))


def _measured(run: Run) -> list[Cell]:
    """The cells of a run that have samples; raises OutputError for a run without any."""
    found = [cell for cell in run.cells.values() if any(KINDS[0].files(cell.folder).values())]
    if not found:
        raise OutputError(f"{run.folder} holds no steps: nothing of it can be compared")
    return found


def _write(out: Path, name: str, cells: Sequence[tuple[int, Cell]]) -> None:
    """One cell: the first record, and the lines of all."""
    place = cell_folder(out, name)
    first = cells[0][1].record
    record = CellRecord(
        id=name,
        strategy=first.strategy,
        world_size=first.world_size,
        batch_size=first.batch_size,
        label=first.label,
        state="complete",
        launches=len(cells),
        placement=first.placement,
        own_traits=first.own_traits,
        ranks=first.ranks,
        warnings=list({each.message: each for _, cell in cells for each in cell.record.warnings}.values()),
    )
    place.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        lines: dict[int, list[str]] = {}
        for session, cell in cells:
            for rank, path in kind.files(cell.folder).items():
                content = b"".join(line_blocks(path))
                own = (json.loads(line) for line in content.splitlines())
                lines.setdefault(rank, []).extend(json.dumps({**line, "session": session}) for line in own)
        for rank, found in lines.items():
            write_whole(place / f"rank{rank}{kind.suffix}", "\n".join([*found, ""]))
    write_cell(out, record)


def _differences(runs: Sequence[Run]) -> list[WarningRecord]:
    """What was not the same in all of them, besides the number of workers."""
    sources = [run.study.provenance for run in runs]
    known = {
        "torch": {each.torch_version for each in sources},
        "the processor": {each.host.cpu_model for each in sources},
        "your code": {json.dumps(each.user_code and each.user_code.digests, sort_keys=True) for each in sources},
    }
    differing = [name for name, values in known.items() if len(values) > 1]
    if not differing:
        return []
    text = f"Not the same in all runs: {', '.join(differing)}. That may be why one is faster than another."
    return [WarningRecord(code="runs-differ", message=text)]
