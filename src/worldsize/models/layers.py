"""What the built-in models share: how their weights start, and which inputs they take."""

from torch import nn

from worldsize.errors import UsageError


def initialise(model: nn.Module) -> None:
    """He initialisation of convolutions, BatchNorm as the identity, a classifier that starts near zero.

    The last keeps the first losses near ln(classes) at the large learning rates of the experiments. Sources: He,
    Zhang, Ren, Sun, arXiv:1502.01852, §2.2 (fan-out, normal); Goyal et al., arXiv:1706.02677, §5.1 (classifier).
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)


def image_channels(name: str, shape: tuple[int, ...]) -> int:
    """C of a (C, H, W) sample; raise UsageError for samples that are not images."""
    if len(shape) != 3:
        given = "×".join(str(size) for size in shape)
        raise UsageError(f"{name} takes images C×H×W, and the samples are {given}; give a --model that takes these")
    return shape[0]
