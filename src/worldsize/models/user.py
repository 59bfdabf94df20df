"""Models from outside: a user's factory, and those of torchvision."""

import importlib

import torch
from torch import Tensor, nn

from worldsize.errors import FactoryError, UnknownNameError, UsageError
from worldsize.factories import find_factory, raised

CLASS_PARAMETERS = ("classes", "num_classes")
"""Names under which a factory may take the number of classes."""


def user_model(reference: str, classes: int, shape: tuple[int, ...]) -> nn.Module:
    """Call the user's factory, with the number of classes if it takes it, and try the model once.

    The model takes float32 N×C×H×W (samples of `shape`) and returns at least one logit per class. Raises
    FactoryError for a factory that cannot be found, raises or returns anything else, or a model that does so.
    """
    factory = find_factory(reference, "model")
    model = factory(**{name: classes for name in CLASS_PARAMETERS if factory.accepts(name)})
    if not isinstance(model, nn.Module):
        raise FactoryError(f"{reference} returned {_kind(model)}; allowed: a torch.nn.Module")
    _try_once(model, reference, classes, shape, factory.file)
    return model


def torchvision_model(name: str, classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A classification model of torchvision with fresh weights.

    Raises UsageError if torchvision is not installed, UnknownNameError for a name that it does not have, and
    FactoryError for a model that does not take samples of `shape`.
    """
    try:
        zoo = importlib.import_module("torchvision.models")
    except ImportError as error:
        raise UsageError(
            f"torchvision:{name} needs torchvision, which cannot be imported ({error})\n"
            "Install the release that fits this torch: pip install torchvision"
        ) from None
    known = zoo.list_models(module=zoo)
    if name not in known:
        raise UnknownNameError("torchvision model", name, known)
    model: nn.Module = zoo.get_model(name, weights=None, num_classes=classes)
    _try_once(model, f"torchvision:{name}", classes, shape, None)
    return model


def _try_once(model: nn.Module, reference: str, classes: int, shape: tuple[int, ...], file: str | None) -> None:
    """Two samples through the model, so that what does not fit is said before any worker starts."""
    was_training = model.training
    model.eval()  # BatchNorm must not learn from this
    try:
        with torch.no_grad():
            outputs = model(torch.zeros(2, *shape))
    except Exception as error:
        sizes = "×".join(str(size) for size in shape)
        raise raised(error, f"{reference}: its forward on float32 inputs of 2×{sizes}", file) from error
    finally:
        model.train(was_training)
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or len(outputs) != 2 or outputs.shape[1] < classes:
        raise FactoryError(
            f"{reference}: its output for 2 samples is {_kind(outputs)}; it must be a tensor of 2×{classes}, "
            "one logit per class"
        )


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return "a tensor of " + ("×".join(str(size) for size in value.shape) or "no dimension")
    if value is None:
        return "None"
    return f"the class {value.__name__}, not an instance" if isinstance(value, type) else type(value).__name__
