"""A rank that is far slower than its like is on the wrong interface; one beside rank 0 is no measure for the others."""

from dataclasses import dataclass

import pytest

from worldsize.analysis.comm_report import slow_peers
from worldsize.results.comm_records import CommRecord, PeerRate
from worldsize.results.records import Placement, RankPlace


@dataclass(frozen=True)
class Peer:
    rate: float
    beside: bool = False


def found(*peers: Peer) -> str | None:
    rates = [
        PeerRate(
            rank=rank,
            place=RankPlace(host=f"h{rank}", cores=(0,), interface=f"eth{rank}"),
            bytes_per_s=peer.rate,
            beside_first=peer.beside,
        )
        for rank, peer in enumerate(peers, start=1)
    ]
    placement = Placement(
        processes=4, threads_per_worker=1, cores=(), oversubscribed=False, device="cpu", backend="gloo"
    )
    record = CommRecord.model_construct(world_size=len(peers) + 1, placement=placement, ranks=[], peers=rates)
    warning = slow_peers(record)
    return None if warning is None else warning.message


def test_names_the_rank_its_host_and_its_interface() -> None:
    message = found(Peer(1.0e8), Peer(1.1e8), Peer(1.0e7))
    assert message is not None
    assert "rank 3 (host h3, interface eth3) 0.0100 GB/s; the others have 0.105 GB/s" in message
    assert "GLOO_SOCKET_IFNAME" in message


@pytest.mark.parametrize(
    "peers",
    [
        (),
        (Peer(1e8),),
        (Peer(1e8), Peer(0.6e8), Peer(1.4e8)),
        (Peer(5e9, beside=True), Peer(1e8), Peer(1.1e8)),
    ],
)
def test_silent_where_none_is_far_below_its_like(peers: tuple[Peer, ...]) -> None:
    assert found(*peers) is None


def test_a_neighbour_of_rank_0_is_compared_with_nobody_else() -> None:
    message = found(Peer(5e9, beside=True), Peer(1e8), Peer(1e7), Peer(1e8))
    assert message is not None
    assert "rank 3" in message
    assert "rank 2" not in message
