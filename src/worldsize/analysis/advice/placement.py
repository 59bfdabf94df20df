"""Where the workers run: more threads than physical cores, or than a quota permits."""

from collections.abc import Iterator

from worldsize.analysis.advice.finding import Evidence, cell_name, count_of, several
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, on_one_host, ranks_of
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import study_command
from worldsize.results.records import Placement


def oversubscribed(seen: Seen) -> Iterator[Candidate]:
    """Cells whose threads take turns on the cores, so that their times say nothing of scaling (method.md §8)."""
    for cell in seen.analysis.cells:
        placement = cell.record.placement if cell.record else None
        if placement is None or not placement.oversubscribed or cell.summary is None:
            continue
        room, threads, workers = _room(seen, cell), placement.threads_per_worker, _together(cell)
        where = "" if workers == cell.world_size else " of one node"
        next_step, command = _remedy(seen, cell, room)
        yield candidate(
            "oversubscribed",
            cell,
            finding=f"{cell_name(cell)} runs {workers * threads} threads on {several(room, 'core')}{where}.",
            evidence=(
                count_of("Threads per worker", threads),
                count_of("Cores of one node" if where else "Cores of this machine", room),
                *_shared(placement),
            ),
            cause="Its workers take turns on the cores: its step is that of a machine which is too small for it.",
            next_step=next_step,
            command=command,
            everywhere=seen.headline is None,  # then there is no answer for this reason
            first=_hides_the_answer(seen, cell) and not seen.settings.allow_oversubscribed,  # else they know it
        )


def _hides_the_answer(seen: Seen, cell: CellAnalysis) -> bool:
    """Whether there is no configuration of several workers to judge, for this reason."""
    return seen.headline is None or cell is seen.headline.fastest


def _together(cell: CellAnalysis) -> int:
    """Workers of a cell on the host that has most of them."""
    return on_one_host(cell) if ranks_of(cell) == cell.world_size else cell.world_size


def _shared(placement: Placement) -> Iterator[Evidence]:
    if placement.on_siblings:
        yield count_of("Workers on second threads of cores that others have", len(placement.on_siblings))


def _room(seen: Seen, cell: CellAnalysis) -> float:
    """Cores of the node on which the workers of a cell take turns, as far as a quota permits (method.md §8)."""
    if cell.record and cell.record.placement and (room := cell.record.placement.room_cores):
        return int(room) if room.is_integer() else room
    if _together(cell) == cell.world_size or not (cell.record and cell.record.placement):
        return seen.analysis.record.provenance.host.room_cores
    return len({core for own in cell.record.placement.cores for core in own})


def _remedy(seen: Seen, cell: CellAnalysis, room: float) -> tuple[str, str | None]:
    cores = int(room)
    if not cores:
        return (
            "Raise the CPU quota of this container to whole cores: here not even one thread can go on all the time.",
            None,
        )
    sizes = sorted({each.world_size for each in seen.analysis.cells})
    together = max(_together(each) for each in seen.analysis.cells)
    threads = cores // together
    if threads:
        return (
            f"Give each worker {several(threads, 'thread')}, the baseline included.",
            study_command(seen.settings, threads_per_worker=threads, world_sizes=tuple(sizes)),
        )
    if _together(cell) < cell.world_size:
        return f"Use more nodes, with at most {several(cores, 'worker')} on each.", None
    whole = seen.settings.global_batch or 0  # a global batch must be the same for each worker
    most = max(size for size in range(1, cores + 1) if whole % size == 0)
    if most == 1:
        return "Use a machine with more cores: no smaller number of workers fits this one and divides the batch.", None
    fitting = tuple(size for size in sizes if size < most and whole % size == 0)
    return (
        f"Measure at most {several(most, 'worker')} here, each with one thread, or use a machine with more cores.",
        study_command(seen.settings, threads_per_worker=1, world_sizes=(*fitting, most)),
    )
