"""Two emulated hosts that stay while a test runs commands on them.

Run as a script it makes them, says the process of each, and holds them until its stdin ends.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from worldsize.config import Hosts
from worldsize.launch import hosts

ADDRESSES = tuple(hosts.address(host) for host in range(2))


@contextlib.contextmanager
def two_hosts() -> Iterator[list[list[str]]]:
    """For each host the beginning of a command that runs there."""
    keeper = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert keeper.stdout is not None
        yield [["nsenter", "--target", process, "--net"] for process in keeper.stdout.readline().split()]
    finally:
        keeper.communicate()


def on_each(commands: Sequence[Sequence[str]], folder: Path) -> list[str]:
    """Run commands at the same time, to their ends; what each wrote."""
    running = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    try:
        said = [process.communicate(timeout=200)[0] for process in running]
    finally:
        for process in running:
            process.kill()  # one waits for another that has failed
            process.communicate()
    assert [process.returncode for process in running] == [0] * len(running), said
    return said


if __name__ == "__main__":
    sys.stdout.write(" ".join(map(str, hosts.build(Hosts(count=2)))) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
