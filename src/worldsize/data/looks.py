"""Whether what a thread hands over looks like a batch, or like a message to the training loop."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

NUMBERS = 16
"""So many numbers or texts are no message any more: the tokens of a text, the paths of a batch of pictures."""
LOOKED_AT = 64
"""At most so many parts of an item are looked at."""


def is_batch(item: Any) -> bool:
    """Whether there is a tensor, an array, a picture or bytes in it, or many numbers or texts.

    Containers and attributes are looked into; a single number is no batch, a tensor of one without dimensions neither.
    """
    numbers = 0
    for part in islice(_parts(item, 4), LOOKED_AT):
        if isinstance(part, str | int | float):
            numbers += 1
        elif isinstance(part, bytes | bytearray | memoryview) or _has_dimensions(part):
            return True
    return numbers >= NUMBERS


def _has_dimensions(part: Any) -> bool:
    return (hasattr(part, "__array_interface__") or hasattr(part, "__dlpack__")) and getattr(part, "ndim", 1) > 0


def _parts(item: Any, depth: int) -> Iterator[Any]:
    """What an item is made of, down to some depth."""
    if isinstance(item, Mapping):
        within: Any = item.values()
    elif isinstance(item, list | tuple | set | frozenset):
        within = item
    elif hasattr(item, "__dict__") and not hasattr(item, "ndim"):
        within = vars(item).values()
        yield item
    else:
        yield item
        return
    if depth:
        for part in islice(within, LOOKED_AT):
            yield from _parts(part, depth - 1)
