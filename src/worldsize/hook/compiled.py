"""Calls of what a script gives to torch.compile, seen from outside: the compiler must not trace our hooks.

A hook on all modules costs more than its time: the compiler guards on it, traces it, or refuses to compile at all. So
there is none while compiled code runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .patches import Patches
from .watch import Watch


class Looking(Protocol):
    """Whoever sees all modules by a global hook."""

    def module_called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A compiled module is about to be called."""

    def look_nowhere(self) -> bool:
        """Take the global hook off; say whether there was one."""

    def look_everywhere(self) -> None:
        """Put it back."""


class Compiled:
    """Tells of each call of what was compiled since."""

    def __init__(self, watch: Watch, looking: Looking, patches: Patches) -> None:
        self._watch, self._looking, self._patches = watch, looking, patches
        self._classes: set[type[nn.Module]] = set()
        # Module.compile and the decorator with arguments come through this function as well.
        patches.replace_everywhere([(torch.compile, self._compiling(torch.compile))])

    def _compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compiling(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            made = original(model, *args, **kwargs)
            if isinstance(made, nn.Module):
                self._see_class(type(made))
                return made
            if not callable(model):
                return made
            module = getattr(model, "__self__", None)  # Module.compile gives a method of the module
            return self._seen(made, module if isinstance(module, nn.Module) else None)

        return compiling

    def _see_class(self, kind: type[nn.Module]) -> None:
        """See each call of the class of modules that torch.compile returns."""
        if kind not in self._classes:
            self._classes.add(kind)
            self._patches.replace(kind, "__call__", self._seen(kind.__call__, None))

    def _seen(self, compiled: Callable[..., Any], module: nn.Module | None) -> Callable[..., Any]:
        @functools.wraps(compiled)
        def called(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # it is part of something larger that is being compiled
                return compiled(*args, **kwargs)
            inside = self._watch.forwarding
            if module is not None:
                self._looking.module_called(module, args, kwargs)
            elif args and type(args[0]) in self._classes:
                self._looking.module_called(args[0], args[1:], kwargs)
            elif not inside:
                self._watch.before_function()
            looked = self._looking.look_nowhere()
            try:
                made = compiled(*args, **kwargs)
            finally:
                if looked:
                    self._looking.look_everywhere()
            if not inside and not self._watch.forwarding and of_a_loss(made):
                self._watch.after_function([args, kwargs])
            return made

        return called


def of_a_loss(made: Any) -> bool:
    """Whether gradients can flow back through what a function has made."""
    return any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(made))
