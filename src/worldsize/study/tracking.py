"""Tells the trackers of `--log` what the run folder gets, between the turns of the cells."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from worldsize.results.files import cell_folder
from worldsize.results.records import CellRecord, WarningRecord
from worldsize.study.listener import Listener, Listeners, Silence
from worldsize.study.plan import PlannedCell
from worldsize.trackers import GuardedTracker, Rows, Series, open_trackers, summary_values


class TrackerListener(Silence):
    """A listener that copies the history of each cell whenever one of its turns is over."""

    def __init__(self, run: Path, study: str, session: int, trackers: Sequence[GuardedTracker]) -> None:
        self._run, self._study, self._session = run, study, session
        self._trackers = trackers
        self._open: dict[str, tuple[Series, Rows]] = {}

    def starting(self, cell: PlannedCell) -> None:
        """The workers of a cell are being started, for the first time or again."""
        if cell.id in self._open:
            return
        settings = cell.settings.model_dump(mode="json") | {"global_batch": cell.settings.global_batch}
        series = Series(study=self._study, cell=cell.id, session=self._session, settings=settings)
        rows = Rows(cell_folder(self._run, cell.id), self._session, cell.settings.global_batch)
        self._open[cell.id] = series, rows
        for tracker in self._trackers:
            tracker.ask(lambda tracker: tracker.begin(series))

    def rested(self, record: CellRecord) -> None:
        """A turn of a cell is over."""
        series, rows = self._open[record.id]
        try:
            new = rows.new(record.evaluations)
        except OSError as error:
            for tracker in self._trackers:
                tracker.give_up(error)
            return
        for tracker in self._trackers:
            tracker.ask(lambda tracker: tracker.log(series, new))

    def ended(self, record: CellRecord) -> None:
        """A cell has ended."""
        if record.id not in self._open:
            return
        self.rested(record)
        series, _ = self._open.pop(record.id)
        for tracker in self._trackers:
            tracker.ask(lambda tracker: tracker.end(series, record.state, summary_values(record)))

    def close(self) -> list[WarningRecord]:
        """End all trackers; a warning for each that was switched off."""
        for tracker in self._trackers:
            tracker.close()
        return [_warning(tracker.name, tracker.trouble) for tracker in self._trackers if tracker.trouble]


@contextmanager
def tracked(
    names: Sequence[str],
    run: Path,
    session: int,
    listener: Listener,
    *,
    keep: Callable[[Sequence[WarningRecord]], None],
) -> Iterator[Listener]:
    """A listener that tells `listener` and the trackers of these names; `keep` gets a warning for each that failed."""
    if not names:
        yield listener
        return
    study = run.absolute().name
    trackers = TrackerListener(run, study, session, open_trackers(names, run, study))
    try:
        yield Listeners(listener, trackers)
    finally:
        keep(trackers.close())


def _warning(name: str, trouble: str) -> WarningRecord:
    message = f"--log {name} was switched off: {trouble}; the run folder has everything"
    return WarningRecord(code="history-log", message=message)
