"""Waits until the program has imported torch, and then watches it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from .marks import FOLDER_VARIABLE


def wait_for_torch() -> None:
    """Watch the program from the moment at which it has imported torch; at once where it has."""
    if "torch" in sys.modules:
        _watch()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torch as everybody else would, and knows when it has been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # what a program sees of its loaders is its own
            execute(module)
            _watch()

        loader.exec_module = exec_module
        return spec


def _watch() -> None:
    try:
        from .program import watch_program

        watch_program(os.environ[FOLDER_VARIABLE])
    except Exception as error:  # the program goes on as if we were not there; the study says what it was
        tell(os.environ[FOLDER_VARIABLE], error)


def tell(folder: str, error: Exception) -> None:
    """Leave a note of what went wrong in us."""
    try:
        with open(os.path.join(folder, f"trouble.{os.getpid()}"), "a", encoding="utf-8") as file:
            file.write(f"{type(error).__name__}: {error}\n")
    except OSError:
        pass
