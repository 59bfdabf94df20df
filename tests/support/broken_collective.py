"""Entry of a benchmark in which one element of a broadcast arrives wrong on rank 1."""

from typing import Any

from worldsize.collectives import bench
from worldsize.collectives.operations import OPERATIONS, Broadcast
from worldsize.ranks.turns import Turns


class Broken(Broadcast):
    def call(self) -> None:
        super().call()
        if self.rank == 1:
            self.tensor[0] = 7


def enter(payload: dict[str, Any], turns: Turns) -> None:
    OPERATIONS["broadcast"] = Broken
    bench.enter(payload, turns)
