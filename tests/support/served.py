"""A warm server that the tests of a session share with the commands they start: torch is loaded once."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from worldsize.launch.environment import quick_environment
from worldsize.launch.warm import ALL_STAGES, SERVER

HERE = Path(__file__).parent
ITS_OWN = {SERVER: ""}
"""For a command that is to begin its own server, as a user's does."""
PATIENCE_S = 60.0


@contextlib.contextmanager
def serving() -> Iterator[None]:
    """Let every process that is started in this context find the server, and the modules in this folder."""
    before = {name: os.environ.get(name) for name in (SERVER, "PYTHONPATH")}
    path = dict.fromkeys([str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    with tempfile.TemporaryDirectory(prefix="worldsize-tests-") as folder:
        socket = Path(folder) / "server"
        server = subprocess.Popen(
            [sys.executable, "-m", "worldsize.launch.server", str(socket), str(ALL_STAGES)],
            env={**os.environ, **quick_environment()},
            stdin=subprocess.DEVNULL,
        )
        try:
            until = time.monotonic() + PATIENCE_S
            while not socket.exists():
                assert server.poll() is None, "the server has ended"
                assert time.monotonic() < until
                time.sleep(0.01)
            os.environ[SERVER] = str(socket)
            yield
        finally:
            server.kill()
            server.wait()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
