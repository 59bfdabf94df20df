"""Where a script is held between two of its steps, while others have their turns.

The script has the main thread of its process, as it would by itself: handlers of signals are set there. The loop that
gives it its turns (ranks/loop.py) is a second thread. One of the two runs at a time.
"""

import threading

from worldsize.errors import UsageError


class Gate:
    """Lets the script through step by step."""

    def __init__(self) -> None:
        # Two locks, which either thread may release: semaphores take twice as long, 32 µs to and fro on one core.
        self._go, self._there = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._there.acquire()
        self._error: Exception | None = None
        self.left = False
        """Whether the script has come to its end, well or not: its thread then waits for what is made of that."""

    def arrive(self) -> None:
        """The script has ended a step: hold it here until the next one is wanted."""
        self._there.release()
        self._go.acquire()

    def leave(self, error: Exception) -> None:
        """The script is over, and why."""
        self.left = True
        self.fail(error)

    def fail(self, error: Exception) -> None:
        """No step comes any more, and why."""
        self._error = error
        if self._there.locked():
            self._there.release()

    def wait(self, limit_s: float | None = None) -> None:
        """Wait until the script has ended the step that it is in; raise what kept it from that.

        Raises UsageError where that takes longer than `limit_s`.
        """
        if not self._there.acquire(timeout=-1 if limit_s is None else limit_s):
            raise UsageError(
                f"the script has made no step of an optimizer within {limit_s:.0f} s\n"
                "Its optimizer must be one of torch.optim or derived from it, and step in the process that torchrun "
                "would start. If it only begins slowly, give a longer --budget."
            )
        if self._error is not None:
            raise self._error

    def step(self) -> None:
        """Let it go on to the end of its next step."""
        self._go.release()
        self.wait()
