"""The interface of each rank is recorded, and told where its link is far slower than the others (needs root)."""

from pathlib import Path

from nodes_apart import nodes_apart
from rights import needs_rights
from worldsize.analysis.comm_report import slow_peers
from worldsize.config import CommSettings
from worldsize.study.comm import run_comm

pytestmark = needs_rights


def test_a_link_that_is_far_slower_than_the_others_is_named(tmp_path: Path) -> None:
    settings = CommSettings(world_size=4, top_bytes=2**14, samples=1, collectives=("all-reduce",))
    with nodes_apart(200_000_000, 200_000_000, 10_000_000, 200_000_000) as cluster:
        record = run_comm(settings, tmp_path, ["test"], cluster=cluster)
    assert [peer.rank for peer in record.peers] == [1, 2, 3]
    assert {peer.place.interface for peer in record.peers} == {"eth0"}
    # 200 Mbit/s is 25 MB/s, of which frames leave 24; no rate may exceed what the link lets through.
    assert all(peer.bytes_per_s < 25e6 for peer in record.peers)
    warning = slow_peers(record)
    assert warning is not None
    assert warning.code == "slow-interface"
    assert "rank 2 (" in warning.message
    assert "rank 1 (" not in warning.message
    assert "rank 3 (" not in warning.message
