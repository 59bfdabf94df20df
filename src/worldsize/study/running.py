"""A schedule run to its end, or until the user stops it: then it ends in order, with everything kept.

After all turns the samples of finished cells are gathered into columns: nothing is timed any more.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from worldsize.errors import Interrupted, OutputError
from worldsize.results.columns import pack
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import Findings, WarningRecord
from worldsize.study.listener import Listener
from worldsize.study.schedule import Schedule

GRACE_S = 1.0
"""How much longer than rank 0 the others stay: one that is gone first would look like a failure to rank 0."""


def announce(schedule: Schedule, findings: Findings, listener: Listener) -> None:
    """Tell the listener, and the ledger, how many steps are ahead, or how much time."""
    total, settings, pace = 0, schedule.settings, schedule.pace
    for cell in schedule.cells:
        if settings.epochs is not None:
            assert findings.train_samples is not None, "epochs are of a data set"
            steps = settings.epochs * (findings.train_samples // cell.settings.global_batch)
            steps -= schedule.ledger.checkpointed_steps(cell)
        elif settings.steps is not None and not pace.budgeted:
            steps = pace.most_steps(cell, schedule.samples[cell.id])
        else:
            steps = 0
        schedule.ledger.expect(cell, steps)
        total += steps
    listener.planned(schedule.cells, total, pace.left_s)


@contextmanager
def stoppable(folder: Callable[[], Path | None]) -> Iterator[None]:
    """SIGTERM ends a study as Ctrl-C does. Raises Interrupted for both, which says what was kept and how to go on.

    `folder` gives the run folder, once there is one.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and it decides for the others
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(_kept(folder())) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stoppable_group(folder: Callable[[], Path | None], rank: int) -> Iterator[None]:
    """The same for one rank of a group that others have started; its process then ends, and sets nothing back.

    torchrun sends SIGTERM to all ranks, also after Ctrl-C, which reached them already: what comes after the first is
    not heard, or it would stop the stopping. Rank 0 writes what is kept. The others may be within a collective, where
    no Python code runs to hear a signal: a thread hears it, and ends them when rank 0 has heard it as well.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for heard in (signal.SIGTERM, signal.SIGINT):
            signal.signal(heard, signal.SIG_IGN)
        raise KeyboardInterrupt

    for heard in (signal.SIGTERM, signal.SIGINT):
        signal.signal(heard, stop if rank == 0 else lambda number, frame: None)
    if rank:
        _end_when_told()
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(_kept(folder())) from None


def _end_when_told() -> None:
    """End this process soon after its first signal, whatever it is doing."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        os.read(reading, 1)
        time.sleep(GRACE_S)
        os._exit(Interrupted.exit_status)

    threading.Thread(target=wait, daemon=True).start()


def _kept(out: Path | None) -> str:
    if out is None or not (out / "study.json").exists():
        return "stopped before anything was measured"
    try:
        measured = any(cell.step_columns("timed")["timed"].any() for cell in load_run(out).cells.values())
    except OutputError:  # the report says what is damaged; that the study was stopped comes first
        measured = True
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


def pack_complete(out: Path) -> list[WarningRecord]:
    """Gather the samples of each complete cell; what cannot be gathered is a warning, for its lines are there.

    study.json then says what there was, so that what is lost later is seen.
    """
    run, warnings = load_run(out), []
    there = [*sorted(run.complete), *(f"comm/w{world_size}.json" for world_size in sorted(run.comm))]
    run.study.kept = list(dict.fromkeys([*run.study.kept, *there]))  # what was lost stays lost
    write_study(out, run.study)
    for name, cell in run.cells.items():
        if cell.record.state != "complete":
            continue  # it may go on
        try:
            pack(cell.folder)
        except OutputError as error:
            message = f"the samples of {name} stay lines, which take longer to read: {error}"
            warnings.append(WarningRecord(code="not-packed", message=message))
    return warnings
