"""Which collective is timed next, at which size: decided from the samples so far, within a budget (method.md §5).

Nothing here starts a worker or looks at a clock of its own: whoever asks the ranks hands in how, so that the parent of
a job and rank 0 of a group that others have started decide alike.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from worldsize.analysis.bandwidth import call_s, median_call
from worldsize.analysis.statistics import half_width
from worldsize.results.comm_records import CommSample
from worldsize.results.records import Estimate

SAMPLE_S = 0.05
"""One sample lasts about this long: the calls within it are back to back, so that its start and end weigh little, and
so does what a link may send at once after a pause."""
SHORT_SAMPLES_S = (0.025, 0.01)
"""The same where the budget permits no longer ones."""
MAX_CALLS = 200
MIN_SAMPLES = 7
"""Of each size, before any gets more because it varies: the interval of the median of three is luck."""
MIN_SIZES = 3
"""Sizes of a collective that a cost model needs."""
PLANNED = 0.85
"""Share of the time left that the samples of all sizes may take by their quickest calls: the others take longer."""
ENOUGH = 2 / 3
"""Share of the calls that a sample should have from which on it is one; with fewer, start and end weigh too much."""
DISTURBED = 1.5
"""So many times as long as a first call can take by the next smaller size, it was disturbed."""
TRIES = 3
"""Samples in one turn of a size until one has enough calls."""
STALE = 1.1
"""So many times the samples make an interval anew: of very many samples that takes longer than one more of them."""
WIDEST = 0.25
"""Share of the sizes that get one more sample at a time: in a row, samples of one size would not be independent."""


class Case(NamedTuple):
    """One collective at one size."""

    collective: str
    size_bytes: int


Together = Sequence[CommSample]
"""One sample, as each rank saw it."""


class Ask(Protocol):
    """Lets all ranks take one sample."""

    def __call__(self, case: Case, *, calls: int, block: int) -> Together:
        """So many calls back to back; the ranks align their clocks anew where the block is a new one."""


@dataclass(eq=False)
class Known:
    """What is known of one case."""

    case: Case
    samples: list[Together] = field(default_factory=list)
    calls: int | None = None
    """Calls of each of its samples, once that is settled; until then samples are trials."""
    quickest_s: float = math.inf
    """Of one call: a disturbed one would make samples short."""
    around_s: float = 0.0
    """What the last sample took beside its calls."""
    _trial: Together | None = None
    _estimate: tuple[int, Estimate] | None = None

    def wanted_calls(self, sample_s: float) -> int:
        """How many calls make a sample of this length."""
        return self.calls or max(1, min(MAX_CALLS, round(sample_s / self.quickest_s)))

    def expected_s(self, sample_s: float) -> float:
        """How long its next sample takes."""
        return self.wanted_calls(sample_s) * self.quickest_s + self.around_s

    def note(self, together: Together, took_s: float) -> None:
        """Take a sample in, or a trial while the number of calls is not settled."""
        each_s = call_s(together)
        self.quickest_s = min(self.quickest_s, each_s)
        self.around_s = max(0.0, took_s - together[0].calls * each_s)
        if self.calls is None:
            self._trial = together
        else:
            self.samples.append(together)

    def settle(self, sample_s: float) -> None:
        """Where the last trial had enough calls for a sample of this length, it is the first sample."""
        if self.calls is None and self._trial is not None:
            made = self._trial[0].calls
            if made >= ENOUGH * self.wanted_calls(sample_s):
                self.calls, self.samples = made, [self._trial]

    @property
    def kept(self) -> list[Together]:
        """Its samples; the last trial where there was no time for any."""
        return self.samples or ([] if self._trial is None else [self._trial])

    @property
    def time_s(self) -> Estimate:
        """Time per call, of about all samples so far; there must be a sample or a trial."""
        kept = self.kept
        if self._estimate is None or len(kept) > STALE * self._estimate[0]:
            self._estimate = len(kept), median_call([call_s(each) for each in kept])
        return self._estimate[1]

    @property
    def half_width(self) -> float:
        """Half of the interval as a share of the time; infinite without an interval."""
        width = half_width(self.time_s)
        return math.inf if width is None else width


def coarse_to_fine(count: int) -> list[int]:
    """The numbers below `count`: the last, the first, then the middle of each gap, the wide ones first."""
    order, gaps = [count - 1, 0], [(0, count - 1)]
    for low, high in gaps:
        middle = (low + high) // 2
        if low < middle < high:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return list(dict.fromkeys(order)) if count else []


class Sampling:
    """Takes samples until the budget is used up, or each size has as many as were asked for.

    First one call of each size, the small ones first, which tell how long the larger ones will take; one that would not
    end in time is left out, with all above it. Then rounds over all sizes, with shorter samples and, if that is not
    enough, fewer sizes where there is little time. Then, in a budget without a number of samples, those whose interval
    is relatively widest, again and again.
    """

    def __init__(
        self,
        cases: Iterable[Case],
        ask: Ask,
        *,
        samples: int | None,
        left_s: Callable[[], float],
        heard: Callable[["Sampling"], None] = lambda sampling: None,
    ) -> None:
        """`left_s` is the time that is left, infinite without a budget; `heard` is told after each sample."""
        self._given = tuple(cases)
        self.cases = sorted(self._given, key=lambda case: case.size_bytes)
        self.known: dict[Case, Known] = {}
        self.samples = samples
        self.left_s = left_s
        self.phase = "one call of each size"
        self.thinned: set[Case] = set()
        """Cases that were called once and given up, so that the others have enough samples."""
        self.rounds = 0
        """Rounds that are over."""
        self.widening = False
        """Whether the rounds over all sizes are over."""
        self._ask, self._heard = ask, heard
        self._sample_s = SAMPLE_S
        self._last: Known | None = None

    @property
    def left_out(self) -> list[Case]:
        """The cases that there was no time for."""
        return [case for case in self.cases if case not in self.known or case in self.thinned]

    @property
    def timed(self) -> list[Known]:
        """What is known of the cases that are timed."""
        return [known for case, known in self.known.items() if case not in self.thinned]

    @property
    def widest(self) -> Known | None:
        """The case that is known least well; None while nothing is known."""
        return max(self.timed, key=lambda known: known.half_width, default=None)

    def run(self) -> list[Together]:
        """Take all samples; returns those of one case after those of the other, as the cases were given."""
        for case in self.cases:
            self._first_call(case)
        self._over()
        self._in_rounds(self.samples or MIN_SAMPLES)
        if self.samples is None:
            self._widest_first()
        absent = set(self.left_out)
        return [together for case in self._given if case not in absent for together in self.known[case].kept]

    def _first_call(self, case: Case) -> None:
        """Call a size once, if there is time; once more if that was disturbed, for a sample would have few calls."""
        expected_s = self._first_expected_s(case)
        if expected_s <= self.left_s():
            known = self.known.setdefault(case, Known(case))
            self._sample(known, calls=1)
            if known.quickest_s > DISTURBED * expected_s:
                self._sample(known, calls=1)

    def _first_expected_s(self, case: Case) -> float:
        """At most so much longer than the next smaller size as it is larger; 0 for the smallest."""
        smaller = [each for each in self.cases if each.collective == case.collective and each < case]
        if not smaller:
            return 0.0
        known = self.known.get(smaller[-1])
        if known is None:
            return math.inf
        return (known.quickest_s + known.around_s) * case.size_bytes / known.case.size_bytes

    def _in_rounds(self, samples: int) -> None:
        """So many samples of each case, as far as there is time."""
        chosen = self._settle(samples)
        for number in range(1, samples + 1):
            self.phase = f"round {number} of {samples}"
            for known in chosen:
                for _ in range(TRIES):
                    if len(known.samples) < number and self._fits(known):
                        self._sample(known)
            self._over()

    def _settle(self, samples: int) -> list[Known]:
        """Choose how long a sample is, and which cases get so many; a first call that is as long is one already."""
        room_s = PLANNED * self.left_s()
        for self._sample_s in (SAMPLE_S, *SHORT_SAMPLES_S):
            if sum(self._cost_s(known, samples) for known in self.known.values()) <= room_s:
                break
        for known in self.known.values():
            known.settle(self._sample_s)
        chosen = self._affordable(samples, room_s)
        self._thin_out(chosen)
        return chosen

    def _affordable(self, samples: int, room_s: float) -> list[Known]:
        """The cases that there is time for."""
        chosen = set()
        for case in self._by_use():
            cost_s = self._cost_s(self.known[case], samples)
            if cost_s <= room_s:
                chosen.add(case)
                room_s -= cost_s
        return [known for case, known in self.known.items() if case in chosen]

    def _by_use(self) -> list[Case]:
        """The known cases: of each collective the largest, the smallest, then those between.

        Those of which one call is a sample come last: they have one already, and it is a long one.
        """
        ranks: dict[Case, int] = {}
        for name in dict.fromkeys(case.collective for case in self._given):
            sizes = [case for case in self.known if case.collective == name]
            ranks |= {sizes[index]: rank for rank, index in enumerate(coarse_to_fine(len(sizes)))}
        return sorted(ranks, key=lambda case: (self.known[case].wanted_calls(self._sample_s) == 1, ranks[case]))

    def _thin_out(self, chosen: Sequence[Known]) -> None:
        """Give up what there is no time for, where enough sizes are left: one short first call says nothing."""
        kept = [known for known in self.known.values() if known in chosen or known.samples]
        counts = Counter(known.case.collective for known in kept)
        self.thinned = {
            case for case, known in self.known.items() if known not in kept and counts[case.collective] >= MIN_SIZES
        }

    def _cost_s(self, known: Known, samples: int) -> float:
        """What the samples of a case that are still to be taken cost."""
        return (samples - (known.wanted_calls(self._sample_s) == 1)) * known.expected_s(self._sample_s)

    def _widest_first(self) -> None:
        """One more sample of those that are known least well, until there is no time for any."""
        self.phase, self.widening = "the widest intervals", True
        while self.known:
            open_ones = [known for known in self.timed if self._fits(known)]
            if not open_ones:
                return
            open_ones.sort(key=self._need, reverse=True)
            for known in open_ones[: math.ceil(WIDEST * len(open_ones))]:
                if self._fits(known):
                    self._sample(known)
            self._over()

    def _need(self, known: Known) -> tuple[bool, bool, float]:
        """The larger, the sooner it gets another sample: never twice in a row; first where few may only seem sure."""
        return known is not self._last, len(known.samples) < MIN_SAMPLES, known.half_width

    def _fits(self, known: Known) -> bool:
        return known.expected_s(self._sample_s) <= self.left_s()

    def _sample(self, known: Known, calls: int | None = None) -> None:
        before_s = self.left_s()
        together = self._ask(known.case, calls=calls or known.wanted_calls(self._sample_s), block=self.rounds)
        after_s = self.left_s()
        self._last = known
        known.note(together, before_s - after_s if math.isfinite(after_s) else 0.0)
        if calls is None:
            known.settle(self._sample_s)
        self._heard(self)

    def _over(self) -> None:
        self.rounds += 1
        self._heard(self)
