"""A process that has loaded torch and worldsize once, and forks a process for each training loop that it is told of.

Each line of stdin is a JSON object: the script, its folder, and the variables of each of its processes. What they
print, and their exit statuses, are the answer, a line as well.
"""

import atexit
import json
import os
import runpy
import sys
import tempfile
import threading
import traceback
from typing import IO, Any, Never

import torch._dynamo  # what the first optimizer loads
import torch.distributed  # noqa: F401

import worldsize.metering.run_folder  # noqa: F401 - what a meter loads


def _be(script: str, folder: str, variables: dict[str, str], said: IO[str]) -> Never:
    """Run the script as `python SCRIPT` does."""
    status = 1
    try:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        os.environ.update(variables)
        os.chdir(folder)
        sys.argv, sys.path[0] = [script], folder
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as said:
        children = []
        for variables in order["processes"]:
            child = os.fork()
            if not child:
                _be(order["script"], order["folder"], variables, said)
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        said.seek(0)
        return {"statuses": statuses, "said": said.read()}


if __name__ == "__main__":
    assert threading.active_count() == 1, "threads do not survive a fork"
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(json.loads(line))) + "\n")
        sys.stdout.flush()
