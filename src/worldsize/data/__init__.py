"""The data sets, and the batches that a rank trains and tests on."""

from collections.abc import Callable

from worldsize.config import TrainingSettings
from worldsize.data.batches import Batches, test_batches, training_batches
from worldsize.data.cifar10 import load_cifar10
from worldsize.data.digits import load_digits
from worldsize.data.order import draws, epoch_order
from worldsize.data.sets import DataSet, ImageArrays, MapStyle, TensorPair, Transform
from worldsize.data.synthetic import load_synthetic
from worldsize.data.user import load_user
from worldsize.errors import UnknownNameError
from worldsize.factories import GRAMMAR

DATA_SETS: dict[str, Callable[[TrainingSettings], DataSet]] = {
    "digits": load_digits,
    "cifar10": load_cifar10,
    "synthetic": load_synthetic,
}
"""Name on the command line → what loads it. A new data set is one function and one line here."""

__all__ = [
    "DATA_SETS",
    "Batches",
    "DataSet",
    "ImageArrays",
    "MapStyle",
    "TensorPair",
    "Transform",
    "draws",
    "epoch_order",
    "load_data",
    "test_batches",
    "training_batches",
]


def load_data(settings: TrainingSettings) -> DataSet:
    """Load the data set that the settings name, from memory, disk, the network, or the user's factory.

    Raises UnknownNameError, DataError (missing, truncated, corrupt, wrong specification) or FactoryError.
    """
    name, _, options = settings.data.partition(":")
    if name == "synthetic" or (name in DATA_SETS and not options):
        return DATA_SETS[name](settings).cut(settings.train_samples, settings.test_samples)
    if ":" in settings.data and name not in DATA_SETS:
        return load_user(settings).cut(settings.train_samples, settings.test_samples)
    raise UnknownNameError("data set", settings.data, DATA_SETS, f"For data of your own give {GRAMMAR}.")
