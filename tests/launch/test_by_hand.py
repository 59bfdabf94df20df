"""A group that is started by hand, one command on each node: what torch is told, and a whole study over two nodes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import MODEL
from worldsize.errors import UsageError
from worldsize.launch.by_hand import interface_to, join_by_hand, name_interface, started_workers
from worldsize.measure.machine import loopback_interface
from worldsize.results.folder import load_run

GROUP = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLDSIZE_BY_HAND")
SOCKETS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without a group; whatever is set in it goes again."""
    for name in (*GROUP, *SOCKETS, "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def test_torch_is_told_where_the_group_is(bare: pytest.MonkeyPatch) -> None:
    assert started_workers() is None
    join_by_hand("127.0.0.1", 4, 2, 29777)
    found = {name: os.environ[name] for name in GROUP[:6]}
    assert list(found.values()) == ["127.0.0.1", "29777", "4", "2", "0", "1"]
    assert {os.environ[name] for name in SOCKETS} == {loopback_interface()}
    assert started_workers() == 4


def test_the_users_own_interface_wins(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("GLOO_SOCKET_IFNAME", "mine0")
    join_by_hand("127.0.0.1", 2, 0)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "mine0"


@pytest.mark.parametrize(("nodes", "interfaces"), [("1", {loopback_interface()}), ("2", set())])
def test_under_torchrun_loopback_is_named_for_one_node_alone(
    bare: pytest.MonkeyPatch, nodes: str, interfaces: set[str]
) -> None:
    """For several it leads nowhere. Two real hosts: tests/launchers/test_two_hosts.py."""
    for name, value in {"TORCHELASTIC_RUN_ID": "run", "MASTER_ADDR": "127.0.0.1", "GROUP_WORLD_SIZE": nodes}.items():
        bare.setenv(name, value)
    name_interface()
    assert {os.environ[name] for name in SOCKETS if name in os.environ} == interfaces


@pytest.mark.parametrize(("rank", "nodes"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_that_cannot_be_is_refused(bare: pytest.MonkeyPatch, rank: int, nodes: int) -> None:
    with pytest.raises(UsageError, match=f"rank {rank} of {nodes} nodes"):
        join_by_hand("127.0.0.1", nodes, rank)


def test_an_address_that_nobody_has_is_refused() -> None:
    with pytest.raises(UsageError, match="--master-ip"):
        interface_to("no.such.host.invalid")


def on_two_nodes(folder: Path, study: str) -> None:
    """Run one command on each of two nodes to their ends; node K writes to nodeK."""
    (folder / "mine.py").write_text(MODEL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    group = f"--master-ip 127.0.0.1 --master-port {port} --num-nodes 2"
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "worldsize", *f"{study} {group} --rank {rank} --out node{rank}".split()],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [node.communicate(timeout=450)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said


def test_a_whole_study_with_one_command_on_each_of_two_nodes(tmp_path: Path) -> None:
    study = "study sync-ladder --model mine.py:net --data digits --strategies single,data-parallel,all-reduce,ddp"
    small = "--world-sizes 1,2 --global-batch 32 --steps 4 --block-steps 2 --train-samples 256 --test-samples 64"
    on_two_nodes(tmp_path, f"{study} {small}")
    run = load_run(tmp_path / "node0")
    assert [record.world_size for record in run.comm.values()] == [2], "a bandwidth stands next to what the link can do"
    assert {name: cell.record.state for name, cell in run.cells.items()} == {
        "single-w1-b32": "complete",
        "all-reduce-w2-b16": "complete",
        "ddp-w2-b16": "complete",
    }
    for name, cell in run.cells.items():
        ranks = set(cell.steps["rank"])
        assert ranks == ({0} if name.startswith("single") else {0, 1}), "each rank's samples came to node 0"
        [test] = cell.record.evaluations
        assert test.divergence is None or test.divergence.weights == [0, 0]
    assert any(w.code == "left-out" and "data-parallel-w2-b16" in w.message for w in run.study.warnings)
    assert "Strong-scaling speed-up" in (tmp_path / "node0" / "report" / "index.html").read_text()


def test_an_experiment_runs_its_further_parts_on_the_nodes_as_well(tmp_path: Path) -> None:
    first = "study ddp-large-batch --model mine.py:net --data digits --world-sizes 1,2 --batch-sizes 16 --steps 2"
    accuracy = "--accuracy-epochs 2 --accuracy-batch 32 --accuracy-base-batch 32 --seeds 2"
    on_two_nodes(tmp_path, f"{first} --train-samples 128 {accuracy}")
    run = load_run(tmp_path / "node0")
    assert list(run.parts) == ["accuracy", "accuracy-seed1", "demonstrations", "throughput"]
    for part in run.parts.values():
        assert part.study.plan == list(part.cells)
        assert {cell.record.state for cell in part.cells.values()} == {"complete"}
    apart = run.parts["demonstrations"].cells["ddp-w2-b16-without-initial-weights"].record.evaluations[-1].divergence
    assert apart is not None
    assert apart.weights[1] != 0, "what was left out shows on these nodes too"
