"""Attributes of others that are replaced while something is metered, and put back afterwards."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


class Patches:
    """What was replaced, so that nothing of it survives: the last replaced is the first put back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def on_close(self, undo: Callable[[], object]) -> None:
        """Call this, too, when all is put back: the `remove` of a hook."""
        self._undo.append(undo)

    def replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace an attribute. What somebody else puts over it later stays when this is put back."""
        own = vars(owner).get(name, self) if hasattr(owner, "__dict__") else self
        setattr(owner, name, replacement)

        def undo() -> None:
            if vars(owner).get(name) is not replacement:
                return
            if own is self:
                delattr(owner, name)
            else:
                setattr(owner, name, own)

        self.on_close(undo)

    def replace_everywhere(self, replacements: Sequence[tuple[Any, Any]]) -> None:
        """Replace functions, each by its own, in each module that has them: a script may have imported one by name."""
        wanted = {id(original): replacement for original, replacement in replacements}
        for module in list(sys.modules.values()):  # one pass: all modules of torch have 100,000 names
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in wanted:
                    self.replace(module, name, wanted[id(value)])

    def before_call(self, module: nn.Module, call: Callable[..., None]) -> None:
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
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


class Hook:
    """A hook on a module whose copies do nothing: a loop may copy its model, or save it whole, while it is metered."""

    def __init__(self, call: Callable[..., None] | None = None) -> None:
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._call is not None and not torch.compiler.is_compiling():  # compiled code has nothing of us in it
            self._call(*args, **kwargs)

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()
