"""ResNet-18 for small images, after He, Zhang, Ren, Sun, "Deep residual learning", arXiv:1512.03385.

The blocks are those of the paper's ResNet-18; as in its CIFAR-10 networks (§4.2) the stem is one 3×3 convolution
without max-pooling, so that 32×32 images keep their size until the second stage.
"""

from torch import Tensor, nn

from worldsize.models.layers import image_channels, initialise

WIDTHS = (64, 128, 256, 512)
BLOCKS_PER_STAGE = 2


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut (§3.3); the shortcut is projected where the shape changes (option B)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        residual = self.relu(self.norm1(self.conv1(x)))
        residual = self.norm2(self.conv2(residual))
        residual += self.shortcut(x)
        result: Tensor = self.relu(residual)
        return result


class ResNet18(nn.Module):
    """18 layers with weights: the stem, eight blocks of two in four stages, and the classifier."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(inplace=True),
        )
        blocks = []
        inputs = WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for block in range(BLOCKS_PER_STAGE):
                halves = stage > 0 and block == 0  # the first block of a later stage halves height and width
                blocks.append(BasicBlock(inputs, width, stride=2 if halves else 1))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(self.blocks(self.stem(x))).flatten(1)
        logits: Tensor = self.classifier(features)
        return logits


def resnet18(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """ResNet-18 for samples of (C, H, W), any height and width; 11,173,962 parameters with 3 channels, 10 classes."""
    model = ResNet18(classes, image_channels("resnet18", shape))
    initialise(model)
    for module in model.modules():
        if isinstance(module, BasicBlock):
            # Each block starts as its shortcut (Goyal et al., arXiv:1706.02677, §5.1): without this the loss rises
            # several times over in the first steps at learning rate 0.1.
            nn.init.zeros_(module.norm2.weight)
    return model
