"""Cases of training that real processes do one after the other, each with trainers of its own on every rank.

A test describes its cases and asks a CaseJobs for what each rank came to; the entry of its job calls `do_cases`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from jobs import start
from worldsize.config import CellSettings
from worldsize.data import load_data
from worldsize.launch.local import LocalJob
from worldsize.launch.placement import place
from worldsize.measure.clocks import HostClock
from worldsize.measure.machine import allowed_cores
from worldsize.measure.timeline import Timeline
from worldsize.ranks.setup import Rank, choose_device, pin, process_group
from worldsize.ranks.turns import Reply, Turn, Turns, run_turns
from worldsize.results.records import Placement
from worldsize.strategies import STRATEGIES
from worldsize.training.classifier import Classifier
from worldsize.training.rank import world_of
from worldsize.training.trainer import Trainer


class CaseJobs:
    """Jobs that stay alive from case to case: one for each number of processes."""

    def __init__(
        self,
        entry: str,
        folder: Path,
        cases: Sequence[tuple[CellSettings, dict[str, Any]]],
        *,
        variables: dict[str, str] | None = None,
        **payload: Any,
    ) -> None:
        """`cases`: settings of each, and what else its entry must know of it; `payload`: what it must know of all."""
        self.entry, self.folder, self.variables, self.payload = entry, folder, variables, payload
        folder.mkdir(exist_ok=True)
        self.cases = [_described(settings, more) for settings, more in cases]
        self._jobs: dict[int, LocalJob] = {}

    def run(self, number: int, *, count: int = 1) -> list[dict[str, Any]]:
        """What each rank came to in a case; `count` is that of the turn."""
        processes = self.cases[number]["placement"]["processes"]
        job = self._jobs.pop(processes, None) or self._start(processes)
        job.send({"op": "steps", "block": number, "count": count})
        job.receive()  # a job that fails is gone: the next case starts another one
        self._jobs[processes] = job
        found = []
        for rank in range(processes):
            file = _left(self.folder, number, rank)
            found.append(torch.load(file, weights_only=False))
            file.unlink()
        return found

    def close(self) -> None:
        """End all jobs."""
        for job in self._jobs.values():
            job.close()

    def _start(self, processes: int) -> LocalJob:
        given = {"folder": str(self.folder), "cases": self.cases, **self.payload}
        job = start(self.entry, processes, self.folder / f"of-{processes}", variables=self.variables, **given)
        job.receive()
        return job


@dataclass(frozen=True)
class CaseOnRank:
    """What a rank has of the case that it does."""

    rank: Rank
    given: dict[str, Any]
    """The case as it was described."""
    count: int
    folder: Path
    """For what the ranks write together."""
    trainer: Callable[..., Trainer]
    """Makes another one; settings may be given otherwise, by name."""


def do_cases(payload: dict[str, Any], turns: Turns, do_case: Callable[[CaseOnRank], dict[str, Any]]) -> None:
    """What the entry of a job calls: a turn is the case of number `block`, and the test gets what `do_case` returns."""
    rank = Rank.from_environment()
    first = Placement.model_validate(payload["cases"][0]["placement"])
    device = choose_device(rank, first)

    def do(turn: Turn) -> Reply:
        if turn.op != "finish":
            given = payload["cases"][turn.block]
            placement = Placement.model_validate(given["placement"])
            pin(rank, placement)
            settings = CellSettings.model_validate(given["settings"])

            def trainer(**otherwise: Any) -> Trainer:
                mine = settings.model_copy(update=otherwise)
                timeline = Timeline(HostClock())
                world = world_of(rank, mine, placement, device, timeline)
                return Trainer(mine, Classifier(mine, load_data(mine)), world, timeline)

            folder = Path(payload["folder"])
            case = CaseOnRank(rank, given, turn.count, folder / f"case{turn.block}", trainer)
            torch.save(do_case(case), _left(folder, turn.block, rank.rank))
        return Reply()

    with process_group(rank, first, device):
        run_turns(turns, Reply(), do)


def _described(settings: CellSettings, more: dict[str, Any]) -> dict[str, Any]:
    placement = place(
        world_size=settings.world_size,
        processes=STRATEGIES[settings.strategy].processes(settings.world_size),
        threads_per_worker=1,
        cores=allowed_cores(),
        gpus=0,
        backend="gloo",
    )
    return {"settings": settings.model_dump(mode="json"), "placement": placement.model_dump(mode="json"), **more}


def _left(folder: Path, number: int, rank: int) -> Path:
    return folder / f"case{number}-rank{rank}.pt"
