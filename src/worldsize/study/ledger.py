"""Keeps the record of each cell while the study runs, and writes it at each change of state."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from worldsize.analysis.sameness import not_the_reference, verdict_of
from worldsize.analysis.steps import world_steps
from worldsize.analysis.summary import step_blocks, summarise
from worldsize.errors import OutputError
from worldsize.launch.placement import oversubscribed
from worldsize.measure.conditions import Watch
from worldsize.ranks.turns import Facts, Reply
from worldsize.results.check_records import RankCheck
from worldsize.results.checkpoints import checkpoint_folder, find_checkpoint
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell, write_cell
from worldsize.results.rank_files import rank_file
from worldsize.results.records import CellRecord, ErrorRecord, WarningRecord
from worldsize.results.replay import replayed_by
from worldsize.results.step_records import BlockActivity, BlockConditions, StepRecord, UnobservedBlock
from worldsize.results.traces import ProfileRecord, write_profile
from worldsize.results.training_records import Evaluation
from worldsize.study.compiling import compiled
from worldsize.study.listener import Follower, Listener
from worldsize.study.plan import PlannedCell

RESTARTED = ("restarted", "ran-again", "fewer-workers", "ran-to-its-end")
"""Codes of the warnings about what was run again within a session."""
EVERY_S = 5.0
"""What is known of the blocks of a cell is written so often while they are timed: a write takes 10 ms, and a kill −9
loses what was not written."""
KEPT = ("evaluations", "unobserved", "conditions", "activities", "compile_s")
"""What a record of an earlier session is gone on with."""


class Ledger:
    """Records of the cells of one session of a study."""

    def __init__(
        self,
        run: Path,
        session: int,
        before: Mapping[str, Cell],
        *,
        writing: bool = True,
        watch: Watch | None = None,
    ) -> None:
        self.run = run
        self.writing = writing
        """False on all ranks but the first where every rank keeps a ledger (study/inside.py)."""
        self.session = session
        self._watch = watch
        self._before = before
        self._records: dict[str, CellRecord] = {}
        self._planned: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._wrote_s: dict[str, float] = {}

    def expect(self, cell: PlannedCell, steps: int) -> None:
        """A cell is in the plan of this session, with at most this many steps ahead."""
        self._planned[cell.id], self._done[cell.id] = steps, 0

    def planned_steps(self, cell: PlannedCell) -> int:
        """How many steps were expected of a cell in this session."""
        return self._planned.get(cell.id, 0)

    def done_steps(self, cell: PlannedCell) -> int:
        """How many steps a cell has run in this session."""
        return self._done.get(cell.id, 0)

    def samples(self, cell: PlannedCell) -> dict[tuple[int, int], Any]:
        """Timed step times of earlier sessions by (session, block); all that was written counts."""
        # A cell that is evaluated at its end trains from its first step again: all its steps must be of one training.
        if cell.id not in self._before or cell.settings.epochs is not None or cell.settings.evaluate == "end":
            return {}
        return dict(step_blocks(world_steps(self._before[cell.id])))

    def checkpointed_steps(self, cell: PlannedCell) -> int:
        """Steps of training that a checkpoint spares the cell."""
        found = find_checkpoint(checkpoint_folder(cell_folder(self.run, cell.id)))
        return found.step if found else 0

    def started(self, cell: PlannedCell, facts: Sequence[Facts]) -> None:
        """The workers of a cell are ready."""
        record, first = self.record(cell), facts[0]
        record.state = "running"
        # Of what was evaluated after the checkpoint nothing is left, and it will be evaluated again.
        record.evaluations = [each for each in record.evaluations if each.step <= first.steps]
        record.wire, record.steps_per_epoch = first.wire, first.steps_per_epoch
        if first.samples is not None:
            record.batch_size, record.own_traits = first.samples, first.traits
        record.matmul_flops_per_s = first.matmul_flops_per_s or record.matmul_flops_per_s
        record.matmul_precision = first.matmul_precision
        record.launches += 1
        compiled(record, facts, self._records.values())
        record.ranks = [fact.place for fact in facts if fact.place]
        record.messages = first.messages
        self._write(record)

    def verified(self, cell: PlannedCell, checks: Sequence[RankCheck]) -> None:
        """The ranks of a cell gave their short proof; one that fails is a warning, for the cell is still timed."""
        record = self.record(cell)
        record.verified = verdict_of(checks)
        record.warnings += not_the_reference(cell.id, record.verified)
        self._write(record)

    def evaluated(self, cell: PlannedCell, evaluation: Evaluation) -> None:
        """A cell was evaluated on the test set; without its epochs only weights that all its steps have made count."""
        record, steps = self.record(cell), self.done_steps(cell)
        if cell.settings.epochs is None and evaluation.step != steps:
            text = f"workers were started again; the evaluated weights had made {evaluation.step:,} of {steps:,} steps"
            record.warnings.append(WarningRecord(code="not-evaluated", message=f"No accuracy is shown: {text}."))
        else:
            record.evaluations = [each for each in record.evaluations if each.step < evaluation.step] + [evaluation]
        self._write(record)

    def unobserved(self, cell: PlannedCell, block: int, times: Sequence[float]) -> None:
        """A cell has run some steps without instruments, after its block with them."""
        bare = UnobservedBlock(session=self.session, block=block, step_s=[*map(float, times)])
        self.record(cell).unobserved.append(bare)

    @contextmanager
    def watched(self, cell: PlannedCell, block: int) -> Iterator[None]:
        """Note what else goes on on the machine while a block is timed in this context."""
        if self._watch is None:
            yield
            return
        self._watch.begin()
        yield
        seen = self._watch.end()
        self.record(cell).conditions.append(
            BlockConditions(session=self.session, block=block, **dataclasses.asdict(seen))
        )

    def acted(self, cell: PlannedCell, block: int, replies: Sequence[Reply]) -> None:
        """What the threads of a cell did in its timed steps, where all ranks tell; when it has its gradients."""
        record = self.record(cell)
        if record.replayed is not None:
            record.replayed.add(*(reply.replayed for reply in replies if reply.replayed))
        for found in (reply.gradients for reply in replies if reply.gradients):
            if record.gradients is None or found.steps > record.gradients.steps:
                record.gradients = found
        ranks = [reply.activity for reply in replies if reply.activity]
        if len(ranks) == len(replies):
            columns = ("cpu_s", "queued_s", "collected_s", "most_collected_s", "major_faults")
            values = {name: [getattr(each, name) for each in ranks] for name in columns}
            place = {"session": self.session, "block": block, "steps": ranks[0].steps}
            record.activities.append(BlockActivity.model_validate({**place, **values}))
        if time.monotonic() > self._wrote_s.get(cell.id, 0.0) + EVERY_S:
            self._write(record)

    def used_memory(self, cell: PlannedCell, replies: Sequence[Reply]) -> None:
        """The largest memory of a process of the cell so far, what is in it where that rank tells, and warnings."""
        record = self.record(cell)
        if record.replayed is not None:  # it is not the memory of what is replayed
            return
        most = max(replies, key=lambda reply: reply.peak_memory_bytes)
        if most.peak_memory_bytes >= (record.peak_memory_bytes or 0):
            record.peak_memory_bytes = most.peak_memory_bytes
            record.memory = most.memory or record.memory
        reserved_bytes = max(reply.peak_reserved_bytes or 0 for reply in replies)
        record.peak_reserved_bytes = max(reserved_bytes, record.peak_reserved_bytes or 0) or None
        self._noticed(record, replies[0])

    @staticmethod
    def _noticed(record: CellRecord, reply: Reply) -> None:
        """What rank 0 says of its work as far as it has seen it; the last word on each thing counts."""
        record.batch_size = reply.samples or record.batch_size
        for warning in reply.warnings:
            record.warnings = [*(each for each in record.warnings if each.code != warning.code), warning]

    def ended_by_itself(self, cell: PlannedCell, anew: bool) -> None:
        """A script came to its end and is started again, `anew` at once; said once, however often."""
        self.record(cell).launches += anew
        text = "The script came to its end before its time was over, and was started again, as often as needed."
        warning = WarningRecord(code="ran-to-its-end", message=text)
        self.record(cell).warnings += [warning] if warning not in self.record(cell).warnings else []

    def profiled(self, cell: PlannedCell, replies: Sequence[Reply]) -> None:
        """The ranks of a cell have left their traces; a rank that could not is a warning."""
        ranks = [reply.profile for reply in replies if reply.profile]
        problems = [reply.profile_problem for reply in replies if reply.profile_problem]
        if ranks and self.writing:
            try:
                write_profile(cell_folder(self.run, cell.id), ProfileRecord(ranks=ranks))
            except OutputError as error:
                problems.append(str(error))
        if problems:
            self.not_profiled(cell, problems[0])

    def not_profiled(self, cell: PlannedCell, why: str) -> None:
        """The profile of a cell, or of some of its ranks, failed."""
        text = f"not all ranks could be profiled, which touches no other number: {why.strip().splitlines()[0]}"
        self.record(cell).warnings.append(WarningRecord(code="no-profile", message=text))

    def completed(self, cell: PlannedCell, ending: Any) -> CellRecord:
        """A cell came to its end."""
        record = self.record(cell)
        record.state, record.ended_by = "complete", ending
        return self._close(record)

    def failed(self, cell: PlannedCell, error: ErrorRecord) -> CellRecord:
        """A cell failed; what it measured before is kept. One that was complete (resuming.py) stays so, and says it."""
        record, earlier = self.record(cell), self._before.get(cell.id)
        if earlier is not None and earlier.record.state == "complete":
            self._warn(cell, "no-further", "it failed when it went on; what was measured stands, because", error)
            record.state, record.ended_by = "complete", earlier.record.ended_by
        else:
            record.state, record.error = "failed", error
        try:
            return self._close(record)
        except OutputError as unwritten:  # the full disk that ended the cell, most likely: say both
            first, second = error.message.split("\n")[0], str(unwritten).split("\n")[0]
            raise OutputError(f"{cell.id}: {first}\n{second}; make room, then go on with --resume.") from None

    def restarted(self, cell: PlannedCell, error: ErrorRecord, number: int, most: int) -> None:
        """A cell failed, and goes on from its last checkpoint."""
        where = f"at step {self.checkpointed_steps(cell)}, its last checkpoint"
        self._warn(cell, "restarted", f"restart {number} of {most} {where}, because", error)

    def ran_again(self, cell: PlannedCell, error: ErrorRecord) -> None:
        """A cell was ended by what says nothing of it; its turn is run again, with no other cell in memory."""
        self._warn(cell, "ran-again", "a turn was run again, with no other cell in memory, because", error)

    def took_over(self, cell: PlannedCell, other: PlannedCell, step: int, error: ErrorRecord) -> None:
        """A cell of fewer workers goes on for one that failed for good."""
        workers = f"{cell.settings.world_size} worker(s)"
        what = f"goes on at step {step} of {other.id} with {workers} and the same global batch, because"
        self._warn(cell, "fewer-workers", what, error)

    def _warn(self, cell: PlannedCell, code: str, what: str, error: ErrorRecord) -> None:
        message = f"{cell.id}: {what}: " + error.message.split("\n")[0]
        self.record(cell).warnings.append(WarningRecord(code=code, message=message))
        self._write(self.record(cell))

    def interrupted(self) -> list[CellRecord]:
        """The study was stopped: every cell that had not ended keeps what it has."""
        records = [record for record in self._records.values() if record.state in ("planned", "running")]
        for record in records:
            record.state = "interrupted"
            with suppress(OutputError):  # of one whose samples cannot be read; the report says which
                self._close(record)
        return records

    def summarise_again(self) -> None:
        """Compute the summaries anew: further samples have come in."""
        for record in self._records.values():
            self._close(record)

    def follow(self, cell: PlannedCell, listener: Listener) -> Follower:
        """Something that counts each step while a turn goes on, and tells the listener."""

        def advanced(steps: int, last: StepRecord | None) -> None:
            self.advance(cell, steps)
            listener.advanced(cell, steps, last)

        return Follower(rank_file(cell_folder(self.run, cell.id), 0), advanced)

    def advance(self, cell: PlannedCell, steps: int) -> None:
        """Count steps of a cell."""
        self._done[cell.id] = self.done_steps(cell) + steps

    def record(self, cell: PlannedCell) -> CellRecord:
        """The record of a cell, as far as it is."""
        if cell.id not in self._records:
            earlier = self._before.get(cell.id)
            self._records[cell.id] = CellRecord.of(
                cell.settings,
                id=cell.id,
                placement=cell.placement,
                own_traits=cell.own_traits,
                warnings=_first_warnings(cell, earlier),
                **({name: list(getattr(earlier.record, name)) for name in KEPT} if earlier else {}),
                gradients=earlier.record.gradients if earlier else None,
                replayed=earlier.record.replayed if earlier else replayed_by(self.run, cell.settings),
                launches=earlier.record.launches if earlier else 0,
            )
        return self._records[cell.id]

    def _close(self, record: CellRecord) -> CellRecord:
        self._write(record)  # first: what is known of a cell is no less true where its samples cannot be read
        if self.writing:
            record.summary = summarise(Cell(cell_folder(self.run, record.id), record))
            self._write(record)
        return record

    def _write(self, record: CellRecord) -> None:
        self._wrote_s[record.id] = time.monotonic()
        if self.writing:
            write_cell(self.run, record)


def _first_warnings(cell: PlannedCell, earlier: Cell | None) -> list[WarningRecord]:
    """Those of its placement, and what earlier sessions cannot find out again."""
    kept = [warning for warning in earlier.record.warnings if warning.code in RESTARTED] if earlier else []
    return oversubscribed(cell.id, cell.settings.world_size, cell.placement) + kept
