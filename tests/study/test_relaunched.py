"""Workers that are started again within a turn: by an executor whose jobs are told when to die."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fake_cells import FakeExecutor, facts, planned
from fake_study import STUDY, Study, grid, noisy
from worldsize.config import StudySettings
from worldsize.launch.job import Job
from worldsize.launch.local import JobFailed
from worldsize.launch.warm import ServerLostError
from worldsize.ranks.turns import Reply, Turn
from worldsize.results.files import cell_folder, read_record
from worldsize.results.records import CellRecord, ErrorRecord
from worldsize.study.blocks import warmup_steps
from worldsize.study.job_executor import JobExecutor
from worldsize.study.plan import PlannedCell

KILLED = ErrorRecord(kind="Signal", message="rank 1 was ended by SIGKILL")
LOST = ErrorRecord(kind=ServerLostError.__name__, message="the server is gone")
GIB = 2**30
ON_A_GPU = {"device_memory": {"free_bytes": 200 * GIB, "reserved_bytes": 60 * GIB, "peak_reserved_bytes": 60 * GIB}}


@dataclass
class FakeCluster:
    """Starts jobs that answer at once."""

    dies: int = 0
    """The how-manyth turn, counted over all jobs, is the end of its job; 0 for none."""
    error: ErrorRecord = field(default_factory=lambda: KILLED)
    reply: dict[str, Any] = field(default_factory=dict)
    turns: list[tuple[int, Turn]] = field(default_factory=list)
    """(launch, turn) of each turn that was sent."""

    def share_out(self, _: int) -> tuple[()]:
        return ()

    def start(self, job: Job) -> Any:
        ready = [Reply(facts=facts()).model_dump(mode="json")] * job.processes
        answers = [Reply.model_validate(self.reply).model_dump(mode="json")] * job.processes
        begun: list[int] = []

        def send(message: Any) -> None:
            begun.append(len(self.turns))
            self.turns.append((int(job.payload["launch"]), Turn.model_validate(message)))

        def receive(*_: Any) -> list[Any]:
            if begun and len(self.turns) == self.dies:
                raise JobFailed(self.error)
            return answers if begun else ready

        return SimpleNamespace(job=job, send=send, receive=receive, close=lambda: None)


def ignored() -> None:
    """What is done while a turn goes on."""


def executor(run: Path, cluster: Any, **more: Any) -> JobExecutor:
    return JobExecutor(run, 0, cluster=cluster, **more)


def test_a_cell_is_warmed_up_as_it_was_before(tmp_path: Path) -> None:
    """Its first steps and a period come before anything is timed: they synchronise in another way (traits.py)."""
    settings = StudySettings(steps=100, warmup_steps=5, sync_every=8, sync_warmup_steps=20)
    other, cell = planned("ddp", 2, settings), planned("local-sgd", 2, settings)
    cluster = FakeCluster(dies=3)
    cells = executor(tmp_path, cluster)
    cells.take(other, Turn(op="steps", count=1), ignored)
    cells.take(cell, Turn(op="steps", count=33, timed=False), ignored)
    cells.take(cell, Turn(op="steps", count=16, warmup=1), ignored)
    again = [turn for launch, turn in cluster.turns if launch == 1]
    assert [(turn.count, turn.timed) for turn in again] == [(warmup_steps(cell), False), (16, True)]
    assert again[0].count == 20 + 8 + 5


@pytest.mark.parametrize("error", [KILLED, LOST])
def test_what_dead_workers_held_of_a_gpu_is_free(tmp_path: Path, error: ErrorRecord) -> None:
    """Killed, or lost with their server: no cell that comes later finds the GPU full."""
    cluster = FakeCluster(dies=2, error=error, reply=ON_A_GPU)
    cells = executor(tmp_path, cluster)
    first, second = planned("single", 1, STUDY), planned("ddp", 2, STUDY)
    cells.take(first, Turn(op="steps", count=1), ignored)
    cells.take(second, Turn(op="evaluate"), ignored)
    alive = {cell.id for cell in (first, second) if cells.alive(cell)}
    assert cells._devices._held_bytes.keys() == alive
    assert alive == {second.id}


class Forgetful(FakeExecutor):
    """Its workers were started again somewhere: at their end they have few steps behind them."""

    def _answers(self, cell: PlannedCell, turn: Turn, idle: Any) -> list[Any]:
        if turn.op == "evaluate":
            self._steps[cell.id] = 3
        return super()._answers(cell, turn, idle)


@pytest.mark.parametrize(("kind", "count"), [(FakeExecutor, 1), (Forgetful, 0)])
def test_only_weights_that_all_steps_have_made_are_evaluated(
    tmp_path: Path, kind: type[FakeExecutor], count: int
) -> None:
    settings = STUDY.model_copy(update={"evaluate": "end"})
    cells = grid("single", settings=settings)
    Study(tmp_path, cells, kind(tmp_path, 0, noisy(0.01)), settings).run()
    record = read_record(CellRecord, cell_folder(tmp_path, cells[0].id) / "cell.json")
    assert len(record.evaluations) == count
    told = [warning.message for warning in record.warnings if warning.code == "not-evaluated"]
    assert len(told) == 1 - count
    assert all("had made 3 of " in message for message in told)
