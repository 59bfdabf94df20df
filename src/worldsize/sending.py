"""What a step of each strategy sends, how large and when: by rule, so that also what was never run can be predicted.

Pure arithmetic on sizes, without torch. Strategies that arrange buckets do it by the same rules (method.md §14).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MIB = 2**20
DDP_FIRST_BYTES = 1 * MIB
"""DDP closes its first bucket at this size, at any cap (torch.distributed._DEFAULT_FIRST_BUCKET_BYTES)."""
DDP_CAP_BYTES = 25 * MIB
"""DDP's default cap of the others."""
DDP_CAPS_BYTES = tuple(cap * MIB for cap in (1, 2, 3, 4, 6, 8, 12, 18, 25))
"""Caps that `--bucket-mb auto` chooses among for DDP."""
DEFAULT_BUCKET_BYTES = 5 * 10**6
"""Of `bucketed`: small enough that the last bucket, which nothing hides, is short; large enough that latency weighs
little."""

BEFORE_FORWARD = -math.inf
AFTER_BACKWARD = math.inf

Cost = Callable[[int], float]
"""Seconds that a bucket of so many bytes of gradients takes: the α–β model of the link (method.md §5)."""
Messages = Callable[[int], tuple[tuple[str, int], ...]]
"""Bytes of the gradients of a bucket → its messages, one after the other: collective and bytes of each."""
Buckets = int | Cost | None
"""A size in bytes; the link's cost, for the best ones (`auto`); None for the strategy's own."""


@dataclass(frozen=True)
class Gradients:
    """The gradients of the trained parameters, in the model's order."""

    sizes_bytes: tuple[int, ...]
    ready_share: tuple[float, ...]
    """When backward has each: 0 is its begin, 1 its last gradient."""
    buffer_bytes: int = 0
    """Of all buffers (BatchNorm statistics)."""

    @property
    def in_order(self) -> list[int]:
        """Their numbers in the order in which backward has them."""
        return sorted(range(len(self.ready_share)), key=lambda number: self.ready_share[number])


@dataclass(frozen=True)
class Sent:
    """A message of a step."""

    collective: str
    """As `worldsize comm` names it."""
    size_bytes: int
    ready: float
    """When it may be sent, as a share of backward; or BEFORE_FORWARD, AFTER_BACKWARD."""
    blocking: bool
    """Whether the rank computes nothing until it is done."""


HALF = 2
"""A narrow element's share of a gradient's four bytes: fp16 and bf16 have two."""
INT8_BLOCK = 512
"""Elements of an int8 block, which share a scale of four bytes: 0.8 % more on the wire. Smaller blocks would follow
outliers closer, and send more."""
INT8_PIECE = 2**20
"""Elements of a bucket that travel together at most. gloo tells its peer that it may send behind what it sends itself,
so of a large all-to-all the second direction begins when the first has ended; and a piece is summed while the next one
travels."""


def as_they_are(size_bytes: int) -> tuple[tuple[str, int], ...]:
    """An all-reduce of all bytes."""
    return (("all-reduce", size_bytes),)


def halved(size_bytes: int) -> tuple[tuple[str, int], ...]:
    """An all-reduce of elements of two bytes in place of four."""
    return (("all-reduce", size_bytes // HALF),)


def quantised(size_bytes: int) -> tuple[tuple[str, int], ...]:
    """Elements of one byte and the scales of their blocks: of each piece an all-to-all, then an all-gather of means."""
    pieces = int8_pieces(size_bytes // 4)
    packed = int8_bytes(size_bytes // 4) // pieces
    return (("all-to-all", packed), ("all-gather", packed)) * pieces


def in_two(size_bytes: int) -> tuple[tuple[str, int], ...]:
    """Two all-reduces, one after the other, of about half of the bytes each: the thin matrices of a low rank."""
    return (("all-reduce", size_bytes - size_bytes // 2), ("all-reduce", size_bytes // 2))


def int8_bytes(elements: int, ranks: int = 1) -> int:
    """Bytes of so many elements in int8 blocks, each with its scale; every rank's share is of whole blocks."""
    blocks = math.ceil(elements / (INT8_BLOCK * ranks)) * ranks
    return blocks * (INT8_BLOCK + 4)


def int8_pieces(elements: int) -> int:
    """In how many pieces a bucket of so many elements travels."""
    return max(1, math.ceil(elements / INT8_PIECE))


def by_size(sizes: Sequence[int], most_bytes: int) -> list[list[int]]:
    """Numbers of consecutive gradients in groups that are closed once they reach the size; never an empty one."""
    groups: list[list[int]] = [[]]
    held = 0
    for number, size in enumerate(sizes):
        if held >= most_bytes:
            groups.append([])
            held = 0
        groups[-1].append(number)
        held += size
    return groups


def by_cost(sizes: Sequence[int], ready_s: Sequence[float], cost_s: Cost) -> list[list[int]]:
    """The consecutive groups whose last all-reduce ends first, on a link that carries one after the other.

    In the order in which gradients are ready; `ready_s` is when, `cost_s` how long an all-reduce of some bytes takes.
    Exact, by dynamic programming over the ends of the groups:
    end(k) = min over j < k of max(end(j), ready(k)) + cost(j … k).
    """
    total = [0]
    for size in sizes:
        total.append(total[-1] + size)
    ends, starts = [0.0], [0]
    for k in range(1, len(total)):
        candidates = [max(ends[j], ready_s[k - 1]) + cost_s(total[k] - total[j]) for j in range(k)]
        best = min(range(k), key=candidates.__getitem__)
        ends.append(candidates[best])
        starts.append(best)
    groups: list[list[int]] = []
    k = len(sizes)
    while k > 0:
        groups.insert(0, list(range(starts[k], k)))
        k = starts[k]
    return groups


def end_s(groups: Sequence[Sequence[int]], sizes: Sequence[int], ready_s: Sequence[float], cost_s: Cost) -> float:
    """When the last of some consecutive groups has arrived, on a link that carries one after the other."""
    end = ready = 0.0
    for group in groups:
        ready = max([ready, *(ready_s[number] for number in group)])
        end = max(end, ready) + cost_s(sum(sizes[number] for number in group))
    return end


def ddp_groups(sizes: Sequence[int], most_bytes: int | None) -> list[list[int]]:
    """DDP's buckets of gradients in the order given: a cap also replaces its first bucket of 1 MiB."""
    if most_bytes is not None:
        return by_size(sizes, most_bytes)
    first = by_size(sizes, DDP_FIRST_BYTES)[0]
    rest = by_size(sizes[len(first) :], DDP_CAP_BYTES) if len(first) < len(sizes) else []
    return [first, *([len(first) + number for number in group] for group in rest)]


def best_cap(
    sizes: Sequence[int], ready_s: Sequence[float], cost_s: Cost, sent_sizes: Sequence[int] | None = None
) -> int:
    """The cap of DDP's buckets with which the last one arrives first.

    `sent_sizes` are what `cost_s` counts of each gradient, where that is not its bytes.
    """
    sent = sizes if sent_sizes is None else sent_sizes
    return min(DDP_CAPS_BYTES, key=lambda cap: end_s(by_size(sizes, cap), sent, ready_s, cost_s))


def sent_by_ddp(
    gradients: Gradients, buckets: Buckets, backward_s: float, messages: Messages = as_they_are
) -> list[Sent]:
    """Rank 0's buffers before forward; then buckets, which DDP arranges anew in the order of its first backward."""
    backwards = list(reversed(range(len(gradients.sizes_bytes))))
    if callable(buckets):
        sizes = [gradients.sizes_bytes[number] for number in backwards]
        ready_s = [gradients.ready_share[number] * backward_s for number in backwards]
        buckets = best_cap(sizes, ready_s, _of_bucket(buckets, messages))
    order = gradients.in_order
    groups = ddp_groups([gradients.sizes_bytes[number] for number in order], buckets)
    before = [Sent("broadcast", gradients.buffer_bytes, BEFORE_FORWARD, blocking=True)]
    return (before if gradients.buffer_bytes else []) + _in_turn(gradients, order, groups, messages)


def sent_in_buckets(
    gradients: Gradients, buckets: Buckets, backward_s: float, messages: Messages = as_they_are
) -> list[Sent]:
    """Buckets in the reverse order of the model, or the best ones in the order in which gradients are ready."""
    if callable(buckets):
        order = gradients.in_order
        ready_s = [gradients.ready_share[number] * backward_s for number in order]
        sizes = [gradients.sizes_bytes[number] for number in order]
        groups = by_cost(sizes, ready_s, _of_bucket(buckets, messages))
    else:
        order = list(reversed(range(len(gradients.sizes_bytes))))
        groups = by_size(
            [gradients.sizes_bytes[number] for number in order], DEFAULT_BUCKET_BYTES if buckets is None else buckets
        )
    return _in_turn(gradients, order, groups, messages)


def sent_one_by_one(gradients: Gradients, buckets: Buckets, backward_s: float) -> list[Sent]:
    """After backward, an all-reduce per gradient."""
    return [Sent("all-reduce", size, AFTER_BACKWARD, blocking=True) for size in gradients.sizes_bytes]


def sent_through_root(gradients: Gradients, buckets: Buckets, backward_s: float) -> list[Sent]:
    """After backward, a gather and a scatter per gradient."""
    names = ("gather", "scatter")
    return [Sent(name, size, AFTER_BACKWARD, blocking=True) for size in gradients.sizes_bytes for name in names]


def sent_by_none(gradients: Gradients, buckets: Buckets, backward_s: float) -> list[Sent]:
    """Nothing."""
    return []


def _of_bucket(all_reduce_s: Cost, messages: Messages) -> Cost:
    """The cost of a bucket, from that of an all-reduce: an all-to-all and an all-gather of as many bytes cost one."""
    return lambda size_bytes: sum(all_reduce_s(size) for name, size in messages(size_bytes) if name != "all-gather")


def _in_turn(
    gradients: Gradients, order: Sequence[int], groups: Sequence[Sequence[int]], messages: Messages
) -> list[Sent]:
    """The messages of each group of numbers in `order`, none before those ahead of it."""
    found, ready = [], 0.0
    for group in groups:
        numbers = [order[place] for place in group]
        ready = max([ready, *(gradients.ready_share[number] for number in numbers)])
        size = sum(gradients.sizes_bytes[number] for number in numbers)
        found += [Sent(name, sent, ready, blocking=False) for name, sent in messages(size)]
    return found
