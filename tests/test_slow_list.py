"""Each test that tests/slow.txt leaves out exists, and its file keeps another one."""

import re

import pytest

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
