"""What listens: loopback alone on one machine, the named address alone where ranks are started by hand."""

import os
import socket
from pathlib import Path

import pytest

from commands import start
from security.conftest import Watched
from served import ITS_OWN
from sockets import Bound, watched
from tiny import MODEL
from worldsize.errors import UsageError
from worldsize.ranks import STARTED_BY_HAND
from worldsize.ranks.store import listen, store_by_hand

SECOND = "127.0.0.2"
"""Another address of loopback: who listens there and nowhere else has bound it on purpose."""


def test_a_study_listens_on_loopback_alone(study: Watched) -> None:
    assert study.bound.looks > 5
    assert len(study.bound.listening) >= 2, "the agent's store, and the workers' own sockets"
    assert study.bound.beyond_loopback() == []


@pytest.mark.parametrize(
    "line",
    [
        "comm --world-size 2 --out found.json",
        "train --model mine.py:net --strategy ddp --world-size 2 --batch-size 4 --threads-per-worker 1 --epochs 1 "
        "--data digits --train-samples 32 --test-samples 8 --loader per-sample --loader-workers 1 --out run",
    ],
    ids=["comm", "train"],
)
def test_a_command_listens_on_loopback_alone(tmp_path: Path, line: str) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    command = start(*line.split(), cwd=tmp_path, **ITS_OWN)
    bound = watched(command)
    said = command.communicate()
    assert command.returncode == 0, said
    assert bound.listening
    assert bound.beyond_loopback() == []


def test_ranks_started_by_hand_meet_on_the_named_address_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL)
    with socket.create_server((SECOND, 0)) as free:
        port = free.getsockname()[1]
    line = "train --model mine.py:net --strategy ddp --batch-size 4 --data digits --train-samples 32 --test-samples 8"
    group = f"--epochs 1 --master-ip {SECOND} --master-port {port} --num-nodes 2"
    nodes = [
        start(*f"{line} {group} --rank {rank} --out node{rank}".split(), cwd=tmp_path, OMP_NUM_THREADS="1")
        for rank in range(2)
    ]
    bound = watched(*nodes)
    said = [node.communicate() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert {address for address, number in bound.listening if number == port} == {SECOND}
    assert bound.beyond_loopback() == []


def test_a_question_to_the_resolver_is_no_connection_and_any_other_is() -> None:
    bound = Bound()
    with socket.socket(type=socket.SOCK_DGRAM) as asks, socket.socket(type=socket.SOCK_DGRAM) as sends:
        asks.bind(("127.0.0.3", 0))
        asks.connect(("127.0.0.1", 53))
        sends.bind(("127.0.0.4", 0))
        sends.connect(("127.0.0.1", 54))
        bound.look(os.getpid())
    assert "127.0.0.4" in bound.others
    assert "127.0.0.3" not in bound.others


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv(STARTED_BY_HAND, "1")
    monkeypatch.setenv("MASTER_ADDR", SECOND)
    return monkeypatch


def test_a_port_that_is_in_use_is_told(by_hand: pytest.MonkeyPatch) -> None:
    with socket.create_server((SECOND, 0)) as taken:
        by_hand.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        with pytest.raises(UsageError, match=f"cannot listen on {SECOND}.*in use\n--master-ip"):
            store_by_hand(0)


def test_an_address_of_another_machine_is_told(by_hand: pytest.MonkeyPatch) -> None:
    by_hand.setenv("MASTER_ADDR", "198.51.100.7")
    by_hand.setenv("MASTER_PORT", "0")
    with pytest.raises(UsageError, match=r"cannot listen on 198\.51\.100\.7"):
        store_by_hand(0)


def test_whoever_was_not_started_by_hand_gets_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STARTED_BY_HAND, raising=False)
    assert store_by_hand(0) is None


def test_the_store_refuses_who_comes_by_another_address() -> None:
    store, port = listen(SECOND)
    with socket.create_connection((SECOND, port), timeout=5):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    del store
