"""Strategies: one way to synchronise gradients per file, all behind the interface of `base`."""

from worldsize.errors import FactoryError, UnknownNameError
from worldsize.factories import GRAMMAR, resolve
from worldsize.strategies.all_reduce import AllReduce
from worldsize.strategies.base import Strategy, World, agree, gradients, sizes_of
from worldsize.strategies.bucketed import Bucketed
from worldsize.strategies.channel import Channel, Observer
from worldsize.strategies.data_parallel import DataParallel
from worldsize.strategies.ddp import DDP
from worldsize.strategies.diloco import DiLoCo
from worldsize.strategies.fsdp import FSDP
from worldsize.strategies.gather_scatter import GatherScatter
from worldsize.strategies.half import BucketedBf16, BucketedFp16, DDPBf16, DDPFp16
from worldsize.strategies.int8 import BucketedInt8, DDPInt8
from worldsize.strategies.local_sgd import LocalSGD
from worldsize.strategies.powersgd import BucketedPowerSGD, DDPPowerSGD
from worldsize.strategies.single import Single
from worldsize.traits import Traits

__all__ = [
    "STRATEGIES",
    "Channel",
    "Observer",
    "Strategy",
    "World",
    "agree",
    "find_strategy",
    "gradients",
    "sizes_of",
]

STRATEGIES: dict[str, type[Strategy]] = {
    "single": Single,
    "data-parallel": DataParallel,
    "gather-scatter": GatherScatter,
    "all-reduce": AllReduce,
    "ddp": DDP,
    "bucketed": Bucketed,
    "ddp-fp16": DDPFp16,
    "ddp-bf16": DDPBf16,
    "powersgd": DDPPowerSGD,
    "int8": DDPInt8,
    "bucketed-fp16": BucketedFp16,
    "bucketed-bf16": BucketedBf16,
    "bucketed-powersgd": BucketedPowerSGD,
    "bucketed-int8": BucketedInt8,
    "local-sgd": LocalSGD,
    "diloco": DiLoCo,
    "fsdp": FSDP,
}


def find_strategy(name: str) -> type[Strategy]:
    """The class of a strategy by its name, or the user's own by `module:Class` or `file.py:Class`.

    Raises UnknownNameError for a name that is not registered, FactoryError if the user's class cannot be used.
    """
    if ":" not in name:
        if name not in STRATEGIES:
            raise UnknownNameError("strategy", name, STRATEGIES, f"For one of your own give {GRAMMAR}.")
        return STRATEGIES[name]
    found = resolve(name, "strategy")
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise FactoryError(f"strategy {name!r} is not a class derived from worldsize.strategies.Strategy")
    without = () if isinstance(getattr(found, "traits", None), Traits) else ("traits (a worldsize.traits.Traits)",)
    if missing := [*sorted(found.__abstractmethods__), *without]:
        raise FactoryError(f"strategy {name!r} lacks {', '.join(missing)}; see worldsize.strategies.Strategy")
    return found
