"""Counts every collective that this process asks for, by kind, whoever asks: us, torch's DDP, or the user's code."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from worldsize.results.training_records import MessageCount

NAMES = {
    "allreduce_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "broadcast_": "broadcast",
    "gather_": "gather",
}
"""torch's names of the operations → the field's, where they differ by more than the mark of working in place."""

AFTER_OUTPUTS = ("allgather_", "gather_", "scatter_", "reduce_scatter_", "_allgather_base_", "_reduce_scatter_base_")
"""Operations whose inputs come after their outputs."""


class MessageCounter(TorchDispatchMode):
    """Within this context every operation of torch's `c10d` is counted, with the bytes of its input on this rank.

    What passes below torch's dispatcher is not seen: the key-value store of the rendezvous, and what backward asks
    for on threads of its own (on a GPU).
    """

    def __init__(self, when: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.when = when
        self._counts: dict[str, list[int]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Count it if it is a collective, then run it."""
        if getattr(func, "namespace", "") == "c10d":
            name = func.__name__.split(".")[0]
            count = self._counts.setdefault(NAMES.get(name, name.rstrip("_")), [0, 0])
            count[0] += 1
            count[1] += _input_bytes(name, args)
        return func(*args, **(kwargs or {}))

    def counts(self) -> list[MessageCount]:
        """What was counted so far."""
        return [
            MessageCount(when=self.when, kind=kind, calls=calls, payload_bytes=size)
            for kind, (calls, size) in self._counts.items()
        ]


def _input_bytes(name: str, args: tuple[Any, ...]) -> int:
    """Bytes of the tensors that go in; the outputs of a gather come before its inputs."""
    if name == "barrier":
        return 0
    inputs = args[1] if name in AFTER_OUTPUTS and len(args) > 1 else args[0]
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(inputs))


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in _tensors(each)]
    return []
