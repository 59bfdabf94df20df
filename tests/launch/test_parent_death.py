"""A process ends with the one that started it, also if that one ended first."""

import os
import subprocess
import sys

import pytest

START = "import os; from worldsize.parent_death import end_with_parent; "


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel offers this on Linux only")
def test_a_process_whose_parent_ended_before_it_could_ask_ends_itself() -> None:
    ended = os.getpid() + 1  # anything but the parent: that is what a process sees whose parent has gone
    done = subprocess.run([sys.executable, "-c", f"{START} end_with_parent({ended}); print('on')"], capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_process_with_its_parent_goes_on() -> None:
    code = f"{START} end_with_parent(os.getppid()); print('on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "on\n")
