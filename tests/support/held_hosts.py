"""Emulated hosts that stay while a test runs commands on them.

Run as a script it makes one for each rate, says the process of each, and holds them until its stdin ends.
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
def held_hosts(*rates_bits_per_s: int) -> Iterator[list[list[str]]]:
    """For each host the beginning of a command that runs there; a rate of 0 is as fast as the kernel goes."""
    command = [sys.executable, __file__, *map(str, rates_bits_per_s)]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert keeper.stdout is not None
        yield [["nsenter", "--target", process, "--net"] for process in keeper.stdout.readline().split()]
    finally:
        keeper.communicate()


def two_hosts() -> contextlib.AbstractContextManager[list[list[str]]]:
    """The same for two hosts whose links are as fast as can be."""
    return held_hosts(0, 0)


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


def _hold(rates_bits_per_s: Sequence[int]) -> None:
    own = {host: rate for host, rate in enumerate(rates_bits_per_s) if rate}
    processes = hosts.build(Hosts(count=len(rates_bits_per_s), own_rates=own))
    sys.stdout.write(" ".join(map(str, processes)) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _hold([int(rate) for rate in sys.argv[1:]])
