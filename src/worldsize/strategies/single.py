"""`single`: one worker, no wrapper, nothing to synchronise. The baseline of every speed-up."""

from torch import nn

from worldsize.errors import UsageError
from worldsize.results.records import WireBytes
from worldsize.strategies.base import Strategy, Traffic


class Single(Strategy):
    """One worker that trains the model as it is."""

    @classmethod
    def processes(cls, world_size: int) -> int:
        """Always 1; raise UsageError for any other world size."""
        if world_size != 1:
            raise UsageError(f"strategy single runs at world size 1 only; {world_size} was given")
        return 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model itself."""
        self.model = model
        return model

    def synchronise(self) -> None:
        """Nothing to do."""

    @classmethod
    def wire_bytes(cls, world_size: int, traffic: Traffic) -> WireBytes:
        """Nothing travels."""
        return WireBytes(payload_bytes=0, busiest_rank_bytes=0, other_rank_bytes=0, formula="0")
