import pytest
import torch
from torch import Tensor, nn

from worldsize.models import build_model, describe_model


def test_the_cost_of_resnet18() -> None:
    record = describe_model("resnet18", build_model("resnet18", classes=10, shape=(3, 32, 32), seed=0), (3, 32, 32))
    assert record.name == "resnet18"
    assert record.parameters == 11_173_962
    assert record.parameter_bytes == 4 * 11_173_962
    assert record.gradient_tensors == 62
    # BatchNorm: running mean and variance of 4,800 channels (float32), and 20 counters (int64).
    assert record.buffer_bytes == 4 * 2 * 4800 + 8 * 20


def test_operations_by_hand() -> None:
    channels, outputs, size = 3, 5, 8
    model = nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * size * size, outputs))
    convolution = 2 * channels * 4 * 9 * size * size
    linear = 2 * 4 * size * size * outputs
    # Backward computes the gradient of the weights, and of the inputs except for the first layer.
    assert describe_model("m", model, (channels, size, size)).flops_per_sample == 2 * convolution + 3 * linear


def test_describing_changes_nothing() -> None:
    model = build_model("vgg11", classes=10, shape=(3, 32, 32), seed=0).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    describe_model("vgg11", model, (3, 32, 32))
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.device.type == "cpu" for parameter in model.parameters())


class ByValue(nn.Module):
    """Its path depends on a value, which a model without data does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x) if x.sum().item() > 0 else self.layer(-x)
        return result


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 3, dtype=torch.float64), nn.Linear(3, 2, dtype=torch.float64)
        self.first.requires_grad_(False)


@pytest.mark.parametrize("model", [ByValue(), Frozen()])
def test_a_model_that_cannot_be_traced_has_no_count(model: nn.Module) -> None:
    record = describe_model("m", model, (4,))
    assert record.flops_per_sample is None
    assert record.parameters > 0


def test_frozen_parameters_have_no_gradient() -> None:
    record = describe_model("m", Frozen(), (4,))
    assert (record.parameters, record.gradient_tensors) == (4 * 3 + 3 + 3 * 2 + 2, 2)
    assert record.parameter_bytes == 8 * record.parameters
