"""Join a Ray cluster that runs, quietly, and leave it as if we had not been there."""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.exceptions import RayError

from worldsize.errors import UsageError

PATIENCE_S = 5.0
"""How long a cluster may take to answer at all; Ray itself would try for more than a minute."""
DEBUGGER = "PYTHONBREAKPOINT"


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Be a driver of the cluster at this address, that RAY_ADDRESS names, or that runs here, for this context.

    Raises UsageError where there is none.
    """
    wanted = address or os.environ.get("RAY_ADDRESS") or "auto"
    _check_answers(wanted)
    try:
        with _unchanged():
            ray.init(address=wanted, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        raise _no_cluster(wanted, "none runs here" if wanted == "auto" else "it does not answer") from None
    except (RayError, RuntimeError, ValueError, OSError) as error:
        raise _no_cluster(wanted, first_line(error)) from None
    try:
        yield
    finally:
        with _unchanged():
            ray.shutdown()


def first_line(error: Exception) -> str:
    """What Ray says, without the many lines of its own stack."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _check_answers(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, f"it does not answer: {getattr(error, 'strerror', None) or error}") from None


def _no_cluster(address: str, why: str) -> UsageError:
    where = "" if address == "auto" else f" at {address}"
    return UsageError(
        f"no Ray cluster{where}: {why}\n"
        "Run this on a node of the cluster, or start one: `ray start --head`; --address HOST:PORT names another."
    )


@contextmanager
def _unchanged() -> Iterator[None]:
    """Ray gives a driver its own debugger, hook for exceptions, and handler of SIGTERM, which exits: not ours."""
    hook, debugger, handler = sys.excepthook, os.environ.get(DEBUGGER), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        sys.excepthook = hook
        os.environ.pop(DEBUGGER, None)
        if debugger is not None:
            os.environ[DEBUGGER] = debugger
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
