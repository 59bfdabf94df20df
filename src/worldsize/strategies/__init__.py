"""Strategies: one way to synchronise gradients per file, all behind the interface of `base`."""

import importlib

from worldsize.errors import FactoryError, UnknownNameError
from worldsize.strategies.all_reduce import AllReduce
from worldsize.strategies.base import Strategy, Traffic, World
from worldsize.strategies.bucketed import Bucketed
from worldsize.strategies.channel import Channel, Observer
from worldsize.strategies.data_parallel import DataParallel
from worldsize.strategies.ddp import DDP
from worldsize.strategies.gather_scatter import GatherScatter
from worldsize.strategies.single import Single

STRATEGIES: dict[str, type[Strategy]] = {
    "single": Single,
    "data-parallel": DataParallel,
    "gather-scatter": GatherScatter,
    "all-reduce": AllReduce,
    "ddp": DDP,
    "bucketed": Bucketed,
}


def find_strategy(name: str) -> type[Strategy]:
    """The class of a strategy by its name, or the user's own by `module:Class`.

    Raises UnknownNameError for a name that is not registered, FactoryError if the user's class cannot be used.
    """
    if ":" not in name:
        if name not in STRATEGIES:
            raise UnknownNameError("strategy", name, STRATEGIES, "For one of your own give module:Class.")
        return STRATEGIES[name]
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise FactoryError(f"strategy {name!r} cannot be loaded: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise FactoryError(f"strategy {name!r} is not a class derived from worldsize.strategies.Strategy")
    return found


__all__ = ["STRATEGIES", "Channel", "Observer", "Strategy", "Traffic", "World", "find_strategy"]
