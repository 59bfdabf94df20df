import pytest

from worldsize.config import TrainingSettings
from worldsize.data import load_data
from worldsize.errors import FactoryError, UnknownNameError


@pytest.mark.parametrize("name", ["cifar100", "", "digits:8", "CIFAR10"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(
        UnknownNameError, match=r"unknown data set .*known: digits, cifar10, synthetic\n.*file\.py:name"
    ):
        load_data(TrainingSettings(data=name))


def test_a_malformed_reference_is_answered_with_the_grammar() -> None:
    with pytest.raises(FactoryError, match=r"package\.module:name or file\.py:name"):
        load_data(TrainingSettings(data="my data:make"))
