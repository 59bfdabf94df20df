"""A model with as many parameters to synchronise as ResNet-18 and next to no work: its steps are all overhead."""

from torch import Tensor, nn

LAYERS = 31
"""With weight and bias each: 62 tensors, as in ResNet-18."""


def model() -> nn.Module:
    """Class scores from the mean of an image, through many layers of one number."""
    return nn.Sequential(MeanOnly(), *(nn.Linear(1, 1) for _ in range(LAYERS - 1)), nn.Linear(1, 10))


class MeanOnly(nn.Module):
    """b×C×H×W → b×1."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((1, 2, 3)).unsqueeze(1)
