"""`--compile`: forward and backward of a model as code of torch.compile, cut where gradients are to travel meanwhile.

Of one graph AOTAutograd gives all gradients together, when its backward ends: nothing could travel during backward. So
under a strategy that overlaps the graph is cut where a bucket is full, by torch's own DDPOptimizer, for our buckets as
for DDP's (https://docs.pytorch.org/docs/stable/notes/ddp.html, TorchDynamo DDPOptimizer).
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
import torch._dynamo
import torch._inductor.config
from torch import nn
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.utils import counters

from worldsize.ranks.heartbeat import beat
from worldsize.results.records import WarningRecord

BACKEND = "inductor"
"""Which of torch's compilers makes the code; its default."""
BEAT_S = 5.0
"""A compiler begins nothing that a rank would count, and may take minutes."""

_numbers = itertools.count()

Pieces = tuple[int, int]
"""Bytes of gradients in the first piece of backward, and in all others."""


class Compiled:
    """The calls of some modules, compiled in place: parameters, names, hooks and copies are those of the modules.

    Nothing is compiled before the first call. Hooks on a module itself stay outside of its compiled code.
    """

    def __init__(self, modules: Sequence[nn.Module], pieces: Pieces | None) -> None:
        """`pieces`: where backward is cut; None leaves it whole."""
        # Further threads would be further processes, in a process that other code may fork.
        torch._inductor.config.compile_threads = 1
        self.seconds: float | None = None
        """From the first call to the end of its backward; None before it."""
        self._on = True
        self._frames = 0
        self._late = 0
        for module in modules:
            self._replace(module, _backend(pieces))

    def _replace(self, module: nn.Module, backend: Any) -> None:
        forward: Callable[..., Any] = module.forward

        # torch leaves the code of its own containers alone, but not what such a function calls.
        def inlined(*args: Any, **kwargs: Any) -> Any:
            return forward(*args, **kwargs)

        # torch keeps what it compiles by code object, and which sizes vary by its name. Each module has its own, or
        # many would share one limit, and a cell of another batch would be compiled for batches of any size.
        code = inlined.__code__.replace(co_name=f"forward_{next(_numbers)}")
        own = FunctionType(code, inlined.__globals__, closure=inlined.__closure__)
        compiled = torch.compile(own, backend=backend)
        names = vars(module)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._on:
                return module._call_impl(*args, **kwargs)
            before = names.get("forward")
            names["forward"] = compiled
            try:
                return module._call_impl(*args, **kwargs)
            finally:
                del names["forward"]
                if before is not None:
                    names["forward"] = before

        # As Module.compile does; a copy of the module does not have it.
        module._compiled_call_impl = call

    def first(self, step: Callable[[], None]) -> None:
        """Do a first forward and backward, which compiles, and note how long it took."""
        begin_s = time.monotonic()
        with _beating():
            step()
        self.seconds = time.monotonic() - begin_s
        self._frames = _frames()

    @contextmanager
    def off(self) -> Iterator[None]:
        """Within, the modules run as they are."""
        before, self._on = self._on, False
        try:
            yield
        finally:
            self._on = before

    def again(self) -> bool:
        """Whether something was compiled since this was asked last."""
        frames = _frames()
        found, self._frames = frames > self._frames, frames
        self._late += found
        return found

    def warnings(self) -> list[WarningRecord]:
        """That steps of training compiled, if any did."""
        if not self._late:
            return []
        text = (
            f"torch compiled the model again in {self._late} step(s), as it does for each new shape of a batch. These "
            "steps are in no number. Give all batches one shape, or leave out --compile."
        )
        return [WarningRecord(code="compiled-again", message=text)]


def _backend(pieces: Pieces | None) -> Any:
    # We cut ourselves: DDP's own cutter takes 1 MiB for the first bucket at any cap, and fails below it.
    torch._dynamo.config.optimize_ddp = False
    compiler: Any = lookup_backend(BACKEND)
    if pieces is None:
        return compiler
    first, others = pieces

    def cut(graph: Any, inputs: Any, **options: Any) -> Any:
        cutter: Any = DDPOptimizer(others, compiler, min(first, others))
        return cutter.compile_fn(graph, inputs, **options)

    return cut


def _frames() -> int:
    """How many functions torch has compiled in this process so far."""
    return counters["frames"]["total"]


@contextmanager
def _beating() -> Iterator[None]:
    over = threading.Event()

    def beats() -> None:
        while not over.wait(BEAT_S):
            beat()

    thread = threading.Thread(target=beats, name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
