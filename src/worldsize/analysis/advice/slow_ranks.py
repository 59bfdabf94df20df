"""Ranks that work longer than their peers: named, with the part of the step, the place, and why if that was seen."""

from collections.abc import Iterator
from typing import Literal

from worldsize.analysis.activity import USES
from worldsize.analysis.advice import traces
from worldsize.analysis.advice.finding import PART_WORDS, Evidence, at_most, cell_name, ms, ratio_of_two, time_of
from worldsize.analysis.advice.peers import SlowRanks
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, ranks_of, ranks_text
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import focused
from worldsize.analysis.numbers import estimate_text

SLOWER_CORES = 1.1
"""Ratio of the short computation from which on cores are said to be slower; equal ones differ by a few percent."""


def slow_rank(seen: Seen) -> Iterator[Candidate]:
    """Ranks that significantly work longer than their peers, and not only in long steps."""
    for cell in seen.several:
        found = seen.slow_ranks(cell)
        if found is None or seen.stalled_ranks(cell):  # `periodic-stall` names these
            continue
        who, part, one = ranks_text(found.ranks), PART_WORDS[found.part], ranks_of(cell) == 2
        others = "the other one" if one else "the others"
        larger = _larger_batches(cell, found)
        takes = "takes" if len(found.ranks) == 1 else "take"
        yield candidate(
            "slow-rank",
            cell,
            finding=f"{who.capitalize()}{_at(cell, found)} of {cell_name(cell)} {takes} {ms(found.more)} longer per "
            f"step than {others}, {ms(found.part_more)} of it in {part}, and {others} {'waits' if one else 'wait'}.",
            evidence=(
                time_of(f"{part.capitalize()} per step, {who}", found.own),
                time_of(f"{part.capitalize()} per step, {others}", found.others),
                *_behind(cell, found),
            ),
            cause=larger or _why(found) + traces.on_slow_ranks(cell, found.ranks, found.more.value),
            next_step=EVEN if larger else _next_step(seen, cell, found),
            command=focused(seen.settings, cell, profile=True) if _tells_more(seen, cell, found) else None,
            gain=None  # a shorter step of fewer samples
            if larger
            else at_most(
                found.gain,
                f"Step ÷ (step − what {who} {takes} longer); assumes ranks that all take as long as {others}.",
            ),
            leads=found.explains,
        )


EVEN = "Give all ranks batches of one size: as many samples in all, a shorter step."


def _larger_batches(cell: CellAnalysis, found: SlowRanks) -> str:
    """That the slow ranks have more samples, if they do."""
    batches = cell.batches
    if batches is None or not batches.unlike:
        return ""
    slow = [batches.by_rank[rank] for rank in found.ranks]
    others = [samples for rank, samples in enumerate(batches.by_rank) if rank not in found.ranks]
    return f"The batches there are larger: {batches.text} samples a step." if min(slow) > max(others) else ""


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


def _at(cell: CellAnalysis, found: SlowRanks) -> str:
    """Where the slow rank is; of several the evidence says it."""
    place = place_of(cell, found.ranks[0]) if len(found.ranks) == 1 else ""
    return f" ({place})" if place else ""


def _behind(cell: CellAnalysis, found: SlowRanks) -> Iterator[Evidence]:
    """What was seen of the cause, and where several ranks are."""
    if found.spent is not None:
        yield time_of(USES[found.spent.use], found.spent.seconds)
    if found.cores is not None:
        yield ratio_of_two("A short computation beside the steps, there ÷ on the others", found.cores)
    places = [f"rank {rank}: {place}" for rank in found.ranks if (place := place_of(cell, rank))]
    if len(places) > 1:
        yield Evidence("Where", "; ".join(places))


def _cores_are_slower(found: SlowRanks) -> bool | None:
    """None where that was not measured, or is not sure."""
    cores = found.cores
    if cores is None or cores.low is None or cores.high is None:
        return None
    if cores.low > 1 and cores.value > SLOWER_CORES:
        return True
    return False if cores.value <= SLOWER_CORES else None


Cause = Literal["queueing", "slower cores", "collecting", "idle", "data", "computing", "unknown"]


def _cause(found: SlowRanks) -> Cause:
    """Only what was seen."""
    use = found.spent.use if found.spent else None
    if use == "queueing":
        return "queueing"
    data = found.part == "data_wait_s"
    if not data and _cores_are_slower(found):
        return "slower cores"
    if use in ("collecting", "idle"):
        return use
    return "data" if data else "computing" if use else "unknown"


def _why(found: SlowRanks) -> str:
    cause, of_it = _cause(found), ms(found.spent.seconds) if found.spent else ""
    batches = "the batches come from another process, a disk or the network"
    waits = f"it is a sleep, or waiting for a disk, a lock, the network or another process{_paged(found)}"
    idle = batches if found.part == "data_wait_s" else waits
    seen = {
        "queueing": f"Other work uses the cores there: {of_it} of this time is waiting for a core.",
        "collecting": f"In {of_it} of this time Python collects garbage there.",
        "idle": f"In {of_it} of this time nothing is computed there, and no core is waited for: {idle}.",
        "data": "The batches come later there: the storage, the loader, or what the samples are."
        if found.others.value > 0
        else "Batches are fetched there alone: the others do not wait for any.",
    }
    return seen.get(cause) or _of_cores(found, cause)


def _of_cores(found: SlowRanks, cause: Cause) -> str:
    """Whether they are slower, or more is done there, as far as the short computation tells."""
    computes = f" In {ms(found.spent.seconds)} of this time the training thread computes." if found.spent else ""
    if found.cores is None:
        return f"Whether the cores there are slower, or more is done there, was not measured.{computes}"
    same = f"a short computation that is the same everywhere takes {estimate_text(found.cores)} times as long"
    if cause == "slower cores":
        return f"The cores there are slower or busier: {same}.{computes}"
    if _cores_are_slower(found) is None:
        return f"Whether the cores there are slower is not sure: {same}.{computes}"
    return f"More is done there{'' if computes else ', or something is waited for'}: {same}.{computes}"


def _paged(found: SlowRanks) -> str:
    faults = found.spent.major_faults if found.spent else 0.0
    return f"; {faults:.1f} pages per step come from a disk" if faults >= 1 else ""


def _next_step(seen: Seen, cell: CellAnalysis, found: SlowRanks) -> str:
    cause, who = _cause(found), f"{ranks_text(found.ranks)}{_at(cell, found)}"
    if cause in ("queueing", "slower cores"):
        return f"Look at what else runs on the cores of {who}, and at their clock; or give other cores."
    if cause == "collecting":
        return f"Call gc.freeze() on {who} once everything is built, or keep fewer objects there."
    if found.part == "data_wait_s":
        return f"Look at where the data of {who} comes from, and how long it takes to make a batch there."
    where = "the loop" if found.part == "other_s" else PART_WORDS[found.part]
    if cause == "idle":
        return f"Look at what {who} alone must wait for in {where}."
    traced = " A trace says which operators take longer." if _tells_more(seen, cell, found) else ""
    return f"Look at what only {who} must do in {where}: code that depends on the rank, or longer samples.{traced}"


def _tells_more(seen: Seen, cell: CellAnalysis, found: SlowRanks) -> bool:
    """Whether a trace may: not of waiting, of garbage, nor of other work."""
    computes = _cause(found) in ("computing", "unknown") and found.part not in ("data_wait_s", "other_s")
    return computes and traces.can_be_traced(seen, cell)
