"""`single`: one worker, no wrapper, nothing to synchronise. The baseline of every speed-up."""

from torch import nn

from worldsize.errors import UsageError
from worldsize.strategies.base import Strategy
from worldsize.traits import TRAITS


class Single(Strategy):
    """One worker that trains the model as it is."""

    traits = TRAITS["single"]

    @classmethod
    def processes(cls, world_size: int) -> int:
        """Always 1; raise UsageError for any other world size."""
        if world_size != 1:
            raise UsageError(
                f"strategy single runs at world size 1 only; {world_size} was given\n"
                "Give world size 1 as well, or another strategy, such as ddp."
            )
        return 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model itself."""
        self.model = model
        return model

    def synchronise(self) -> None:
        """Nothing to do."""
