"""Whether a rank is on the wrong network interface: it then reaches rank 0 far more slowly than the others do."""

from statistics import median

from worldsize.analysis.numbers import number_text
from worldsize.results.comm_records import CommRecord, PeerRate
from worldsize.results.records import WarningRecord

FAR_BELOW = 0.3
"""Share of the others' rate below which a rank is named: no noise of a machine makes the best of three so slow."""


def slow_peers(record: CommRecord) -> WarningRecord | None:
    """The warning `slow-interface`, if one rank or more are far slower than the others that are as far from rank 0."""
    slow = [peer for peer in _alike(record.peers) if _far_below(peer, _alike(record.peers))]
    if not slow:
        return None
    rest = median(peer.bytes_per_s for peer in _alike(record.peers) if peer not in slow)
    named = "; ".join(f"rank {peer.rank} ({_where(peer)}) {number_text(peer.bytes_per_s / 1e9)} GB/s" for peer in slow)
    return WarningRecord(
        code="slow-interface",
        message=(
            f"to rank 0 go: {named}; the others have {number_text(rest / 1e9)} GB/s\n"
            "Likely the wrong network interface. Name another one on that host: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME."
        ),
    )


def _alike(peers: list[PeerRate]) -> list[PeerRate]:
    """Those on other hosts than rank 0, where there are any: a neighbour on the same host is no measure for them."""
    away = [peer for peer in peers if not peer.beside_first]
    return away or peers


def _far_below(peer: PeerRate, peers: list[PeerRate]) -> bool:
    others = [each.bytes_per_s for each in peers if each is not peer]
    return bool(others) and peer.bytes_per_s < FAR_BELOW * median(others)


def _where(peer: PeerRate) -> str:
    return f"host {peer.place.host}, interface {peer.place.interface or 'not named'}"
