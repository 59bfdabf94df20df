"""Reads what the ranks of a cell have appended to their files, as rows of a history."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from worldsize.results.rank_files import GrowingFile, parsed_step, rank_files
from worldsize.results.records import CellRecord
from worldsize.results.step_records import StepRecord
from worldsize.results.training_records import Evaluation
from worldsize.results.world_step import world_step_s
from worldsize.trackers.tracker import Number, Row

MEANS = ("loss", "accuracy")
"""Means over the samples of all ranks; absent where a rank has none."""


class WorldStep(NamedTuple):
    """A step of all ranks, on rank 0's clock."""

    turn: tuple[int, int]
    """Its block and launch."""
    step: int
    begin_ns: int
    """When the last rank has begun."""
    end_ns: int
    """When the last rank has ended."""
    longest_s: float
    """Of the rank that took longest by its own clock."""
    paused: bool
    """Whether something was computed after it that is no part of a step."""


class Rows:
    """The history of one cell in one session, in pieces: each step and each evaluation once, in order.

    Steps without synchronisation and steps without instruments are no training, so not part of it. Where ranks run on
    several machines, the rank files of this one are read.
    """

    def __init__(self, folder: Path, session: int, global_batch: int) -> None:
        self._folder = folder
        self._session = session
        self._global_batch = global_batch
        self._files: dict[int, GrowingFile] = {}
        for file in self._there():
            file.skip()
        self._begin: int | None = None
        """Step with which this session began; one that goes on from a checkpoint begins after it."""
        self._evaluated = 0
        self._step = -1
        self._before: WorldStep | None = None
        self._offsets_ns: list[int] = []
        """Of the clocks of the ranks, in the first step of the turn: one offset for all of it."""

    def new(self, evaluations: Sequence[Evaluation]) -> list[Row]:
        """What has been added since the last call; call it when all ranks have written their steps."""
        rows = [self._row(lines) for lines in self._steps()]
        rows += [Row(self._step, _test_values(each)) for each in evaluations if self._is_new(each)]
        self._evaluated = max([self._evaluated, *(each.step for each in evaluations)])
        return rows

    def _is_new(self, evaluation: Evaluation) -> bool:
        """Whether it belongs to this session, and was not told yet."""
        return self._begin is not None and evaluation.step > max(self._begin, self._evaluated)

    def _steps(self) -> list[list[dict[str, Any]]]:
        """The new lines by step, in the order of rank 0; of a step that was run twice, the second try."""
        ranks = [{step.step: step.model_dump() for step in self._new_steps(file)} for file in self._there()]
        return [[rank[step] for rank in ranks if step in rank] for step in (ranks[0] if ranks else ())]

    def _there(self) -> list[GrowingFile]:
        """Rank 0 first."""
        return [self._files.setdefault(rank, GrowingFile(path)) for rank, path in rank_files(self._folder).items()]

    def _new_steps(self, file: GrowingFile) -> Iterator[StepRecord]:
        steps = map(parsed_step, file.new_lines())
        return (step for step in steps if step and step.session == self._session and step.synchronised)

    def _row(self, ranks: Sequence[dict[str, Any]]) -> Row:
        if self._begin is None:
            self._begin = ranks[0]["step"]
        # Workers that had to be started anew count from 0 again; a history only grows.
        self._step = max(self._step + 1, ranks[0]["step"])
        step_s = self._world_step_s(ranks)
        values: dict[str, Number | None] = {name: _mean(ranks, name) for name in MEANS}
        values |= {"epoch": ranks[0]["epoch"], "timed": int(ranks[0]["timed"]), "step_s": step_s}
        values["samples_per_s"] = self._global_batch / step_s if step_s > 0 else None
        return Row(self._step, _present(values))

    def _world_step_s(self, ranks: Sequence[dict[str, Any]]) -> float:
        """The time of a step of all ranks (s), as tables have it."""
        first, before = ranks[0], self._before
        turn = first["block"], first["launch"]
        if before is None or before.turn != turn or len(self._offsets_ns) != len(ranks):
            self._offsets_ns = [rank["clock_offset_ns"] for rank in ranks]
        begins_ns = [rank["start_ns"] + offset_ns for rank, offset_ns in zip(ranks, self._offsets_ns, strict=True)]
        lengths_s = [rank["step_s"] for rank in ranks]
        self._before = now = WorldStep(
            turn=turn,
            step=first["step"],
            begin_ns=max(begins_ns),
            end_ns=max(begin + round(1e9 * length) for begin, length in zip(begins_ns, lengths_s, strict=True)),
            longest_s=max(lengths_s),
            paused=any(rank["reference_s"] is not None for rank in ranks),
        )
        follows = before is not None and not before.paused and (before.turn, before.step + 1) == (turn, now.step)
        since_ns = before.end_ns if before is not None and follows else now.begin_ns
        return float(world_step_s(np.array(since_ns), np.array(now.end_ns), np.array(now.longest_s)))


def summary_values(record: CellRecord) -> dict[str, Number]:
    """The numbers of a cell that has ended, by the names of its record, with `_low` and `_high` for an interval."""
    values: dict[str, Number | None] = {"peak_memory_bytes": record.peak_memory_bytes}
    if record.evaluations:
        values |= _test_values(record.evaluations[-1])
    summary = record.summary
    if summary is not None:
        for name in ("step_s", "samples_per_s"):
            estimate = getattr(summary, name)
            values |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        values |= summary.parts_s
        values |= {name: getattr(summary, name) for name in ("comm_s", "overlapped_s", "timed_steps", "blocks")}
    return _present(values)


def _mean(ranks: Sequence[dict[str, Any]], name: str) -> float | None:
    """Mean over the samples of the ranks; the number itself where there is one rank."""
    if any(rank.get(name) is None for rank in ranks):
        return None
    if len(ranks) == 1:
        return float(ranks[0][name])
    total = sum(rank["samples"] for rank in ranks)
    return float(sum(rank[name] * rank["samples"] for rank in ranks)) / total if total else None


def _test_values(evaluation: Evaluation) -> dict[str, Number]:
    return _present({"test_loss": evaluation.test_loss, "test_accuracy": evaluation.test_accuracy})


def _present(values: dict[str, Number | None]) -> dict[str, Number]:
    return {name: value for name, value in values.items() if value is not None}
