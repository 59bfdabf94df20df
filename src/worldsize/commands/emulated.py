"""Emulated hosts for commands: a process that makes their networks, and keeps them until it is no longer needed."""

import json
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

from worldsize.config import Hosts
from worldsize.errors import UsageError
from worldsize.launch.hosts import address, build

PORT = 29500
"""Where the ranks of several hosts meet: the networks are private to a run."""


class EmulatedHosts:
    """Networks of some hosts, each known by a process that lives there; they go with `close`, or with this process."""

    def __init__(self, hosts: Hosts) -> None:
        """Make them; raises UsageError where the kernel or the tools refuse."""
        command = [sys.executable, "-m", "worldsize.commands.emulated"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{hosts.model_dump_json()}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "emulated hosts cannot be made"}')
        if "error" in answer:
            self.close()
            raise UsageError(answer["error"])
        self.networks: list[int] = answer["networks"]
        """A process in the network of each host."""

    @property
    def first(self) -> str:
        """The address of the first host."""
        return address(0)

    def close(self) -> None:
        """Let the networks go."""
        with suppress(OSError):
            self._process.communicate(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def main() -> None:
    """Make the hosts that stdin names; keep them until it ends."""
    hosts = Hosts.model_validate_json(sys.stdin.readline())
    try:
        answer: dict[str, object] = {"networks": build(hosts)}
    except UsageError as error:
        answer = {"error": str(error)}
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
