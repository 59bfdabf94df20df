"""A schedule run to its end, or until the user stops it: then it ends in order, with everything kept."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from worldsize.errors import Interrupted
from worldsize.results.folder import load_run
from worldsize.results.records import Findings
from worldsize.study.bursts import lead_steps, warmup_steps
from worldsize.study.listener import Listener
from worldsize.study.schedule import Schedule


def announce(schedule: Schedule, findings: Findings, listener: Listener) -> None:
    """Tell the listener, and the ledger, how many steps are ahead, or how much time."""
    total, settings, pace = 0, schedule.settings, schedule.pace
    for cell in schedule.cells:
        if settings.epochs is not None:
            steps = settings.epochs * (findings.data.train_samples // cell.settings.global_batch)
            steps -= schedule.ledger.checkpointed_steps(cell)
        elif settings.steps is not None and not pace.budgeted:
            steps = warmup_steps(settings) + pace.most_steps(schedule.samples[cell.id], lead_steps(settings))
        else:
            steps = 0
        schedule.ledger.expect(cell, steps)
        total += steps
    listener.planned(schedule.cells, total, pace.left_s)


@contextmanager
def stoppable(out: Path, *, group: bool = False) -> Iterator[None]:
    """SIGTERM ends a study as Ctrl-C does. Raises Interrupted for both, which says what was kept and how to go on.

    In a `group` that torchrun has started, its agent sends SIGTERM to all of it, also after Ctrl-C, which reached all
    already: what comes after the first is not heard, or it would stop the stopping.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if group:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and it decides for the others
        return
    heard = (signal.SIGTERM, signal.SIGINT) if group else (signal.SIGTERM,)
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(_kept(out)) from None
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is stop:  # what is not heard any more stays so
                signal.signal(number, handler)


def _kept(out: Path) -> str:
    if not (out / "study.json").exists():
        return "stopped before anything was measured"
    measured = any(cell.step_columns("timed")["timed"].any() for cell in load_run(out).cells.values())
    what = f"what was measured is in {out}" if measured else "no step was timed yet"
    return f"stopped; {what}\nGo on with --resume --out {out}."


def run_to_its_end(schedule: Schedule, findings: Findings) -> None:
    """Run a schedule to its end, or until it is stopped; no worker is left when this returns.

    Raises KeyboardInterrupt; the cells that had not ended are then interrupted in the records.
    """
    announce(schedule, findings, schedule.listener)
    try:
        schedule.run()
    except KeyboardInterrupt:
        for record in schedule.ledger.interrupted():
            schedule.listener.ended(record)
        raise
    finally:
        schedule.executor.close()
