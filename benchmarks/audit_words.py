"""What people call the columns of a scaling table, and what they train."""

import random
from dataclasses import dataclass

HEADS: dict[str, tuple[str, ...]] = {
    "n": ("# {N}", "{N}", "Number of {N}", "num_{n}", "N", "World size", "{n} (N)", "No. of {N}"),
    "step": ("Step time ({u})", "Time per step ({u})", "step_time_{u}", "Time/step ({u})", "Iteration time [{u}]"),
    "epoch": ("Epoch time ({u})", "Time/epoch ({u})", "Time per epoch ({u})", "epoch_time_{u}", "Time per epoch [{u}]"),
    "rate": (
        "Throughput ({w}/s)",
        "{w}/s",
        "{w}/sec",
        "Throughput [{w}/sec]",
        "{w} per second",
        "throughput ({w}/sec)",
    ),
    "rate1": ("{w}/s per {one}", "Throughput per {one} ({w}/s)", "{w}/s/{one}", "Per-{one} throughput ({w}/s)"),
    "speedup": ("Speedup", "Speed-up", "speedup", "Speedup (x)", "Relative speedup", "Speed up"),
    "efficiency": ("Efficiency", "Scaling efficiency", "Parallel efficiency", "Efficiency (%)", "Scaling eff. (%)"),
    "b": ("Batch per {one}", "Batch size/{one}", "Local batch size", "Per-{one} batch size", "Batch size per {one}"),
    "B": ("Global batch", "Global batch size", "Total batch size", "Effective batch size", "global_batch_size"),
    "steps": ("Steps per epoch", "Steps/epoch", "Iterations per epoch", "steps_per_epoch"),
    "compute": ("Compute ({u})", "Compute time ({u})", "Computation ({u})", "compute_{u}"),
    "comm": ("Communication ({u})", "Comm. time ({u})", "Communication time ({u})", "comm_{u}"),
    "compute%": ("Compute (%)", "Compute share (%)", "Computation %"),
    "comm%": ("Communication (%)", "Communication share (%)", "Comm. %"),
    "accuracy": ("Test accuracy (%)", "Accuracy (%)", "Test acc. (%)", "Top-1 accuracy (%)"),
    "loss": ("Final loss", "Training loss", "Loss"),
    "params": ("Parameters", "Params", "# Parameters", "Number of parameters"),
    "fraction": ("Karp-Flatt", "Karp–Flatt metric", "Serial fraction (Karp-Flatt)", "Karp-Flatt serial fraction"),
}
NOUNS = (("GPUs", "GPU"), ("GPUs", "GPU"), ("GPUs", "GPU"), ("workers", "worker"), ("processes", "process"))


@dataclass(frozen=True)
class Data:
    """A data set as the words around a table give it."""

    name: str
    train: int
    test: int
    classes: int
    item: str
    """What one sample is called in headings."""
    length: int = 1
    """Tokens of a sample, where throughput counts tokens."""


CIFAR10 = Data("CIFAR-10", 50000, 10000, 10, "images")
IMAGENET = Data("ImageNet", 1281167, 50000, 1000, "images")


@dataclass(frozen=True)
class Model:
    """A model with its parameters for 1000 classes and for 10."""

    name: str
    full: int
    ten: int
    seconds: float
    """Compute of one sample on one worker."""


MODELS = (
    Model("ResNet-18", 11689512, 11181642, 0.9e-3),
    Model("ResNet-50", 25557032, 23528522, 2.6e-3),
    Model("ResNet-101", 44549160, 42520650, 4.3e-3),
    Model("VGG-16", 138357544, 134301514, 4.4e-3),
    Model("AlexNet", 61100840, 57044810, 0.4e-3),
    Model("MobileNetV2", 3504872, 2236682, 0.8e-3),
)
TEXT_MODELS = (
    Model("BERT-base", 109482240, 109482240, 6.1e-3),
    Model("BERT-large", 335141888, 335141888, 17.0e-3),
    Model("GPT-2 small", 124439808, 124439808, 9.0e-3),
)


def drawn_data(rng: random.Random) -> Data:
    """CIFAR-10, ImageNet, or a set that nobody has heard of."""
    kind = rng.random()
    if kind < 0.35:
        return CIFAR10
    if kind < 0.6:
        return IMAGENET
    train = rng.randint(40, 900) * 1000 + rng.choice((0, 0, rng.randint(1, 999)))
    if kind < 0.85:
        name = rng.choice(("our own data set", "the warehouse data set", "the leaf-scan data set"))
        return Data(name, train, rng.choice((1319, 2500, 7813, 10000)), 10, rng.choice(("samples", "images")))
    return Data("a text corpus", train, 5000, 0, "tokens", rng.choice((128, 256, 512)))


def drawn_model(rng: random.Random, data: Data) -> Model:
    """A model that suits the data."""
    return rng.choice(TEXT_MODELS if data.length > 1 else MODELS)


def parameters(model: Model, data: Data) -> int:
    """How many the model has for that data set."""
    return model.ten if data.classes == 10 else model.full


def heading(rng: random.Random, key: str, nouns: tuple[str, str], unit: str = "s", item: str = "images") -> str:
    """One of the ways to head a column."""
    many, one = nouns
    text = rng.choice(HEADS[key])
    if item == "images" and rng.random() < 0.5:
        item = rng.choice(("img", "imgs"))
    if "per second" in text:
        item = item.capitalize()
    return text.format(N=many, n=many.lower(), one=one, u=unit, w=item)
