"""How the hook comes into a program that knows nothing of it: by a sitecustomize, which hides none."""

import os
from pathlib import Path

import pytest

from hooked import ran

SAYS = "import sys\nsys.theirs = getattr(sys, 'theirs', 0) + 1\n"
THEIRS = {
    "there is none": None,
    "it sets something": SAYS,
    "it raises": f"{SAYS}raise ValueError('of theirs')\n",
    "it imports what is not there": f"{SAYS}import nowhere_at_all\n",
    "it prints": f"{SAYS}print('hello from theirs')\n",
}
LOOKS = """
import sys
print(getattr(sys, "theirs", None), sys.path, "torch" in sys.modules)
if hasattr(sys, "theirs"):
    print(getattr(sys.modules.get("sitecustomize"), "__file__", None))
"""


@pytest.mark.parametrize("theirs", THEIRS.values(), ids=THEIRS)
def test_a_sitecustomize_of_the_environment_does_what_it_would_do(tmp_path: Path, theirs: str | None) -> None:
    """Whatever it is: what the program prints, and finds, is the same with the hook and without."""
    place = tmp_path / "theirs"
    place.mkdir()
    if theirs is not None:
        (place / "sitecustomize.py").write_text(theirs)
    here = ran(tmp_path, LOOKS, place)
    alone = ran(tmp_path, LOOKS, place, hooked=False)
    assert (here.out, here.err, here.status) == (alone.out, alone.err, 0)
    assert here.out.splitlines()[-1 if theirs is None else -2].startswith("None" if theirs is None else "1 ")


def test_a_program_without_torch_is_not_touched(tmp_path: Path) -> None:
    found = ran(tmp_path, "import json, logging, sys\nprint('torch' in sys.modules, 'builtins' == print.__module__)\n")
    assert found.out == "False True\n"
    assert (found.err, found.files) == ("", set())


def test_without_its_variable_the_hook_does_nothing(tmp_path: Path) -> None:
    """A program may start others with an environment that has only a part of its own."""
    code = "import sys\nprint([each for each in sys.modules if 'worldsize' in each], len(sys.meta_path))\n"
    found = ran(tmp_path, code, WORLDSIZE_HOOK="")
    assert found.out == ran(tmp_path, code, hooked=False).out
    assert found.files == set()


def test_a_folder_that_is_not_there_is_not_seen_by_the_program(tmp_path: Path) -> None:
    code = "import torch\nprint(torch.ones(1))\n"
    found = ran(tmp_path, code, WORLDSIZE_HOOK=os.fspath(tmp_path / "gone"))
    assert (found.out, found.err, found.status) == ("tensor([1.])\n", "", 0)
    assert not (tmp_path / "gone").exists()
