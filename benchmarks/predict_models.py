"""Small models whose bytes and computing are far apart, for predict.py."""

from itertools import pairwise

from torch import nn

WIDTH, LAYERS = 192, 80


def small_layers() -> nn.Module:
    """80 layers of 192 × 192 (148 KB): 12 MB in 162 tensors, next to no computing."""
    first = (nn.Conv2d(3, 12, 8, stride=8), nn.Flatten())
    hidden = (layer for _ in range(LAYERS - 1) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))
    return nn.Sequential(*first, *hidden, nn.Linear(WIDTH, 10))


def convolutions() -> nn.Module:
    """Six convolutions that compute, and three layers that hold 7 MB: as much to compute as to send."""
    widths = (3, 32, 32, 64, 64, 128, 128)
    layers: list[nn.Module] = []
    for number, (narrow, wide) in enumerate(pairwise(widths)):
        layers += [nn.Conv2d(narrow, wide, 3, stride=1 + number % 2, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
    head = (nn.Flatten(), nn.Linear(128 * 4 * 4, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return nn.Sequential(*layers, *head)
