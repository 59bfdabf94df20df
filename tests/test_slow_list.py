"""Each test that tests/slow.txt leaves out exists, and its file keeps another one; so do the places of conftest.py."""

import re

import pytest
from conftest import COMPUTED, FIRST, QUIET, TOGETHER

from slow_tests import LIST, listed


@pytest.mark.parametrize("name", [name for _, name in listed()])
def test_it_is_there_and_not_alone(name: str) -> None:
    file, _, test = name.partition("::")
    code = (LIST.parents[1] / file).read_text()
    defined = re.findall(r"def (test_\w+)", code)
    plain = test.partition("[")[0]
    assert not plain or plain in defined
    left_out = {each.partition("::")[2] for _, each in listed() if each.startswith(f"{file}::")}
    assert set(defined) - left_out, "all of its file would be left out"


@pytest.mark.parametrize("place", [*TOGETHER, *FIRST, *QUIET, *COMPUTED])
def test_a_place_that_has_its_own_turn_is_there(place: str) -> None:
    assert (LIST.parent / place).exists()
