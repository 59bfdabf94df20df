"""The run folder of a metered training: what each rank writes of it, in the same files as a study (design.md)."""

import os
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from worldsize.errors import OutputError
from worldsize.hook.collectives import processes
from worldsize.hook.watch import Watch
from worldsize.measure.alignment import Offset
from worldsize.measure.clocks import Clock
from worldsize.measure.machine import provenance
from worldsize.measure.timeline import Step
from worldsize.measure.user_code import running_code
from worldsize.ranks.recorder import Pending, Recorder
from worldsize.results.files import cell_folder, read_record
from worldsize.results.folder import write_cell, write_study
from worldsize.results.records import CellRecord, RankPlace, StudyRecord, WarningRecord
from worldsize.results.step_records import NOT_ALIGNED_NS
from worldsize.traits import TraitsRecord

WARMUP_STEPS = 3
"""Steps that are recorded and not timed: they allocate memory, and DDP arranges its buckets anew in the second."""
BLOCK_S = 2.0
"""How long a block of steps is; steps of one block are a sample."""
BLOCKS = 32
"""After so many blocks they become twice as long, so that a run of days has hundreds and not hundreds of thousands."""
MAX_STEPS = 100_000
"""Steps of a rank that are written: a line takes 400 bytes. What comes after them is not metered."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NOT_ALIGNED = Offset(0, NOT_ALIGNED_NS)
"""Clocks of several hosts are not compared while somebody else's script runs: nothing is said of waits."""


class World(NamedTuple):
    """Who this process is among those that train together."""

    rank: int
    processes: int
    workers: int
    """N; more than processes where one process drives several."""

    @classmethod
    def found(cls, replicas: int = 1) -> "World":
        """From the process group, or from the variables of a launcher where there is none."""
        in_group = dist.is_available() and dist.is_initialized()
        rank = dist.get_rank() if in_group else int(os.environ.get("RANK", 0))
        return cls(rank, processes(), processes() * replicas)


class RunFolder:
    """Writes the steps of one rank, and, on rank 0, the records of the run.

    Raises OutputError where a run was written before, or it cannot be written.
    """

    def __init__(self, out: Path, world: World, clock: Clock, strategy: str, traits: TraitsRecord | None) -> None:
        self.out, self.world = out, world
        self.cell = CellRecord(
            id=f"{strategy}-w{world.workers}",
            strategy=strategy,
            world_size=world.workers,
            batch_size=1,
            own_traits=traits,
            state="running",
            launches=1,
        )
        folder = cell_folder(out, self.cell.id)
        if _holds_another_run(out, world.rank, self.cell.id) or (folder / f"rank{world.rank}.jsonl").exists():
            raise OutputError(f"{out} holds a run already; give another folder")
        self.recorder = Recorder(folder, world.rank, clock)
        self.offset = self._offset()
        self.steps = self.block = self._in_block = 0
        self._block_end_ns: int | None = None
        self._samples: dict[int, int] = {}
        if world.rank == 0:
            self._write_records()

    def _write_records(self) -> None:
        code = running_code(Path(sys.argv[0])) if sys.argv else None
        study = StudyRecord(name=self.out.name, plan=[self.cell.id], provenance=provenance(sys.argv, code=code))
        cores = tuple(sorted(os.sched_getaffinity(0)))
        self.cell.ranks = [RankPlace(host=socket.gethostname(), cores=cores, threads=torch.get_num_threads())]
        write_study(self.out, study)
        write_cell(self.out, self.cell)

    def _offset(self) -> Offset:
        """All ranks of one boot share a clock; how those of others differ is not known here."""
        local = int(os.environ.get("LOCAL_WORLD_SIZE", 0))
        one_host = os.environ.get("MASTER_ADDR") in LOOPBACK
        return Offset(one_clock=True) if one_host or self.world.processes in (1, local) else NOT_ALIGNED

    @property
    def full(self) -> bool:
        """Whether no more steps are written."""
        return self.steps >= MAX_STEPS

    def next_block(self) -> None:
        """What comes next does not follow the last step: it begins a block of its own."""
        self.block += self._in_block > 0
        self._in_block, self._block_end_ns = 0, None
        if self.world.rank == 0 and self._batch_size() != self.cell.batch_size:
            self._write_cell()  # now: a process that is killed comes to no end of its own

    def _batch_size(self) -> int:
        """The batch of a worker in most steps so far."""
        usual = max(self._samples, key=lambda samples: self._samples[samples], default=1)
        return max(1, round(usual * self.world.processes / self.world.workers))

    def _write_cell(self) -> None:
        self.cell.batch_size = self._batch_size()
        write_cell(self.out, self.cell)

    def add(self, step: Step, samples: int, epoch: int, now_ns: int, *, timed: bool = True) -> None:
        """Write a step that is over; `samples` are those of this process. One that was interrupted is not timed."""
        if self._block_end_ns is None:
            self._block_end_ns = now_ns + round(1e9 * BLOCK_S * 2 ** (self.block // BLOCKS))
        self.recorder.add(
            Pending(
                step=step,
                loss=None,
                session=0,
                block=self.block,
                number=self.steps,
                epoch=epoch,
                timed=timed and self.steps >= WARMUP_STEPS,
                samples=max(1, int(samples)),
                offset=self.offset,
            )
        )
        self.steps += 1
        self._in_block += 1
        self._samples[samples] = self._samples.get(samples, 0) + 1
        if now_ns >= self._block_end_ns or self.steps == WARMUP_STEPS:
            self.next_block()

    def close(self, warnings: list[WarningRecord]) -> None:
        """Write what is left; the run is complete."""
        with self.recorder:
            self.recorder.flush(self.offset)
        if self.world.rank == 0:
            self.cell.state, self.cell.warnings = "complete", warnings
            self._write_cell()


def _holds_another_run(out: Path, rank: int, cell_id: str) -> bool:
    """Whether a run was written there before; rank 0 may have begun this one, whose only cell this is."""
    place = out / "study.json"
    return place.exists() and (rank == 0 or read_record(StudyRecord, place).plan != [cell_id])


def notices(watch: Watch, *, setting: str, given: int | None, unseen_because: str) -> list[WarningRecord]:
    """What a reader must know: how samples were counted, and which collectives were not seen.

    `setting` is where the samples of a step can be `given`.
    """
    found = []
    if given is None:
        unknown = f"How many samples a step has is unknown: each counts as one. Give {setting}."
        text = f"Samples were counted by {watch.samples_from}." if watch.samples_from else unknown
        found.append(WarningRecord(code="samples-counted", message=text))
    seen, unseen = watch.collectives.seen, watch.collectives.unseen
    if unseen:
        text = f"{seen:,} of {seen + unseen:,} collectives were seen, so no step is taken apart. {unseen_because}"
        found.append(WarningRecord(code="messages-not-seen", message=text))
    return found
