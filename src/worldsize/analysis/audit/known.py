"""What anybody can look up: sizes of data sets, parameters of models, peaks of links. Data alone."""

import re
from typing import NamedTuple


class DataSet(NamedTuple):
    """Samples to train and to test, and classes."""

    train: int
    test: int
    classes: int


DATA_SETS = {
    r"cifar-?\s?100\b": DataSet(50_000, 10_000, 100),
    r"cifar-?\s?10\b": DataSet(50_000, 10_000, 10),
    r"tiny-?\s?imagenet": DataSet(100_000, 10_000, 200),
    r"imagenet-?\s?(?:1k|2012|\b)|ilsvrc": DataSet(1_281_167, 50_000, 1_000),
    r"fashion-?\s?mnist": DataSet(60_000, 10_000, 10),
    r"\bmnist": DataSet(60_000, 10_000, 10),
    r"svhn": DataSet(73_257, 26_032, 10),
}
"""Pattern of the name; the first that is found counts."""


class Network(NamedTuple):
    """For each variant: parameters before the last layer, and its inputs; without inputs the count is of the whole."""

    variants: dict[str, tuple[int, int]]

    def counts(self) -> dict[tuple[str, int], int]:
        """Parameters for each variant and each usual number of classes (0: it has none)."""
        return {
            (variant, many): body + many * (features + 1)
            for variant, (body, features) in self.variants.items()
            for many in ((1000, 100, 10, 200) if features else (0,))
        }


def _residual(imagenet: int, cifar: int, features: int) -> Network:
    return Network({"ImageNet stem": (imagenet, features), "CIFAR stem": (cifar, features)})


def _vgg(convolutions: int, normalised: int) -> Network:
    """Two wide layers at the end, or for small images one of 512 inputs alone; without and with BatchNorm."""
    wide = 512 * 49 * 4096 + 4096 + 4096 * 4096 + 4096
    return Network(
        {
            "ImageNet layers": (convolutions + wide, 4096),
            "ImageNet layers, BatchNorm": (normalised + wide, 4096),
            "one linear layer": (convolutions, 512),
            "one linear layer, BatchNorm": (normalised, 512),
        }
    )


NETWORKS = {
    "resnet18": _residual(11_176_512, 11_168_832, 512),
    "resnet34": _residual(21_284_672, 21_276_992, 512),
    "resnet50": _residual(23_508_032, 23_500_352, 2048),
    "resnet101": _residual(42_500_160, 42_492_480, 2048),
    "resnet152": _residual(58_143_808, 58_136_128, 2048),
    "vgg11": _vgg(9_220_480, 9_225_984),
    "vgg16": _vgg(14_714_688, 14_723_136),
    "vgg19": _vgg(20_024_384, 20_035_392),
    "densenet121": Network({"ImageNet stem": (6_953_856, 1024)}),
    "mobilenetv2": Network({"ImageNet stem": (2_223_872, 1280)}),
    "alexnet": Network({"one tower": (57_003_840, 4096)}),
    "gpt2small": Network({"small": (124_439_808, 0)}),
    "gpt2medium": Network({"medium": (354_823_168, 0)}),
    "gpt2large": Network({"large": (774_030_080, 0)}),
    "gpt2xl": Network({"XL": (1_557_611_200, 0)}),
    "bertbase": Network({"uncased": (109_482_240, 0), "cased": (108_310_272, 0)}),
    "bertlarge": Network({"uncased": (335_141_888, 0), "cased": (333_579_264, 0)}),
}
"""By name without signs; torchvision's and transformers' own counts. CIFAR stem: one 3×3 convolution, no pooling."""


def network_in(text: str) -> str | None:
    """The known network that a text names; None for none or several."""
    plain = re.sub(r"[\s_-]", "", text.lower())
    found = {name for name in NETWORKS if re.search(rf"{name}(?!\d)", plain)}
    return found.pop() if len(found) == 1 else None


LINKS_BYTES_PER_S = {
    r"\b10\s?gb?(?:it)?(?:/s|ps)?[ -]?(?:ethernet|e\b)|\b10gbe": 1.25e9,
    r"\b25\s?gb?(?:it)?(?:/s|ps)?[ -]?(?:ethernet|e\b)|\b25gbe": 3.125e9,
    r"\b40\s?gb?(?:it)?(?:/s|ps)?[ -]?(?:ethernet|e\b)|\b40gbe": 5e9,
    r"\b100\s?gb?(?:it)?(?:/s|ps)?[ -]?(?:ethernet|e\b|infiniband|edr)|\b100gbe": 12.5e9,
    r"\b1\s?gb?(?:it)?(?:/s|ps)?[ -]?(?:ethernet|e\b)|\bgigabit ethernet|\b1gbe": 0.125e9,
}
"""Peak of the links that tables name, one way."""
