"""What the strategies share."""

import torch
from torch import nn

from worldsize.strategies.base import gradients


def test_a_parameter_that_a_step_did_not_use_has_a_gradient_of_zero() -> None:
    """Else the ranks would wait for different messages."""
    used, unused, frozen = nn.Linear(2, 1), nn.Linear(3, 1), nn.Linear(4, 1).requires_grad_(False)
    model = nn.ModuleList([used, unused, frozen])
    used(torch.ones(1, 2)).sum().backward()
    shapes = [tuple(gradient.shape) for gradient in gradients(model)]
    assert shapes == [(1, 2), (1,), (1, 3), (1,)]
    assert unused.weight.grad is not None
    assert unused.weight.grad.tolist() == [[0, 0, 0]]
    assert used.weight.grad is not None
    assert used.weight.grad.tolist() == [[1, 1]]
    assert frozen.weight.grad is None
