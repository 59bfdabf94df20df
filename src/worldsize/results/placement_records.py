"""Where the workers of a cell ran: as they were placed, and as each process found itself."""

from pydantic import Field

from worldsize.config import MAX_WORKERS
from worldsize.results.base import Record


class Placement(Record):
    """Where the workers of a cell run."""

    processes: int = Field(ge=1, le=MAX_WORKERS)
    """Operating-system processes; fewer than the world size where one process drives several workers."""
    threads_per_worker: int
    cores: tuple[tuple[int, ...], ...]
    """The cores of each worker, by rank."""
    oversubscribed: bool
    """More threads on a node than `room_cores`: the speed-up is withheld (method.md §8)."""
    on_siblings: tuple[int, ...] = ()
    """The workers with a thread on a sibling: another logical CPU of a physical core that is given already."""
    room_cores: float | None = None
    """min(physical cores, CPU quota) of a node, as far as workers may use them; None in older runs."""
    device: str
    """`cpu` or `cuda`."""
    backend: str
    """gloo or nccl: what carries the collectives, if there are any."""


class RankPlace(Record):
    """Where one rank ran."""

    host: str
    cores: tuple[int, ...]
    """Cores that it was given."""
    interface: str | None = None
    """The network interface that was named to the backend (GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME), if any was."""
    threads: int | None = None
    """Compute threads of a metered process, as torch counts them; None where the placement says it."""
