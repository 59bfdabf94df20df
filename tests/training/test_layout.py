"""How a model lies in memory: it changes no number, no statistic and no mode."""

import copy

import pytest
import torch
from torch import nn

from worldsize.training.layout import lay_out

SHAPE = (3, 16, 16)
CPU = torch.device("cpu")


def net() -> nn.Sequential:
    """Its convolutions leave maps of 16×16, 4×4 and 2×2."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, stride=4, padding=1),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def channels_last(module: nn.Module) -> bool:
    assert isinstance(module, nn.Conv2d)
    return module.weight.is_contiguous(memory_format=torch.channels_last) and not module.weight.is_contiguous()


def test_weights_are_channels_last_but_where_the_maps_are_small() -> None:
    model = net()
    assert lay_out(model, SHAPE, CPU) is model
    assert [channels_last(model[n]) for n in (0, 2, 3)] == [True, False, False]


def test_outputs_and_gradients_are_the_same() -> None:
    plain = net().double()
    ours = copy.deepcopy(plain).float()
    lay_out(ours, SHAPE, CPU)
    inputs = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(1))
    (wanted, got) = plain(inputs.double()), ours(inputs)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    wanted.square().sum().backward()
    got.square().sum().backward()
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-3, atol=1e-4)


def test_looking_leaves_statistics_and_modes_as_they_were() -> None:
    model = net()
    model[1].eval()  # frozen by its owner
    before = {name: value.clone() for name, value in model.state_dict().items()}
    lay_out(model, SHAPE, CPU)
    assert model.training
    assert not model[1].training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("model", [nn.Embedding(5, 3), nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))])
def test_a_model_that_cannot_take_the_sample_says_so_in_its_first_step(model: nn.Module) -> None:
    assert lay_out(model, SHAPE, CPU) is model
