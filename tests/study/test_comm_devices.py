"""On which devices `worldsize comm` puts its workers, where a machine has so many GPUs. None is used here."""

import importlib
import sys
from typing import Any

import pytest
import torch

import worldsize
from made_reports import made_link
from worldsize.cli.app import main
from worldsize.config import CommSettings, validated
from worldsize.errors import RunError, UsageError
from worldsize.launch.cluster import ThisMachine
from worldsize.launch.warm import WARM
from worldsize.results.comm_records import CommRecord
from worldsize.study.comm import _placed, with_hosts
from worldsize.study.comm_devices import gpus_for


class Told(ThisMachine):
    """This machine, with so many GPUs as it is told to have."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked = 0

    def ask(self, module: str, question: str) -> tuple[int, str]:
        self.asked += 1
        return 0, f"what a driver prints\n{self.answer}"


@pytest.mark.parametrize(
    ("given", "gpus", "where"),
    [
        ({}, 8, ("cuda", "nccl")),
        ({"world_size": 8}, 8, ("cuda", "nccl")),
        ({"backend": "nccl"}, 2, ("cuda", "nccl")),
        ({"hosts": "auto"}, 8, ("cuda", "nccl")),
        ({}, 0, ("cpu", "gloo")),
        ({"backend": "gloo"}, 8, ("cpu", "gloo")),
        ({"hosts": 2, "link": "1gbit"}, 8, ("cpu", "gloo")),
    ],
)
def test_workers_are_put_where_a_study_puts_them(given: dict[str, Any], gpus: int, where: tuple[str, str]) -> None:
    settings, cluster = validated(CommSettings, given), Told(str(gpus))
    found = gpus_for(settings, cluster)
    settings, _ = with_hosts(settings, settings.world_size, found)
    placement = _placed(settings, cluster, (), found)
    assert (placement.device, placement.backend) == where
    assert placement.processes == settings.world_size


def test_nobody_is_asked_where_no_gpu_is_used() -> None:
    cluster = Told("8")
    for given in ({"backend": "gloo"}, {"hosts": 2}, {"world_size": 1}):
        assert gpus_for(validated(CommSettings, given), cluster) == 0
    assert cluster.asked == 0


@pytest.mark.parametrize(
    ("given", "gpus", "said"),
    [
        ({"world_size": 4}, "2", "this machine has 2 GPU"),
        ({"backend": "nccl"}, "0", "backend nccl needs GPUs"),
        ({"backend": "nccl", "hosts": 2}, "8", "emulated hosts, whose workers use no GPU"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(given: dict[str, Any], gpus: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        gpus_for(validated(CommSettings, given), Told(gpus))


def test_no_answer_is_no_number() -> None:
    with pytest.raises(RunError, match="look for GPUs ended with status 0"):
        gpus_for(CommSettings(), Told("no torch"))


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Eight GPUs, and of how many a benchmark is told."""
    told: list[int] = []

    def seen(settings: CommSettings, *_: Any, gpus: int = 0, **__: Any) -> CommRecord:
        told.append(gpus)
        return made_link(settings.world_size)

    monkeypatch.setattr(ThisMachine, "ask", lambda *_: (0, "8"))
    monkeypatch.setattr(importlib.import_module("worldsize.study.comm"), "run_comm", seen)
    return told


def test_the_function_tells_the_benchmark(eight: list[int]) -> None:
    worldsize.comm(world_size=8, progress=False)
    worldsize.comm(world_size=8, backend="gloo", progress=False)
    assert eight == [8, 0]


def test_the_command_tells_the_benchmark(
    eight: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["worldsize", "comm", "--world-size", "8", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out
    assert eight == [8]


def test_the_gpus_of_this_machine_are_counted() -> None:
    with WARM.held():
        status, said = ThisMachine().ask("worldsize.collectives.bench", "")
    assert status == 0
    assert int(said.split()[-1]) == torch.cuda.device_count()
