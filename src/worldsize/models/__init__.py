"""The models: built-in, from torchvision, or the user's own."""

from collections.abc import Callable

import torch
from torch import nn

from worldsize.errors import UnknownNameError
from worldsize.factories import GRAMMAR
from worldsize.models.describe import count_model, describe_model
from worldsize.models.resnet import resnet18
from worldsize.models.user import torchvision_model, user_model
from worldsize.models.vgg import vgg11

MODELS: dict[str, Callable[[int, tuple[int, ...]], nn.Module]] = {
    "resnet18": resnet18,
    "vgg11": vgg11,
}
"""Name on the command line → what builds it from (classes, shape). A new model is one function and one line here."""

__all__ = ["MODELS", "build_model", "count_model", "describe_model"]


def build_model(name: str, *, classes: int, shape: tuple[int, ...], seed: int) -> nn.Module:
    """Build a model for samples of `shape` (C, H, W), its weights drawn from `seed`.

    `name` is in MODELS, `torchvision:NAME`, or a user's factory by reference. Torch's global generator is seeded
    and stays so: the same seed gives the same weights, and the same dropout after them. Raises UnknownNameError,
    UsageError or FactoryError.
    """
    torch.manual_seed(seed)
    if name in MODELS:
        return MODELS[name](classes, shape)
    if name.startswith("torchvision:"):
        return torchvision_model(name.removeprefix("torchvision:"), classes, shape)
    if ":" in name:
        return user_model(name, classes, shape)
    hint = f"Also torchvision:NAME, or a model of your own as {GRAMMAR}."
    raise UnknownNameError("model", name, MODELS, hint)
