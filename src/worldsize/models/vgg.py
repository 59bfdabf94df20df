"""VGG-11 for small images, after Simonyan and Zisserman, arXiv:1409.1556 (configuration A).

With BatchNorm after each convolution, and one linear layer of 512 inputs in place of the three large ones, as is
usual for 32×32 images.
"""

from torch import Tensor, nn

from worldsize.models.layers import image_channels, initialise

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""Output channels of the convolutions; each stage ends in a max-pooling (table 1, column A)."""
LAST_SCALE = 0.25
"""Weight with which the last BatchNorm starts, in place of 1. The classifier sees 512 features that are all positive,
so the loss is steep along their mean: at 1 its curvature is about 0.1·512, and SGD with momentum 0.9 diverges from a
learning rate of about 0.07 on. A quarter makes the curvature a sixteenth, and rates beyond 1 start without harm."""


class VGG11(nn.Module):
    """Eight convolutions in five stages, and the classifier."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for stage in STAGES:
            for width in stage:
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                inputs = width
            # Rounded up, an image below 32×32 still has a pixel left after five halvings.
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)  # does nothing at 32×32, where one pixel is left
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(self.features(x)).flatten(1)
        logits: Tensor = self.classifier(features)
        return logits


def vgg11(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """VGG-11 for samples of (C, H, W), any height and width; 9,231,114 parameters with 3 channels, 10 classes."""
    model = VGG11(classes, image_channels("vgg11", shape))
    initialise(model)
    last = [module for module in model.features if isinstance(module, nn.BatchNorm2d)][-1]
    nn.init.constant_(last.weight, LAST_SCALE)
    return model
