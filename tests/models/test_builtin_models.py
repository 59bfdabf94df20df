import math
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from worldsize.config import TrainingSettings
from worldsize.data import load_data, training_batches
from worldsize.errors import UnknownNameError, UsageError
from worldsize.models import MODELS, build_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work on one thread: two of them on a busy machine mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("name", "parameters"), [("resnet18", 11_173_962), ("vgg11", 9_231_114)])
def test_the_number_of_parameters_is_the_published_one(name: str, parameters: int) -> None:
    model = build_model(name, classes=10, shape=(3, 32, 32), seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (4, 7, 45), (3, 40, 64), (3, 1, 1)])
def test_any_image_shape_gives_one_logit_per_class(name: str, shape: tuple[int, int, int]) -> None:
    model = build_model(name, classes=7, shape=shape, seed=0)
    assert model(torch.zeros(2, *shape).contiguous(memory_format=torch.channels_last)).shape == (2, 7)
    with torch.device("meta"):
        usual = build_model(name, classes=7, shape=(shape[0], 32, 32), seed=0)
    sizes = [[parameter.shape for parameter in each.parameters()] for each in (model, usual)]
    assert sizes[0] == sizes[1], "height and width change no parameter"


@pytest.mark.parametrize("name", MODELS)
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    def weights(seed: int) -> list[torch.Tensor]:
        return [*build_model(name, classes=10, shape=(3, 32, 32), seed=seed).state_dict().values()]

    torch.rand(5)
    first = weights(3)
    torch.rand(5)
    assert all(torch.equal(a, b) for a, b in zip(first, weights(3), strict=True))
    assert not torch.equal(first[0], weights(4)[0])


@pytest.mark.parametrize("name", MODELS)
def test_the_first_weights_have_the_scale_that_the_papers_give(name: str) -> None:
    model = build_model(name, classes=10, shape=(3, 32, 32), seed=0)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)
            assert module.bias is None or not module.bias.any()
    inputs, labels = torch.randn(16, 3, 32, 32), torch.arange(16) % 10
    assert F.cross_entropy(model(inputs), labels).item() == pytest.approx(math.log(10), rel=0.3)


def test_the_resolution_of_resnet18_is_that_of_the_paper_for_small_images() -> None:
    model = build_model("resnet18", classes=10, shape=(3, 32, 32), seed=0)
    sizes: list[tuple[int, ...]] = []
    for module in model.modules():
        if type(module).__name__ == "BasicBlock":
            module.register_forward_hook(lambda _module, _inputs, output: sizes.append(tuple(output.shape[1:])))
    model(torch.zeros(2, 3, 32, 32))
    stages = [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert sizes == [size for size in stages for _ in range(2)]


@pytest.mark.parametrize("name", MODELS)
def test_it_learns_at_once_at_the_learning_rate_of_the_experiments(name: str) -> None:
    data = load_data(TrainingSettings(data="digits"))
    batches = training_batches(data, loader="batched", loader_workers=0, seed=0, global_batch=32, share=slice(0, 32))
    inputs, labels = next(batches.epoch(0))
    inputs = F.avg_pool2d(inputs, 4)  # the size that the digits were scanned in: a sixteenth of the work
    model = build_model(name, classes=10, shape=(3, 8, 8), seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert max(losses) < 1.1 * losses[0], "with torch's own first weights the loss of resnet18 triples"
    assert losses[-1] < 0.5 * losses[0]


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'resnet19'; known: resnet18, vgg11\n.*torchvision:NAME"):
        build_model("resnet19", classes=10, shape=(3, 32, 32), seed=0)


@pytest.mark.parametrize("name", MODELS)
def test_samples_that_are_no_images_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} takes images C×H×W, and the samples are 20"):
        build_model(name, classes=10, shape=(20,), seed=0)


def test_the_loss_of_vgg11_is_not_steep_where_it_starts() -> None:
    """Its classifier sees features that are all positive: at full scale SGD diverges from a rate of 0.07 on."""
    model = build_model("vgg11", classes=10, shape=(3, 32, 32), seed=0)
    inputs = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    features = model.pool(model.features(inputs)).flatten(1)  # type: ignore[operator]
    # Softmax at ten equal classes has the eigenvalue 0.1; momentum 0.9 is stable up to 2·(1 + 0.9) ÷ rate.
    curvature = 0.1 * features.mean(0).square().sum().item()
    assert curvature * 0.8 < 2 * (1 + 0.9), "stable at eight times the learning rate of the experiments"
