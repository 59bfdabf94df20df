"""Whether weights are the same on all ranks after they were averaged, and the mean of what they were (method §10)."""

from torch import Tensor

from worldsize.ranks.host_collectives import gather
from worldsize.training.losses import Faults, average_over_ranks
from worldsize.training.proof import Named, compare, first_apart, named_weights
from worldsize.training.trainer import Trainer


class WeightsWatch:
    """Sees the weights after an optimizer's step, and again when they are next used: what is between exchanged them.

    All ranks hold it, and call it together.
    """

    def __init__(self, trainer: Trainer, tolerance: float, faults: Faults) -> None:
        self.trainer, self.tolerance, self.faults = trainer, tolerance, faults
        self.model = trainer.strategy.unwrap()
        self.processes = trainer.world.channel.world_size
        self.exchanges = 0
        self._left: tuple[int, dict[str, Tensor]] | None = None

    def begin(self) -> None:
        """See the optimizer's steps from here on."""
        optimizer = self.trainer.optimizer
        self._hooks = [
            optimizer.register_step_pre_hook(lambda *_: self._used()),
            optimizer.register_step_post_hook(lambda *_: self._leave()),
        ]

    def end(self) -> int:
        """See no more of them; how often weights were exchanged. Never is a fault: ranks would drift apart for good."""
        self._used()
        for hook in self._hooks:
            hook.remove()
        if not self.exchanges and self.processes > 1:
            self.faults.note("no-exchange")
        return self.exchanges

    def _leave(self) -> None:
        # A copy, for they are changed in place.
        weights = {name: weight.clone() for name, weight in named_weights(self.model).items()}
        self._left = self.trainer.steps, weights

    def _used(self) -> None:
        """Compare the weights with those that the last step of the optimizer has left."""
        if self._left is None:
            return
        (step, left), self._left = self._left, None
        weights = named_weights(self.model)
        changed = any(not weight.equal(left[name]) for name, weight in weights.items())
        if any(gather(changed, self.processes)):
            self.exchanges += 1
            self._compare(step, weights, left)

    def _compare(self, step: int, weights: Named, left: dict[str, Tensor]) -> None:
        if (name := first_apart(weights, self.processes)) is not None:
            self.faults.note("weights-apart", step=step, parameter=name)
        if not self.trainer.strategy.traits.plain_mean:
            return
        if self.processes > 1:
            average_over_ranks(left.values())
        _, first = compare(weights, left, self.tolerance, step)
        if first is not None:
            self.faults.note(
                "not-mean", step=step, parameter=first.parameter, relative=first.relative, allowed=self.tolerance
            )
