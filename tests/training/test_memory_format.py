"""How a model lies in memory: it changes no number, no statistic and no mode."""

import copy

import pytest
import torch
from torch import nn

from worldsize.training.memory_format import in_memory_format

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


def test_a_convolution_of_one_point_is_contiguous_as_well() -> None:
    """Its weight looks contiguous with either strides; torch goes by the strides."""
    model = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 4), nn.Conv2d(4, 4, 1))
    outputs: list[torch.Tensor] = []
    for convolution in list(in_memory_format(model, SHAPE, CPU))[1:]:  # type: ignore[call-overload]
        assert convolution.weight.stride() == torch.empty(convolution.weight.shape).stride()
        convolution.register_forward_hook(lambda _, __, output: outputs.append(output))
    model(torch.randn(2, *SHAPE).to(memory_format=torch.channels_last))
    assert len(outputs) == 3
    assert all(output.stride() == torch.empty(output.shape).stride() for output in outputs)


def test_a_convolution_at_two_scales_stays_channels_last() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            large: torch.Tensor = self.convolution(inputs)
            small: torch.Tensor = self.convolution(nn.functional.avg_pool2d(inputs, 8))
            return large.sum() + small.sum()

    model = Shared()
    in_memory_format(model, SHAPE, CPU)
    assert channels_last(model.convolution)


def channels_last(module: nn.Module) -> bool:
    assert isinstance(module, nn.Conv2d)
    return module.weight.is_contiguous(memory_format=torch.channels_last) and not module.weight.is_contiguous()


def test_weights_are_channels_last_but_where_the_maps_are_small() -> None:
    model = net()
    assert in_memory_format(model, SHAPE, CPU) is model
    assert [channels_last(model[n]) for n in (0, 2, 3)] == [True, False, False]


def test_outputs_and_gradients_are_the_same() -> None:
    plain = net().double()
    ours = copy.deepcopy(plain).float()
    in_memory_format(ours, SHAPE, CPU)
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
    in_memory_format(model, SHAPE, CPU)
    assert model.training
    assert not model[1].training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("model", [nn.Embedding(5, 3), nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))])
def test_a_model_that_cannot_take_the_sample_says_so_in_its_first_step(model: nn.Module) -> None:
    assert in_memory_format(model, SHAPE, CPU) is model
