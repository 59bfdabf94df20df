"""A backward that sleeps, for models and scripts in which the time of each part is planted."""

import time
from typing import Any

import torch
from torch import Tensor


class SlowBackward(torch.autograd.Function):
    """Hands its input on; its backward, and nothing else, takes so many seconds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        time.sleep(ctx.seconds)
        return gradient, None
