"""When backward has each gradient by itself: what strategies and buckets that were not run could send, and when."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from torch import Tensor, nn

from worldsize.measure.clocks import Mark
from worldsize.measure.timeline import Timeline
from worldsize.results.training_records import GradientTimes
from worldsize.strategies.channel import payload_bytes

MOST_STEPS = 9
"""Steps that are looked at in a launch. A hook takes 0.8 µs a gradient, hanging and removing it 4.4 µs (medians of 300
backwards of 200 gradients, AMD EPYC), so it is not all of them."""
FIRST_STEPS = 2
"""Steps before these: they touch memory for the first time."""


class _Seen(NamedTuple):
    """The marks of one backward."""

    begin: Mark
    gradients: list[Mark | None]


class GradientWatch:
    """Marks each gradient of some steps in which nothing travels: messages on the same cores would move them."""

    def __init__(self, parameters: Sequence[nn.Parameter], timeline: Timeline) -> None:
        self.parameters = parameters
        self.timeline = timeline
        self._steps = 0
        self._seen: list[list[float]] = []
        self._pending: list[_Seen] = []

    @contextmanager
    def watched(self, *, alone: bool) -> Iterator[None]:
        """A backward within; `alone` says that nothing of it travels."""
        if not alone or not self.timeline.watching or self._steps >= FIRST_STEPS + MOST_STEPS:
            yield
            return
        self._steps += 1
        if self._steps <= FIRST_STEPS:
            yield
            return
        clock = self.timeline.clock
        marks: list[Mark | None] = [None] * len(self.parameters)
        hooks = [p.register_post_accumulate_grad_hook(_note(marks, i, clock.mark)) for i, p in self._numbered()]
        begin = clock.mark()
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        self._pending.append(_Seen(begin, marks))

    def _numbered(self) -> Iterator[tuple[int, nn.Parameter]]:
        yield from enumerate(self.parameters)

    def found(self) -> GradientTimes | None:
        """Medians over the steps so far; None where no step is new. Waits for the device: not within a step."""
        if not self._pending:
            return None
        read = self.timeline.clock.read
        for seen in self._pending:
            begin = read(seen.begin)
            times = [None if mark is None else read(mark) - begin for mark in seen.gradients]
            last = max((time for time in times if time is not None), default=0)
            if last > 0:
                self._seen.append([1.0 if time is None else time / last for time in times])
        self._pending = []
        if not self._seen:
            return None
        shares = (statistics.median(column) for column in zip(*self._seen, strict=True))
        return GradientTimes(
            sizes_bytes=tuple(payload_bytes(parameter) for parameter in self.parameters),
            ready_share=tuple(round(share, 5) for share in shares),
            steps=len(self._seen),
        )


def _note(marks: list[Mark | None], number: int, mark: Callable[[], Mark]) -> Callable[[Tensor], None]:
    def ready(_: Tensor) -> None:
        marks[number] = mark()

    return ready
