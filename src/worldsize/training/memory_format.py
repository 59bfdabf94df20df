"""How the weights and activations of a model lie in memory."""

from typing import Any

import torch
from torch import Tensor, nn

SMALL_MAP = 16
"""Positions of a convolution's output (4×4) up to which oneDNN's kernels for channels-last memory are the slower.

Steps of ResNet-18 gain 7 %, of VGG-11 29 % (benchmarks/layout.py, b = 32).
"""


def in_memory_format(model: nn.Module, shape: tuple[int, ...], device: torch.device) -> nn.Module:
    """Put a model on its device, in the memory format that its convolutions are fastest in; it changes no number.

    channels-last everywhere (torch's channels-last tutorial), but on a CPU for convolutions with small outputs:
    one forward pass of one sample of `shape` finds them.
    """
    # Both calls work in place; their typing knows only one of the two arguments at a time.
    model = model.to(device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cpu":
        for convolution in _with_small_outputs(model, shape):
            convolution.weight.data = _standard(convolution.weight.data)
            # One argument in channels-last is enough for torch to choose it.
            convolution.register_forward_pre_hook(_contiguous)
    return model


def _with_small_outputs(model: nn.Module, shape: tuple[int, ...]) -> list[nn.Conv2d]:
    small: dict[nn.Module, bool] = {}

    def look(module: nn.Module, _: Any, output: Any) -> None:
        # One that is used at several scales must be small at all of them.
        small[module] = small.get(module, True) and output.shape[-2:].numel() <= SMALL_MAP

    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    modes = {module: module.training for module in model.modules()}
    hooks = [module.register_forward_hook(look) for module in convolutions]
    try:
        if convolutions:
            with torch.no_grad():
                # In eval mode, so that the probe leaves no trace in the BatchNorm statistics.
                model.eval()(torch.zeros(1, *shape))
    except Exception:
        return []  # a model that cannot take this sample says so in its first step, where the user looks for it
    finally:
        for module, mode in modes.items():
            module.training = mode  # one by one: some may be frozen in eval mode on purpose
        for hook in hooks:
            hook.remove()
    return [module for module in convolutions if small.get(module)]


def _contiguous(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_standard(each) if isinstance(each, Tensor) else each for each in inputs)


def _standard(tensor: Tensor) -> Tensor:
    """The same values with the strides of a contiguous tensor.

    Where a dimension has one element, `contiguous()` calls the strides of channels-last memory contiguous as well
    and leaves them, and torch takes the kernels for channels-last by these strides.
    """
    wanted = torch.empty(tensor.shape, device="meta").stride()
    return tensor if tensor.stride() == wanted else tensor.clone(memory_format=torch.contiguous_format)
