"""Ranks that work longer than their peers: named, with the part of the step, the place, and why if that was seen."""

from collections.abc import Iterator

from worldsize.analysis.activity import USES, Use
from worldsize.analysis.advice import traces
from worldsize.analysis.advice.commands import focused
from worldsize.analysis.advice.finding import Evidence, at_most, cell_name, ms, ratio_of_two, time_of
from worldsize.analysis.advice.peers import SlowRanks
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, ranks_of
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import estimate_text

WORDS = {
    "data_wait_s": "data wait",
    "copy_s": "copies",
    "forward_s": "forward",
    "backward_s": "backward",
    "optimizer_s": "optimizer",
    "other_s": "the rest of the step",
}
SLOWER_CORES = 1.1
"""Ratio of the short computation from which on cores are said to be slower; equal ones differ by a few percent."""


def slow_rank(seen: Seen) -> Iterator[Candidate]:
    """Ranks that surely work longer than their peers."""
    for cell in seen.several:
        found = seen.slow_ranks(cell)
        if found is None:
            continue
        who, part, one = named(found.ranks), WORDS[found.part], ranks_of(cell) == 2
        others = "the other one" if one else "the others"
        place = place_of(cell, found.ranks[0])
        at = f" ({place})" if place else ""
        yield candidate(
            "slow-rank",
            cell,
            finding=f"{who}{at} of {cell_name(cell)} {_works(found)} {ms(found.more)} longer per step than {others}, "
            f"{ms(found.part_more)} of it in {part}, and {others} {'waits' if one else 'wait'}.",
            evidence=(
                time_of(f"{part.capitalize()} per step, {who.lower()}", found.own),
                time_of(f"{part.capitalize()} per step, {others}", found.others),
                *_behind(found),
            ),
            cause=_why(found) + traces.on_slow_ranks(cell, found.ranks, found.more.value),
            next_step=_next_step(cell, found),
            command=_command(seen, cell, found),
            gain=at_most(
                found.gain,
                f"Step ÷ (step − what {who.lower()} works longer); assumes ranks that all work as long as {others}.",
            ),
            leads=found.explains,
        )


def named(ranks: tuple[int, ...]) -> str:
    """`Rank 1`, `Ranks 2 and 3`, `Ranks 4, 5, 6 and 7`."""
    *most, last = map(str, ranks)
    return f"Ranks {', '.join(most)} and {last}" if most else f"Rank {last}"


def _works(found: SlowRanks) -> str:
    return "works" if len(found.ranks) == 1 else "work"


def place_of(cell: CellAnalysis, rank: int) -> str:
    """`host, cores 2 and 3`; empty where it is not known."""
    places = cell.record.ranks if cell.record else []
    if rank >= len(places):
        return ""
    cores = sorted(places[rank].cores)
    if not cores:
        return places[rank].host
    if len(cores) == 1:
        return f"{places[rank].host}, core {cores[0]}"
    listed = f"{cores[0]} to {cores[-1]}" if cores[-1] - cores[0] == len(cores) - 1 else ", ".join(map(str, cores))
    return f"{places[rank].host}, cores {listed}"


def _behind(found: SlowRanks) -> Iterator[Evidence]:
    """What was seen of the cause."""
    if found.spent is not None:
        yield time_of(USES[found.spent.use], found.spent.seconds)
    if found.cores is not None:
        yield ratio_of_two("A short computation beside the steps, there ÷ on the others", found.cores)


def _cores_are_slower(found: SlowRanks) -> bool | None:
    """None where that was not measured, or is not sure."""
    cores = found.cores
    if cores is None or cores.low is None or cores.high is None:
        return None
    if cores.low > 1 and cores.value > SLOWER_CORES:
        return True
    return False if cores.value <= SLOWER_CORES else None


def _use(found: SlowRanks) -> Use | None:
    return found.spent.use if found.spent else None


def _why(found: SlowRanks) -> str:
    """Only what was seen: other work on its cores, slower cores, garbage, idleness, more computing."""
    use, slower, data = _use(found), _cores_are_slower(found), found.part == "data_wait_s"
    of_it = ms(found.spent.seconds) if found.spent else ""
    if use == "queueing":
        return f"Its cores are busy with something else: of this time, it waits {of_it} for a core."
    if use == "collecting":
        return f"Python collects garbage in {of_it} of this time."
    if use == "idle":
        who = "it, or the process that makes its batches," if data else "it"
        told = f"In {of_it} of this time it neither computes nor waits for a core: {who} sleeps or waits, such as for "
        return f"{told}{_waited_for(found)}."
    computes = f" In {of_it} of this time it computes." if use else ""
    if data:
        late = "Its batches come later than those of the others: its storage, its loader, or what its samples are."
        return late + computes
    if slower is None:
        return f"Whether its cores are slower, or it does more, was not measured.{computes}"
    assert found.cores is not None
    more = "It does more" if use else "It does more, or waits for something"
    what = "Its cores are slower or busier" if slower else more
    same = f"a short computation that is the same everywhere takes {estimate_text(found.cores)} times as long there"
    return f"{what}: {same}.{computes}"


def _waited_for(found: SlowRanks) -> str:
    assert found.spent is not None
    faults = found.spent.major_faults
    paged = f"its memory, of which {faults:.1f} pages per step come from a disk" if faults >= 1 else ""
    return paged or "a disk, a lock, the network or another process"


def _next_step(cell: CellAnalysis, found: SlowRanks) -> str:
    rank, use = found.ranks[0], _use(found)
    place = place_of(cell, rank)
    at = f" ({place})" if place else ""
    if use == "queueing" or (_cores_are_slower(found) and found.part != "data_wait_s"):
        return f"Look at what else runs there{at}, and at the clock of these cores; or give rank {rank} other cores."
    if use == "collecting":
        return f"Call gc.freeze() on rank {rank}{at} once everything is built, or keep fewer objects there."
    if found.part == "data_wait_s":
        return f"Look at where rank {rank}{at} reads its data from, and how long it takes to make a batch there."
    does = "waits for" if use == "idle" else "does"
    return (
        f"Look at what rank {rank}{at} alone {does} in its {_short(found.part)}: a branch on the rank, longer samples."
    )


def _command(seen: Seen, cell: CellAnalysis, found: SlowRanks) -> str | None:
    """A trace, where operators may tell more than is known: not of waiting, of garbage, nor of other work."""
    computes = _use(found) in ("computing", None) and found.part not in ("data_wait_s", "other_s")
    return focused(seen.settings, cell, profile=True) if computes and cell.profile is None else None


def _short(part: str) -> str:
    return "loop" if part == "other_s" else WORDS[part]
