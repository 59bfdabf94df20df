"""A command of a person that is metered while it runs as long as it likes: no turn, no other cell beside it."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from worldsize.commands.marks_file import MarksFile, RankStep, lines_of, write_lines
from worldsize.commands.tree import hooked
from worldsize.commands.turn_clock import TurnClock
from worldsize.config.redact import safe_command
from worldsize.errors import OutputError, UsageError
from worldsize.measure.machine import provenance
from worldsize.results.files import cell_folder
from worldsize.results.folder import write_cell, write_study
from worldsize.results.records import CellRecord, StudyRecord
from worldsize.study.command_facts import SEEN_AS, Told, facts_of_told, notices_of
from worldsize.traits import BASELINE_STRATEGY, TRAITS

WARMUP_STEPS = 3
"""Steps that are recorded and not timed: they allocate memory, and DDP arranges its buckets anew in the second."""
BLOCK_S = 2.0
"""How long a block of steps is; steps of one block are a sample."""
BLOCKS = 32
"""After so many blocks they become twice as long: a run of days has hundreds, and not hundreds of thousands."""


def run_metered(words: Sequence[str], out: Path, samples_per_step: int | None = None) -> int:
    """Run a command on this terminal, and make a run folder of the steps that its ranks have made.

    Returns its exit status. Raises UsageError where it cannot be started or made no step, OutputError where `out`
    holds something already. Ctrl-C ends the command, and what it has made is kept.
    """
    if out.exists() and any(out.iterdir()):
        raise OutputError(f"{out} is not an empty folder; give another --out")
    marks = out.absolute() / "marks"
    marks.mkdir(parents=True)
    program = shutil.which(words[0])
    if program is None:
        raise UsageError(f"{words[0]!r} was given; there is no such program on the PATH")
    process = subprocess.Popen([program, *words[1:]], env=hooked(dict(os.environ), marks))
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt:  # the terminal has told the command as well
            continue
    _keep(words, out, marks, samples_per_step)
    return status


def _keep(words: Sequence[str], out: Path, marks: Path, given: int | None) -> None:
    files = {found.rank: found for path in sorted(marks.glob("*.marks")) if (found := MarksFile(path)).facts()}
    if not files:
        shutil.rmtree(marks)
        raise UsageError(
            f"{words[0]} made no step of an optimizer of torch.optim, so nothing was metered\n"
            "It must step in a process that the command starts, with a Python that reads PYTHONPATH."
        )
    told = {rank: found.facts() for rank, found in sorted(files.items())}
    first = told[min(told)]
    troubles = [line for each in marks.glob("trouble.*") for line in each.read_text().splitlines()]
    record = _record(told, first, given)
    record.warnings = notices_of(told, given=given, troubles=troubles)
    record.batch_size = given or _write(out, record.id, files)
    record.state = "complete"
    write_study(out, StudyRecord(name=out.name, plan=[record.id], provenance=provenance(safe_command(tuple(words)))))
    write_cell(out, record)
    shutil.rmtree(marks)


def _record(told: Mapping[int, Told], first: Told, given: int | None) -> CellRecord:
    workers = int(first["world_size"]) * int(first["workers_of_process"])
    seen = str(first["synchronises"])
    strategy = BASELINE_STRATEGY if seen == "nothing" else seen
    return CellRecord(
        id=f"{strategy}-w{workers}",
        strategy=strategy,
        world_size=workers,
        batch_size=given or 1,
        own_traits=None if strategy in TRAITS else SEEN_AS[seen],
        launches=1,
        ranks=[place for each in told.values() if (place := facts_of_told(each, given).place)],
    )


def _write(out: Path, cell_id: str, files: dict[int, MarksFile]) -> int:
    """Write the lines of all ranks, up to the last step that all have made; returns the usual samples of a step."""
    for each in files.values():
        each.read()
    count = min(len(each.steps) for each in files.values())
    taken = {rank: each.take(count) for rank, each in files.items()}
    blocks = _blocks(taken[min(taken)])
    clock = TurnClock([min(steps[0].begin_ns for steps in taken.values()) if count else 0])
    folder = cell_folder(out, cell_id)
    for rank, steps in taken.items():
        for number, (begin, end) in enumerate(blocks):
            place = {"session": 0, "block": number, "launch": 0, "first": -1, "timed": begin >= WARMUP_STEPS}
            write_lines(folder, rank, lines_of(steps[begin:end], clock, place))
    sizes = [step.samples for step in taken[min(taken)]]
    return max(1, max(set(sizes), key=sizes.count)) if sizes else 1


def _blocks(steps: Sequence[RankStep]) -> list[tuple[int, int]]:
    """First step of each block, and the first one behind it, by the steps of one rank."""
    edges = [0, min(WARMUP_STEPS, len(steps))]
    for number in range(edges[1], len(steps)):
        length_s = BLOCK_S * 2 ** (len(edges) // BLOCKS)
        if steps[number].end_ns - steps[edges[-1]].begin_ns >= 1e9 * length_s:
            edges.append(number + 1)
    edges += [len(steps)] if edges[-1] < len(steps) else []
    return [(begin, end) for begin, end in itertools.pairwise(edges) if end > begin]
