"""Several runs, each made by itself, as the cells of one run folder: how a training scales that was only metered."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from worldsize.config import CellSettings
from worldsize.errors import OutputError, UsageError
from worldsize.results.columns import has_all_lines
from worldsize.results.files import cell_folder, write_whole
from worldsize.results.folder import Cell, Run, write_cell, write_study
from worldsize.results.provenance import Provenance, different_files, named
from worldsize.results.rank_files import line_blocks
from worldsize.results.records import NAMES, CellRecord, CellState, StudyRecord, WarningRecord
from worldsize.results.samples import KINDS, STEPS

UNPAIRED = (
    "These runs were made one after another, not in turns: a machine that changed between them changes the ratios, and "
    "the intervals know nothing of it. Run each of them again to see how far equal runs differ."
)
APART = "Give runs of one training, or compare them with worldsize compare."
WORST: tuple[CellState, ...] = ("failed", "running", "interrupted", "planned")
"""The states of a launch that are those of its whole cell, the gravest first."""
HOW_LONG = frozenset(
    (
        *("epochs", "steps", "warmup_steps", "budget", "block_steps", "target_interval", "evaluate", "seed"),
        *("checkpoint", "checkpoint_steps", "profile", "data_dir"),
    )
)
"""Settings in which launches of one cell may differ: a step is the same work with all of them."""


class Launch(NamedTuple):
    """A cell of one of the runs."""

    number: int
    """Of the run."""
    run: Run
    cell: Cell


Sessions = dict[tuple[int, int], int]
"""Number of a run, and of a session of its own → the number of that session among all."""


def join_runs(
    folders: Sequence[Path | str], out: Path, provenance: Provenance, read: Callable[[Path | str], Run]
) -> None:
    """Write a run folder with the cells of all runs, whose samples are those of sessions of their own.

    Runs of the same strategy, N and b become launches of one cell. What `read` cannot read of a run is left out, and a
    warning `unreadable` says so. Raises UsageError for fewer than two runs, one that is given twice, a folder that
    holds a run, runs of another model or other data, and launches of one cell with other settings, threads or code of
    the user's (method.md §13); OutputError where there is nothing to join.
    """
    if len({Path(each).resolve() for each in folders}) < max(2, len(folders)):
        raise UsageError(
            f"run folders given: {', '.join(map(str, folders)) or 'none'}; at least two are needed, each of them once"
        )
    if (out / "study.json").exists():
        raise UsageError(f"{out} holds a study already; give another --out")
    runs = [read(folder) for folder in folders]
    _refuse_other_work(runs)
    joined: dict[str, list[Launch]] = {}
    unread: list[WarningRecord] = []
    for number, run in enumerate(runs):
        cells, lost = _measured(run)
        unread += [_left_out(run, name, why) for name, why in lost.items()]
        for cell in cells:
            joined.setdefault(_name(cell.record), []).append(Launch(number, run, cell))
    if not joined:
        raise OutputError(unread[0].message)
    for name, launches in joined.items():
        _refuse_other_launches(name, launches)
    sessions: Sessions = {}
    for name, launches in joined.items():
        _write(out, name, launches, sessions)
    warnings = [WarningRecord(code="unpaired", message=UNPAIRED), *_differences(runs), *unread]
    write_study(out, StudyRecord(name=out.name, plan=[*joined], provenance=provenance, warnings=warnings))


def _name(record: CellRecord) -> str:
    name = f"{record.strategy}-w{record.world_size}-b{record.batch_size}"
    return f"{name}-{record.label}" if record.label else name


def _measured(run: Run) -> tuple[list[Cell], dict[str, str]]:
    """The cells of a run that have samples, and why others cannot be read.

    Raises OutputError for a run with neither.
    """
    unread = {name: why for name, why in run.unread.items() if name in run.study.plan}
    found = []
    for name, cell in run.cells.items():
        if _lacks_lines(cell):
            unread[name] = f"lines in {cell.folder} are gone, and those that columns still have are not joined"
        elif STEPS.files(cell.folder):
            found.append(cell)
    if not found and not unread:
        raise OutputError(f"{run.folder} holds no steps: nothing of it can be compared")
    return found, unread


def _lacks_lines(cell: Cell) -> bool:
    try:
        return not has_all_lines(cell.folder)
    except OutputError:  # an index that cannot be read does not say what there was
        return False


def _left_out(run: Run, name: str, why: str) -> WarningRecord:
    text = " ".join(why.split("\n"))
    return WarningRecord(code="unreadable", message=f"{name} of {run.folder} was not joined: {text}")


def _refuse_other_work(runs: Sequence[Run]) -> None:
    """Raise UsageError where runs trained another model, or on other data, as far as their records say it."""
    seen: dict[str, tuple[Run, str]] = {}
    for run in runs:
        for what, text in _work(run.study):
            first, known = seen.setdefault(what, (run, text))
            if text != known:
                raise UsageError(
                    f"{first.folder} and {run.folder} differ in their {what}: {known}, and {text}\n{APART}"
                )


def _work(study: StudyRecord) -> Iterator[tuple[str, str]]:
    model, data = study.model, study.data
    if model is not None:
        yield "model", f"{model.name} of {model.parameters:,} parameters"
    if data is not None:
        shape = "×".join(str(size) for size in data.shape)
        yield "data", f"{data.name} of {shape} in {data.classes:,} classes"


def _refuse_other_launches(name: str, launches: Sequence[Launch]) -> None:
    """Raise UsageError where launches of one cell are of two codes of the user's, or of other settings or threads."""
    for one, other in combinations(launches, 2):
        both = f"{one.run.folder} and {other.run.folder} both hold {name}"
        codes = [each.run.study.provenance.user_code for each in (one, other)]
        # A file that only one of them lists may not have been looked for: `runs-differ` says so.
        files = [file for file in different_files(*codes) if all(code and file in code.digests for code in codes)]
        if files:
            raise UsageError(f"{both}, with other code of yours: {named(files)}\n{APART}")
        a, b = (each.cell.record.settings for each in (one, other))
        if a is not None and b is not None:
            kept = (field for field in CellSettings.model_fields if field not in HOW_LONG)
            changed = [field for field in kept if getattr(a, field) != getattr(b, field)]
            if changed:
                raise UsageError(f"{both}, with other settings: {', '.join(changed)}\n{APART}")
        threads = [each.cell.record.threads_per_worker for each in (one, other)]
        if None not in threads and threads[0] != threads[1]:
            raise UsageError(f"{both}, with other threads per worker: {threads[0]}, and {threads[1]}\n{APART}")


def _write(out: Path, name: str, launches: Sequence[Launch], sessions: Sessions) -> None:
    """One cell: the first record, in the gravest state of all, and the lines of all."""
    place = cell_folder(out, name)
    records = [each.cell.record for each in launches]
    first, states = records[0], [record.state for record in records]
    joined = CellRecord(
        id=name,
        strategy=first.strategy,
        world_size=first.world_size,
        batch_size=first.batch_size,
        label=first.label,
        settings=_without_length(first.settings),
        state=next((state for state in WORST if state in states), "complete"),
        error=next((record.error for record in records if record.error is not None), None),
        launches=len(launches),
        placement=first.placement,
        own_traits=first.own_traits,
        ranks=first.ranks,
        warnings=list({each.message: each for record in records for each in record.warnings}.values()),
    )
    place.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        lines: dict[int, list[str]] = {}
        for launch in launches:
            for rank, path in kind.files(launch.cell.folder).items():
                lines.setdefault(rank, []).extend(_renumbered(path, launch.number, sessions))
        for rank, found in lines.items():
            write_whole(place / f"rank{rank}{kind.suffix}", "\n".join([*found, ""]))
    write_cell(out, joined)


def _without_length(settings: CellSettings | None) -> CellSettings | None:
    """What all launches of a cell have in common; how long each was timed is its own affair."""
    usual = {name: field.get_default() for name, field in CellSettings.model_fields.items() if name in HOW_LONG}
    return None if settings is None else settings.model_copy(update=usual)


def _renumbered(path: Path, number: int, sessions: Sessions) -> Iterator[str]:
    """The lines of a file with the numbers that their sessions have among those of all runs."""
    for line in (line for block in line_blocks(path) for line in block.splitlines() if line.strip()):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise OutputError(f"{path} holds a line that is no record")
        own = values.get("session")
        if isinstance(own, int):  # else it is damaged, and stays so
            values["session"] = sessions.setdefault((number, own), len(sessions))
        yield json.dumps(values)


def _differences(runs: Sequence[Run]) -> list[WarningRecord]:
    """What was not the same in all of them, besides the number of workers."""
    sources = [run.study.provenance for run in runs]
    known: dict[str, set[str | None]] = {
        "torch": {each.torch_version for each in sources},
        "the processor": {each.host.cpu_model for each in sources},
        "your code": {json.dumps(each.user_code and each.user_code.digests, sort_keys=True) for each in sources},
        "the command": {" ".join(run.study.provenance.command) for run in runs if run.study.settings is None},
        "OMP_NUM_THREADS": {each.environment.get("OMP_NUM_THREADS") for each in sources},
    }
    differing = [name for name, values in known.items() if len(values) > 1] + _differing_settings(runs)
    if not differing:
        return []
    text = f"Not the same in all runs: {', '.join(differing)}. That may be why one is faster than another."
    return [WarningRecord(code="runs-differ", message=text)]


def _differing_settings(runs: Sequence[Run]) -> list[str]:
    """The settings that differ from run to run, but for what tells cells apart; metered runs have none."""
    of_runs = [[cell.record.settings for cell in run.cells.values() if cell.record.settings] for run in runs]
    compared = [name for name in CellSettings.model_fields if name not in HOW_LONG and name not in NAMES]
    return [
        name
        for name in compared
        if len({frozenset(repr(getattr(each, name)) for each in settings) for settings in of_runs if settings}) > 1
    ]
