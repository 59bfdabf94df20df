"""What a model must be for a proof, and what is said of one that is not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from proofs import case, placement_of
from worldsize.errors import UsageError
from worldsize.ranks.setup import Rank
from worldsize.training.repeatable import in_double, refuses_double, unrepeatable, without_dropout
from worldsize.training.verify import Preparation, Task

SHAPE = (3, 4, 4)


class Own(nn.Module):
    """A linear model whose forward does something of its own first."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.calls = way, 0
        self.linear = nn.Linear(48, 5)
        self.norm = nn.BatchNorm1d(5)
        self.scale = torch.ones(48, 48)  # neither a parameter nor a buffer: `double()` does not see it

    def forward(self, images: Tensor) -> Tensor:
        inputs = images.flatten(1)
        if self.way == "foreign tensor":
            inputs = inputs @ self.scale
        if self.way == "narrows":
            inputs = inputs.half().to(inputs.dtype)
        if self.way == "constant":
            inputs = inputs * torch.tensor(0.5)
        if self.way == "random":
            inputs = inputs + torch.rand_like(inputs)
        if self.way == "functional dropout":
            inputs = nn.functional.dropout(inputs, 0.5, self.training)
        if self.way == "counts":
            self.calls += 1
            inputs = inputs.roll(self.calls, dims=1)  # a scale would be undone by the BatchNorm
        outputs: Tensor = self.norm(self.linear(inputs))
        return outputs


def test_a_model_in_double_precision_takes_single_and_returns_double() -> None:
    model = in_double(Own("plain"))
    assert model(torch.rand(2, *SHAPE)).dtype == torch.float64
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


@pytest.mark.parametrize(
    ("way", "told"),
    [("plain", None), ("constant", None), ("narrows", "it converts to float16"), ("foreign tensor", "RuntimeError")],
)
def test_a_model_that_cannot_be_double_says_why_and_stays_as_it_is(way: str, told: str | None) -> None:
    model = Own(way)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    reason = refuses_double(model, SHAPE)
    assert reason is None if told is None else told in str(reason)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model(torch.rand(2, *SHAPE)).dtype == torch.float32


@pytest.mark.parametrize(
    ("way", "cannot"), [("plain", False), ("random", True), ("functional dropout", True), ("counts", True)]
)
def test_a_forward_that_is_not_the_same_twice_is_noticed(way: str, cannot: bool) -> None:
    assert unrepeatable(Own(way), SHAPE) is cannot


def test_every_kind_of_dropout_is_switched_off() -> None:
    model = nn.Sequential(
        nn.Dropout(0.5), nn.Dropout2d(0.0), nn.AlphaDropout(0.1), nn.TransformerEncoderLayer(8, 2), nn.LSTM(4, 4, 2)
    )
    assert without_dropout(model) == 2 + 4, "the encoder layer has three, and its attention one"
    assert without_dropout(model) == 0
    model[3].train()
    inputs = torch.rand(2, 3, 8)
    assert torch.equal(model[3](inputs), model[3](inputs))


def test_a_model_that_draws_at_random_is_the_users_to_change(tmp_path: Path) -> None:
    settings = case("single", 1)
    task = Task(settings=settings, placement=placement_of(settings, 1), arithmetic="fp64", steps=1)
    preparation = Preparation(task, Rank(0, 1, 0), SHAPE)
    with pytest.raises(UsageError, match="two forward passes in training mode differ"):
        preparation(Own("random"))
