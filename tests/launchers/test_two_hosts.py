"""torchrun with an agent on each of two hosts, each a network of its own: a whole study, by the static rendezvous."""

import sys
from pathlib import Path
from typing import Any

import pytest

from held_hosts import ADDRESSES, on_each, two_hosts
from rights import needs_rights
from same_study import MODEL, plain, tables
from worldsize.launch.hosts import INTERFACE
from worldsize.results.folder import Run, load_run

pytestmark = needs_rights

STATIC = f"--rdzv-backend static --nnodes 2 --nproc-per-node 1 --master-addr {ADDRESSES[0]} --master-port 29500"
C10D = f"--rdzv-backend c10d --nnodes 2 --nproc-per-node 1 --rdzv-endpoint {ADDRESSES[0]}:29500 --rdzv-id same"


def itself(rendezvous: str, node: int) -> tuple[str, ...]:
    """What differs between the nodes: these have addresses and no names, by which torchrun would know the first."""
    which = ("--node-rank", str(node)) if rendezvous == STATIC else ("--rdzv-conf", f"is_host={int(node == 0)}")
    return (*which, "--local-addr", ADDRESSES[node])


def ladder_on_two_hosts(folder: Path, rendezvous: str) -> Run:
    """Run the ladder of same_study.py by two agents; node K writes to nodeK."""
    (folder / "mine.py").write_text(MODEL)
    torchrun = [sys.executable, "-m", "torch.distributed.run", *rendezvous.split()]
    with two_hosts() as hosts:
        commands = [
            [*there, *torchrun, *itself(rendezvous, node), "-m", *plain("--out", f"node{node}")[2:]]
            for node, there in enumerate(hosts)
        ]
        on_each(commands, folder)
    return load_run(folder / "node0")


@pytest.mark.parametrize("rendezvous", [STATIC, C10D], ids=["static", "c10d"])
def test_a_study_by_an_agent_on_each_of_two_hosts_trains_the_same(
    tmp_path: Path, rendezvous: str, studies: Any
) -> None:
    run, local = ladder_on_two_hosts(tmp_path, rendezvous), studies("local")
    assert list(run.cells) == list(local.cells)
    for name, cell in run.cells.items():
        assert cell.record.state == "complete"
        assert trained(run, name) == trained(local, name)
        if not name.startswith("single"):
            assert [place.interface for place in cell.record.ranks] == [INTERFACE] * 2
    assert tables(run) == tables(local)
    assert (tmp_path / "node0" / "report" / "index.html").is_file()


def trained(run: Run, cell: str) -> list[dict[str, Any]]:
    columns = run.cells[cell].step_columns("rank", "step", "loss", "accuracy", "synchronised")
    return columns.sort("rank", "step").to_dicts()
