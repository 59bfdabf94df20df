"""What torch's DDP does in steps that only measure: which of them broadcast buffers, and which run hooks of ours."""

import json
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from jobs import start
from tiny import alone, tiny_settings
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.memory import room_for
from worldsize.results.files import cell_folder

pytestmark = pytest.mark.usefixtures("clean_imports")

TURNS: dict[str, dict[str, Any]] = {
    "warm-up": {"count": 2, "timed": False},
    "block": {"count": 3, "block": 0},
    "silent": {"count": 3, "warmup": 1, "synchronise": False},
    "block after silence": {"count": 3, "warmup": 1, "block": 1},
    "silent, no warm-up": {"count": 2, "synchronise": False},
    "block at once": {"count": 2, "block": 2},
    "unseen": {"count": 3, "warmup": 1, "observe": False},
    "block after unseen": {"count": 2, "block": 3},
}


@dataclass
class Counted:
    """Of each turn, the rows [synchronise, broadcasts, calls of hooks] of its steps, the warm-up steps first."""

    rows: dict[str, list[list[int]]]

    def counting(self, turn: str) -> list[list[int]]:
        """The rows of the steps that count."""
        return self.rows[turn][-TURNS[turn]["count"] :]


@pytest.fixture(scope="module", params=[0, 1], ids=["rank 0", "rank 1"])
def counted(request: pytest.FixtureRequest, ranks: list[list[list[int]]]) -> Counted:
    rows = iter(ranks[request.param])
    warmups = {name: 2 if name == "unseen" else turn.get("warmup", 0) for name, turn in TURNS.items()}
    found = {name: list(islice(rows, warmups[name] + turn["count"])) for name, turn in TURNS.items()}
    assert not list(rows), "every step belongs to a turn"
    return Counted(found)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[int]]]:
    """Two real processes over gloo that train a model with BatchNorm under DDP."""
    run = tmp_path_factory.mktemp("run")
    settings = tiny_settings(run, strategy="ddp", world_size=2, batch_size=8)
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    job = start(
        "counting:enter_counting",
        2,
        cell_folder(run, settings.id) / "job",
        run=str(run),
        settings=settings.model_dump(mode="json"),
        placement=placement.model_dump(mode="json"),
        session=0,
    )
    with closing(job):
        job.receive()
        for turn in ({"op": "verify", "count": 1}, *({"op": "steps", **turn} for turn in TURNS.values())):
            job.send(turn)
            job.receive()
        job.send({"op": "finish"})
        job.receive()
    return [json.loads((run / f"counts{rank}.json").read_text()) for rank in range(2)]


def test_buffers_are_broadcast_once_in_each_timed_step_and_never_in_a_silent_one(counted: Counted) -> None:
    for turn, settings in TURNS.items():
        broadcasts = [row[1] for row in counted.counting(turn)]
        assert broadcasts == [int(settings.get("synchronise", True))] * settings["count"], turn


def test_steps_without_instruments_run_no_hook_of_ours(counted: Counted) -> None:
    assert [row[2] for row in counted.counting("unseen")] == [0, 0, 0]
    for turn in ("block", "block after unseen"):
        assert min(row[2] for row in counted.counting(turn)) > 10, "a hook for each gradient and each message"


@pytest.mark.parametrize("room", [True, False])
def test_unseen_steps_have_no_hook_on_a_parameter_and_afterwards_all_are_back(tmp_path: Path, *, room: bool) -> None:
    trainer, _ = alone(tiny_settings(tmp_path))
    model, parameters = trainer.model, list(trainer.model.parameters())

    def hooks() -> list[int]:
        return [len(each._post_accumulate_grad_hooks or ()) for each in parameters]

    assert hooks() == [1] * len(parameters)
    with trainer.uninstrumented(room=room):
        assert hooks() == [0] * len(parameters)
        assert trainer.model is model
    assert hooks() == [1] * len(parameters)
    assert trainer.timeline.watching


def test_a_second_wrapper_needs_room() -> None:
    cpu = torch.device("cpu")
    assert room_for(0, cpu, 1)
    assert not room_for(psutil.virtual_memory().total, cpu, 1)
    available = psutil.virtual_memory().available
    assert room_for(available // 100, cpu, 2)
    assert not room_for(available // 10, cpu, 20), "each of the processes takes as much"
