"""Muon against what defines it: singular values near 1 for matrices, torch's own SGD for everything else."""

import copy

import pytest
import torch
from torch import Tensor, nn

from worldsize.models import build_model
from worldsize.training.muon import Muon, orthogonal, split

RATE, MOMENTUM = 0.1, 0.9


class Small(nn.Module):
    """A convolution, its BatchNorm, a hidden linear layer and one that reads it out."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.hidden = nn.Linear(8, 6)
        self.last = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        features = self.norm(self.convolution(x)).mean((2, 3))
        logits: Tensor = self.last(self.hidden(features).relu())
        return logits


def model() -> Small:
    torch.manual_seed(0)
    return Small().double()


def with_gradients(network: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in network.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)


def muon(network: nn.Module, *, weight_decay: float = 0.0, nesterov: bool = True) -> Muon:
    return Muon(network, lr=RATE, momentum=MOMENTUM, weight_decay=weight_decay, nesterov=nesterov)


@pytest.mark.parametrize("shape", [(16, 40), (40, 16), (8, 3, 3, 3), (64, 2, 3, 3)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_all_singular_values_are_near_one(shape: tuple[int, ...], scale: float) -> None:
    step = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * scale
    found = orthogonal(step)
    assert found.shape == step.shape
    rows, columns = step.flatten(1).shape
    values = torch.linalg.svdvals(found.flatten(1)) / max(1, rows / columns) ** 0.5
    assert values.min() > 0.6
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(step.flatten(1), full_matrices=False)
    # The directions stay: in the step's own singular vectors, what was made of it is diagonal and positive.
    inside = left.T @ found.flatten(1) @ right.T
    assert torch.allclose(inside, inside.diagonal().diag(), atol=1e-9)
    assert (inside.diagonal() > 0).all()


def test_nothing_stays_nothing() -> None:
    assert orthogonal(torch.zeros(4, 6)).abs().max() == 0


def test_kernels_and_hidden_layers_are_made_orthogonal_and_nothing_else() -> None:
    network = model()
    matrices, others = split(network)
    names = {id(weight): name for name, weight in network.named_parameters()}
    assert [names[id(weight)] for weight in matrices] == ["convolution.weight", "hidden.weight"]
    assert len(matrices) + len(others) == len(list(network.parameters()))


class Odd(nn.Module):
    """What has two dimensions and is no matrix of outputs by inputs, before a hidden layer and the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(1, 9, 16))
        self.norm = nn.LayerNorm([4, 5, 5])
        self.gates = nn.LSTM(4, 4)
        self.grouped = nn.Conv2d(4, 4, 3, groups=4)
        self.turned = nn.ConvTranspose2d(4, 4, 3)
        self.empty = nn.Linear(0, 4)
        self.complex = nn.Linear(4, 4, dtype=torch.complex64)
        self.made = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.hidden = nn.Linear(4, 4)
        self.last = nn.Conv2d(4, 2, 1)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_nothing_else_with_two_dimensions_is_taken_for_a_matrix() -> None:
    network = Odd()
    matrices, others = split(network)
    names = {id(weight): name for name, weight in network.named_parameters()}
    assert [names[id(weight)] for weight in matrices] == ["hidden.weight"]
    assert len(others) == len(names) - 1


def test_to_look_at_a_model_does_not_change_it() -> None:
    """A spectral norm goes on with its iteration whenever its weight is asked for."""
    network = nn.Sequential(nn.Linear(4, 4), nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)))
    before = copy.deepcopy(network.state_dict())
    split(network)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_half_precision_does_not_overflow() -> None:
    step = torch.randn(64, 200, generator=torch.Generator().manual_seed(3)).mul(3000).half()
    found = orthogonal(step)
    assert found.dtype == torch.float16
    assert torch.linalg.svdvals(found.float()).min() > 0.6


def test_frozen_weights_and_embeddings_are_no_matrices() -> None:
    network = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    network[1].weight.requires_grad_(False)
    matrices, others = split(network)
    assert [id(weight) for weight in matrices] == [id(network[2].weight)]
    assert id(network[1].weight) not in {id(weight) for weight in others}
    assert id(network[0].weight) in {id(weight) for weight in others}


@pytest.mark.parametrize("name", ["resnet18", "vgg11"])
def test_of_the_built_in_models_all_kernels_are_matrices(name: str) -> None:
    network = build_model(name, classes=10, shape=(3, 32, 32), seed=0)
    matrices, _ = split(network)
    kernels = [layer.weight for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert [id(weight) for weight in matrices] == [id(weight) for weight in kernels]


@pytest.mark.parametrize("nesterov", [False, True])
def test_what_is_no_matrix_follows_torchs_sgd(nesterov: bool) -> None:
    ours, theirs = model(), model()
    mine = muon(ours, nesterov=nesterov, weight_decay=0.1)
    sgd = torch.optim.SGD(split(theirs)[1], lr=RATE, momentum=MOMENTUM, nesterov=nesterov)
    for seed in range(3):
        with_gradients(ours, seed)
        with_gradients(theirs, seed)
        mine.step()
        sgd.step()
    for one, other in zip(split(ours)[1], split(theirs)[1], strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=0)


def test_a_step_of_a_kernel_is_the_rate_times_its_orthogonal_momentum() -> None:
    network = model()
    before = network.convolution.weight.detach().clone()
    optimizer = muon(network, weight_decay=0.5)
    with_gradients(network, 0)
    gradient = network.convolution.weight.grad
    assert gradient is not None
    optimizer.step()
    # The first momentum is the gradient itself, and Nesterov's adds it once more: the same direction.
    expected = before * (1 - RATE * 0.5) - RATE * orthogonal(gradient)
    assert torch.allclose(network.convolution.weight, expected, rtol=1e-9, atol=1e-12)


def test_a_kernel_in_channels_last_memory_changes_as_any_other() -> None:
    plain, last = model(), model()
    last.convolution.weight.data = last.convolution.weight.data.contiguous(memory_format=torch.channels_last)
    for network in (plain, last):
        optimizer = muon(network)
        for seed in range(2):
            with_gradients(network, seed)
            optimizer.step()
    assert torch.allclose(plain.convolution.weight, last.convolution.weight, rtol=1e-12, atol=0)
    assert last.convolution.weight.is_contiguous(memory_format=torch.channels_last)


def test_goes_on_from_its_state_bit_for_bit() -> None:
    network = model()
    optimizer = muon(network)
    with_gradients(network, 0)
    optimizer.step()
    copied = copy.deepcopy(network)
    other = muon(copied)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, its in ((network, optimizer), (copied, other)):
        with_gradients(one, 1)
        its.step()
    for weight, its_copy in zip(network.parameters(), copied.parameters(), strict=True):
        assert torch.equal(weight, its_copy)


def test_bf16_is_near_the_arithmetic_of_the_weights() -> None:
    step = torch.randn(32, 100, generator=torch.Generator().manual_seed(2))
    exact, rounded = orthogonal(step), orthogonal(step, torch.bfloat16)
    assert rounded.dtype == step.dtype
    assert (exact - rounded).norm() / exact.norm() < 0.05
