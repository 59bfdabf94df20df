"""Attributes of others that are replaced while something is metered, and put back afterwards."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

MISSING = object()


@dataclass(eq=False)
class Replacement:
    """An attribute that was replaced."""

    owner: Any
    name: str
    before: Any
    """What its owner itself had under the name; MISSING where that was inherited."""
    now: Any


_REPLACED: list[Replacement] = []
"""All of this process, in order: one that is put back may lie under another, of a second meter."""


class Patches:
    """What was replaced, so that nothing of it survives: the last replaced is the first put back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def on_close(self, undo: Callable[[], object]) -> None:
        """Call this, too, when all is put back: the `remove` of a hook."""
        self._undo.append(undo)

    def replace(self, owner: Any, name: str, now: Any) -> None:
        """Replace an attribute. What somebody else puts over it later stays when this is put back."""
        replacement = Replacement(owner, name, own(owner, name), now)
        setattr(owner, name, now)
        _REPLACED.append(replacement)
        self.on_close(lambda: put_back(replacement))

    def replace_everywhere(self, replacements: Sequence[tuple[Any, Any]]) -> None:
        """Replace functions, each by its own, in each module that has them: a script may have imported one by name."""
        wanted = {id(original): replacement for original, replacement in replacements}
        for module in list(sys.modules.values()):  # one pass: all modules of torch have 100,000 names
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in wanted:
                    self.replace(module, name, wanted[id(value)])

    def before_call(self, module: nn.Module, call: Callable[..., object]) -> None:
        """Do this before each call of a module, with the module, its arguments and its keywords."""
        compiled = getattr(module, "_compiled_call_impl", None)
        if compiled is None:
            self.on_close(module.register_forward_pre_hook(Hook(call), with_kwargs=True).remove)
            return

        @functools.wraps(compiled)  # of Module.compile, which would trace a hook, or refuse
        def called(*args: Any, **kwargs: Any) -> Any:
            call(module, args, kwargs)
            return compiled(*args, **kwargs)

        self.replace(module, "_compiled_call_impl", called)

    def close(self) -> None:
        """Put everything back; raises the first error of what could not be, when all else is."""
        errors: list[Exception] = []
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def own(owner: Any, name: str) -> Any:
    """What an owner has under a name itself, not by its class; MISSING if that is nothing."""
    held = getattr(owner, "__dict__", None)
    return getattr(owner, name, MISSING) if held is None else held.get(name, MISSING)


def put_back(replacement: Replacement) -> None:
    """Put back what was there before; where one of ours lies over it, that one puts it back later."""
    _REPLACED.remove(replacement)
    over = (each for each in _REPLACED if each.owner is replacement.owner and each.name == replacement.name)
    above = next((each for each in over if each.before is replacement.now), None)
    if above is not None:
        above.before = replacement.before
    elif own(replacement.owner, replacement.name) is not replacement.now:
        return
    elif replacement.before is MISSING:
        delattr(replacement.owner, replacement.name)
    else:
        setattr(replacement.owner, replacement.name, replacement.before)


class Hook:
    """A hook on a module whose copies do nothing: a loop may copy its model, or save it whole, while it is metered."""

    def __init__(self, call: Callable[..., object] | None = None) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._call is not None and not torch.compiler.is_compiling():  # compiled code has nothing of us in it
            self._call(*args, **kwargs)

    def __reduce__(self) -> tuple[type[Hook], tuple[()]]:
        return Hook, ()
