"""Models of clock_models.py: small convolutions, large layers, and ResNet-18."""

from torch import nn

from worldsize.models import resnet


def convolutions(classes: int) -> nn.Module:
    """Much to compute and few gradients (0.1 MB)."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, classes),
    )


def large_layers(classes: int) -> nn.Module:
    """Little to compute and many gradients (46 MB)."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 2048), nn.ReLU(), nn.Linear(2048, 2500), nn.Linear(2500, classes)
    )


def resnet18(classes: int) -> nn.Module:
    """The one that comes with worldsize (`--model resnet18`)."""
    return resnet.resnet18(classes, (3, 32, 32))
