"""Lossy strategies of a user that keep what they say of themselves, or do not: planted faults for the proofs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.futures import Future

from worldsize.strategies.averaging import Full
from worldsize.strategies.base import Strategy, agree, gradients
from worldsize.strategies.bucketed import Bucketed
from worldsize.strategies.half import Bf16, BucketedBf16
from worldsize.traits import TRAITS, Traits
from worldsize.wire import nothing

HERE = str(Path(__file__))
FEEDBACK = TRAITS["bucketed-bf16"].model_copy(update={"feedback": True})


class Undivided(Bf16):
    """Sums in bfloat16."""

    def begin(self, bucket: Full) -> Future[Tensor]:
        bucket.flat.mul_(self.channel.world_size)
        return super().begin(bucket)


class ForgetsToDivide(BucketedBf16):
    """Hands over the sum in place of the mean."""

    averaging = Undivided


class EndsApart(BucketedBf16):
    """Averages right, and lets rank 1 move a weight by itself."""

    def synchronise(self) -> None:
        super().synchronise()
        if self.synchronising:
            with torch.no_grad():
                list(self.unwrap().parameters())[2].add_(1e-6 * self.channel.rank)


class DropsABucket(BucketedBf16):
    """Hands over zeros for the last bias, on all ranks."""

    def synchronise(self) -> None:
        super().synchronise()
        if self.synchronising:
            list(gradients(self.unwrap()))[-1].zero_()


class KeepsABucket(BucketedBf16):
    """Leaves every rank its own gradient of the last bias."""

    def synchronise(self) -> None:
        mine = list(gradients(self.unwrap()))[-1].clone()
        super().synchronise()
        list(gradients(self.unwrap()))[-1].copy_(mine)


class WithFeedback(Bf16):
    """Adds to each gradient what bfloat16 took of the one before, and holds back what it takes now.

    The sum in bfloat16 loses once more, which nobody could hold back: it is made of numbers that need no rounding.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.residuals = {parameter: torch.zeros(parameter.numel()).to(parameter) for parameter in self.parameters}

    def begin(self, bucket: Full) -> Future[Tensor]:
        sent = []
        for parameter, part in zip(bucket.parameters, bucket.parts, strict=True):
            residual = self.residuals[parameter]
            residual += part
            coarse = (residual * 64).to(torch.bfloat16).round().to(part) / 64
            residual -= coarse
            sent.append(coarse)
        bucket.flat.copy_(torch.cat(sent) / self.channel.world_size)
        return self.channel.all_reduce_async(bucket.flat, bucket.ready)

    def state(self) -> dict[str, Tensor]:
        return {f"residual{number}": each for number, each in enumerate(self.residuals.values())}

    def held_back(self) -> Mapping[nn.Parameter, Tensor]:
        return self.residuals


class HoldsBack(Bucketed):
    """Error feedback as it should be."""

    traits = FEEDBACK.model_copy(update={"step_error": None})
    averaging = WithFeedback


class HalfOfIt(WithFeedback):
    """Forgets what it has held back every other time."""

    def begin(self, bucket: Full) -> Future[Tensor]:
        for parameter in bucket.parameters:
            self.residuals[parameter].mul_(0.5)
        return super().begin(bucket)


class LosesSome(HoldsBack):
    """Says that it holds back all, and does not."""

    averaging = HalfOfIt


class ClaimsFeedback(BucketedBf16):
    """Has none, and says nothing of what it holds back."""

    traits = FEEDBACK


class ClaimsToHold(BucketedBf16):
    """Has none, and says that nothing is missing."""

    traits = FEEDBACK

    def held_back(self) -> Mapping[nn.Parameter, Tensor]:
        return {}


class Meets(Strategy):
    """Averages the weights before every second step of the optimizer; gradients are each rank's own."""

    traits = Traits(
        collectives=("all-reduce",), exact=False, travels="weights", wire=nothing, period="powersgd_start_step"
    )

    def wrap(self, model: nn.Module) -> nn.Module:
        agree(model, self.channel)
        self.model, self.done = model, 0
        return model

    def synchronise(self) -> None:
        if self.synchronising:
            self.done += 1
            if self.done > 1 and self.done % 2:
                with torch.no_grad():
                    self.meet([parameter.detach() for parameter in self.unwrap().parameters()])

    def meet(self, weights: list[Tensor]) -> None:
        for weight in weights:
            self.channel.all_reduce(weight)
            weight /= self.world.world_size


class MeetsWrongly(Meets):
    """Comes to the same weights on all ranks, and to something else than their mean."""

    def meet(self, weights: list[Tensor]) -> None:
        for weight in weights:
            self.channel.all_reduce(weight)
            weight /= self.world.world_size + 1


class MeetsInPart(Meets):
    """Leaves a weight out."""

    def meet(self, weights: list[Tensor]) -> None:
        super().meet(weights[:-1])


class NeverMeets(Meets):
    """Averages nothing."""

    def meet(self, weights: list[Tensor]) -> None:
        pass
