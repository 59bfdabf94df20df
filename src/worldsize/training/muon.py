"""Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers"): orthogonal steps, for trainings of few updates.

A step of SGD is long along the few directions that the gradients of all samples share and short along all others,
and with as few updates as a large batch leaves, those are hardly learnt. Muon takes the momentum of each matrix of
weights and sets its singular values to about 1. What is no such matrix (biases, norms, embeddings, parameters without a
layer), and the layer that reads the others out, is left to SGD at the same learning rate.

torch.optim.Muon takes no convolutions, and always rounds to bf16, which `worldsize verify` could not tell from an
error.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from worldsize.strategies.base import trained

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of x → ax + bx³ + cx⁵, which is steep at 0, and after five rounds between about 0.7 and 1.2 (Jordan et al. 2024)."""
ROUNDS = 5
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Those whose weight is a matrix of outputs by what each of them sums over. In a grouped convolution it is several."""
TINY = 1e-7
"""What a norm is at least, where all gradients are 0."""


class Muon(Optimizer):
    """Muon for the weights of hidden convolutions and linear layers, SGD for all other parameters.

    Weight decay is taken from Muon's weights themselves (decoupled, times the learning rate); SGD's have none.
    `dtype` is the arithmetic in which steps are made orthogonal; none is that of the weights. Raises ValueError for a
    model without parameters.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        nesterov: bool,
        dtype: torch.dtype | None = None,
    ) -> None:
        matrices, others = split(model)
        self._dtype = dtype
        groups: list[dict[str, Any]] = [
            {"params": matrices, "orthogonal": True, "weight_decay": weight_decay},
            {"params": others, "orthogonal": False, "weight_decay": 0.0},
        ]
        super().__init__([g for g in groups if g["params"]], {"lr": lr, "momentum": momentum, "nesterov": nesterov})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Change the weights by their gradients; a closure has no use here."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                direction = self._direction(weight, weight.grad, group["momentum"], nesterov=group["nesterov"])
                if group["orthogonal"]:
                    direction = orthogonal(direction, self._dtype)
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(direction, alpha=-group["lr"])

    def _direction(self, weight: Tensor, gradient: Tensor, momentum: float, *, nesterov: bool) -> Tensor:
        """The momentum of a weight with its gradient added, as torch.optim.SGD has it."""
        if momentum == 0:
            return gradient
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = gradient.clone()
        else:
            state["momentum_buffer"].mul_(momentum).add_(gradient)
        buffer: Tensor = state["momentum_buffer"]
        return gradient.add(buffer, alpha=momentum) if nesterov else buffer


def split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The weights that Muon changes, and those that are left to SGD; frozen ones are in neither.

    The layer that the model registers last is taken for the one that reads the others out.
    """
    layers = [module for module in model.modules() if isinstance(module, LAYERS)]
    hidden = _owned(layer for layer in layers[:-1] if getattr(layer, "groups", 1) == 1)
    # A hidden layer may share its weight with one of these.
    left_out = _owned([*layers[-1:], *(module for module in model.modules() if isinstance(module, nn.Embedding))])
    weights = trained(model)
    fit = {id(weight) for weight in weights if weight.numel() and not weight.is_complex()}
    chosen = fit & (hidden - left_out)
    return [weight for weight in weights if id(weight) in chosen], [w for w in weights if id(w) not in chosen]


def _owned(layers: Iterable[nn.Module]) -> set[int]:
    """What the layers own, not their attribute: a parametrised weight is made anew each time that it is asked for."""
    return {id(layer._parameters.get("weight")) for layer in layers}


def orthogonal(step: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A step with all singular values near 1, by Newton–Schulz iterations; the shape and dtype stay.

    A kernel is the matrix of its output channels by everything that each of them sums over. A matrix with more rows
    than columns is made longer by the square root of their ratio, so that outputs change as much (Jordan et al. 2024).
    """
    a, b, c = COEFFICIENTS
    # The norm of a large matrix is beyond what fp16 can hold.
    matrix = step.flatten(1).to(dtype or (torch.float32 if step.dtype == torch.float16 else step.dtype))
    rows, columns = matrix.shape
    if rows > columns:
        matrix = matrix.T
    matrix = matrix / matrix.norm().clamp(min=TINY)
    for _ in range(ROUNDS):
        gram = matrix @ matrix.T
        matrix = torch.addmm(matrix, torch.addmm(gram, gram, gram, beta=b, alpha=c), matrix, beta=a)
    if rows > columns:
        matrix = matrix.T
    whole: Tensor = matrix.reshape(step.shape).to(step.dtype) * max(1, rows / columns) ** 0.5
    return whole
