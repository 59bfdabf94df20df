"""The run folder: writing records so that a crash loses nothing, and reading them back (design.md has its tree)."""

import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import polars as pl

from worldsize.errors import OutputError, UsageError
from worldsize.results.beside import parts_of, read_comm
from worldsize.results.columns import BROKEN, INDEX, columns_bytes, lost_lines, reason_text, usable, write_parts
from worldsize.results.comm_records import CommRecord
from worldsize.results.disturbed import disturbed_steps
from worldsize.results.files import cell_folder, is_there, own, read_record, write_whole
from worldsize.results.rank_files import state
from worldsize.results.records import CellRecord, StudyRecord, WarningRecord
from worldsize.results.samples import SPANS, STEP_SCHEMA, STEPS, Kind, each_once, read_lines, readable, whole

IN_MEMORY_BYTES = 2**26
"""Lines of a cell up to which their columns are kept in memory; those of larger ones are read from a disk."""
IN_MEMORY_COLUMNS = 2**24
"""The same for Parquet, which is a quarter as large."""

AGAIN = "The study measures this cell again with --resume."
"""Of a cell whose record is lost."""


class Cell:
    """One cell of a run folder: its record, and its samples as columns.

    Samples come from Parquet where the cell is complete (results/columns.py), else from the lines. Reading them raises
    OutputError where they are damaged.
    """

    def __init__(self, folder: Path, record: CellRecord) -> None:
        self.folder = folder
        self.record = record
        self.problem: str | None = None
        """Why the lines were read although there are columns; None where nothing is wrong."""
        self.warnings: list[WarningRecord] = []
        """What is wrong with the samples that were read so far, and is left out of them."""
        self.damaged: dict[str, dict[int, int]] = {STEPS.name: {}, SPANS.name: {}}
        """How many samples of each rank these were, by their kind."""
        self._opened: dict[str, pl.LazyFrame] = {}
        """Columns that were not asked for yet."""
        self._sources: dict[str, pl.LazyFrame] = {}
        self.large = False
        """Whether its samples are read from a disk in pieces."""

    @property
    def steps(self) -> pl.DataFrame:
        """Step records of all ranks (STEP_SCHEMA and the column `rank`), in the order of rank, then of time.

        Each step of a training of epochs is there once, though --resume may have run it again. With many ranks all
        columns are a lot: see `step_columns`.
        """
        return self.step_columns("rank", *STEP_SCHEMA)

    def step_columns(self, *names: str) -> pl.DataFrame:
        """Some columns of `steps`; no other is read."""
        return self.collect(self.scan_steps().select(names))

    @property
    def disturbed(self) -> pl.DataFrame:
        """The timed steps during which the machine was disturbed (disturbed.py): a row each."""
        return disturbed_steps(self._scan(STEPS), self.collect)

    @property
    def unsynchronised(self) -> pl.DataFrame:
        """Steps without gradient synchronisation, which only serve as the other half of a pair (method.md §3)."""
        return self.collect(self.scan_unsynchronised())

    @property
    def spans(self) -> pl.DataFrame:
        """Span records of all ranks (SPAN_SCHEMA and the column `rank`), one row per step."""
        return self.collect(self.scan_spans())

    def scan_steps(self) -> pl.LazyFrame:
        """`steps`, to be read as far as a query needs them; `collect` runs it."""
        return self._once(STEPS, self._scan(STEPS).filter("synchronised"))

    def scan_unsynchronised(self) -> pl.LazyFrame:
        """`unsynchronised`, to be read as far as a query needs them."""
        return self._scan(STEPS).filter(~pl.col("synchronised"))

    def scan_spans(self) -> pl.LazyFrame:
        """`spans`, to be read as far as a query needs them."""
        return self._once(SPANS, self._scan(SPANS))

    def collect(self, query: pl.LazyFrame) -> pl.DataFrame:
        """The result of a query; OutputError in place of what polars raises for a damaged file."""
        try:
            # In pieces, what is large; that adds up in any order, so its sums are the same to 14 digits only.
            return query.collect(engine="streaming" if self.large else "in-memory")
        except BROKEN as error:
            raise OutputError(f"cannot read the samples in {self.folder}: {reason_text(error)}") from None

    def _scan(self, kind: Kind) -> pl.LazyFrame:
        if kind.name not in self._sources:
            found = self._opened.pop(kind.name, None)
            if found is None:
                self._opened = self._columns()
                found = self._opened.pop(kind.name, None)
            samples = readable(kind, self._whole(kind, self._lines(kind) if found is None else found))
            self._sources[kind.name] = samples
        return self._sources[kind.name]

    def _whole(self, kind: Kind, samples: pl.LazyFrame) -> pl.LazyFrame:
        """The samples that are whole records; a filter costs all their columns, so only where some are not."""
        good = whole(kind)
        found = self.collect(samples.filter(~good).group_by("rank").len())
        self.damaged[kind.name] = dict(found.iter_rows())
        damaged = found["len"].sum()
        if not damaged:
            return samples
        text = f"{damaged:,} of the {kind.name} in {self.folder} are damaged and were left out: a value is missing, or "
        self.warnings.append(WarningRecord(code="damaged-samples", message=text + "is one that cannot be."))
        return samples.filter(good)

    def _once(self, kind: Kind, samples: pl.LazyFrame) -> pl.LazyFrame:
        """Without what a later session, or workers that were started again, have run again."""
        if not self.record.of_epochs:
            return samples
        name = f"{kind.name}, each once"
        if name not in self._sources:
            self._sources[name] = each_once(samples, self.collect(samples.select("rank", "session", "step")))
        return self._sources[name]

    def _columns(self) -> dict[str, pl.LazyFrame]:
        try:
            found = usable(self.folder)
            if found:
                self._tell_lost(lost_lines(self.folder))
            if found and columns_bytes(self.folder) > IN_MEMORY_COLUMNS:
                self.large = True
                return found
            return {name: self.collect(columns).lazy() for name, columns in found.items()}
        except OutputError as error:
            if not STEPS.files(self.folder):
                raise
            gone: list[str] = []
            with suppress(OutputError):  # an index that cannot be read does not say what there was
                gone = lost_lines(self.folder)
            if gone:
                raise OutputError(f"{error}, and its lines in {gone[0]} are lost as well") from None
            self.problem = str(error)
            return {}

    def _tell_lost(self, names: Sequence[str]) -> None:
        if names:
            lost = "gone or cut short"
            gone = f"is {lost}" if len(names) == 1 else f"and {len(names) - 1} more of its files are {lost}"
            text = f"{self.folder / names[0]} {gone}; what was in it is read from the columns, which have all."
            self.warnings.append(WarningRecord(code="lost-lines", message=text))

    def _lines(self, kind: Kind) -> pl.LazyFrame:
        files = kind.files(self.folder)
        if sum(state(path).st_size for path in files.values()) <= IN_MEMORY_BYTES:
            return pl.concat(read_lines(kind, files)).lazy()
        self.large = True
        try:
            return write_parts(kind, self.folder, self.scratch)
        except BROKEN as error:
            raise UsageError(  # the files are fine; only the temporary folder failed
                f"cannot gather the samples in {self.folder} in a temporary folder: {reason_text(error)}\n"
                "Let TMPDIR name a folder with room for them."
            ) from None

    @cached_property
    def scratch(self) -> Path:
        """A folder that goes with this object."""
        place = tempfile.mkdtemp(prefix="worldsize-")
        weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
        return Path(place)


class Run:
    """A run folder that was read: the study's record and its cells in the order of the plan."""

    def __init__(
        self,
        folder: Path,
        study: StudyRecord,
        cells: dict[str, Cell],
        comm: Mapping[int, CommRecord] | None = None,
        unread: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.study = study
        self.cells = cells
        self.comm = dict(comm or {})
        """The collective benchmark that the study ran first, by world size."""
        self.unread = dict(unread or {})
        """What is there and cannot be read, and why: the id of a cell, or the name of a file of comm/."""
        self.parts: dict[str, Run] = {}
        """Further parts of an experiment, each a run folder in parts/."""

    @property
    def complete(self) -> set[str]:
        """Ids of the cells that need not be run again."""
        return {name for name, cell in self.cells.items() if cell.record.state == "complete"}

    def without(self, unread: Mapping[str, str]) -> "Run":
        """The same without some cells, which cannot be read for these reasons."""
        cells = {name: cell for name, cell in self.cells.items() if name not in unread}
        run = Run(self.folder, self.study, cells, self.comm, {**self.unread, **unread})
        run.parts = dict(self.parts)
        return run


def new_run_folder(name: str) -> Path:
    """An unused folder under runs/: the name and the time, which sort."""
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def write_study(run: Path, record: StudyRecord) -> None:
    """Write study.json whole."""
    write_whole(run / "study.json", record.model_dump_json(indent=2) + "\n")


def write_cell(run: Path, record: CellRecord) -> None:
    """Write one cell.json whole."""
    write_whole(cell_folder(run, record.id) / "cell.json", record.model_dump_json(indent=2) + "\n")


def write_comm(run: Path, record: CommRecord) -> None:
    """Write the collective benchmark of one world size whole."""
    write_whole(run / "comm" / f"w{record.world_size}.json", record.model_dump_json() + "\n")


def load_run(path: Path | str) -> Run:
    """Read a run folder; a cell of the plan that was never started is not among its cells.

    Nor is one whose record is damaged or gone: `unread` says why. Raises OutputError for a folder that is not a run
    folder, or whose study.json is not valid.
    """
    folder = Path(path)
    study = read_record(StudyRecord, own(folder, "study.json"))
    cells: dict[str, Cell] = {}
    unread: dict[str, str] = {}
    for cell_id in study.plan:
        place = cell_folder(folder, cell_id)
        try:
            cell = _read_cell(folder, place, cell_id, was_complete=cell_id in study.kept)
        except OutputError as error:
            unread[cell_id] = str(error) if "\n" in str(error) else f"{error}\n{AGAIN}"
        else:
            cells.update({} if cell is None else {cell_id: cell})
    comm, not_read = read_comm(folder, study.kept)
    run = Run(folder, study, cells, comm, {**unread, **not_read})
    _read_parts(run)
    return run


def _read_parts(run: Run) -> None:
    names, lost = parts_of(run.folder, run.study)
    run.unread.update({f"parts/{name}": why for name, why in lost.items()})
    for name in names:
        try:
            run.parts[name] = load_run(own(run.folder, "parts", name))
        except OutputError as error:
            run.unread[f"parts/{name}"] = str(error)


def _read_cell(folder: Path, place: Path, cell_id: str, *, was_complete: bool) -> Cell | None:
    """The cell in a folder of its own, None where it was never started; raises OutputError for a damaged one."""
    path = own(folder, "cells", cell_id, "cell.json")
    if is_there(path):
        record = read_record(CellRecord, path)
        if record.id != cell_id:
            raise OutputError(f"{path} is the record of {record.id!r}: it was moved or changed")
        return Cell(place, record)
    # It is written before the first sample is.
    if is_there(place / INDEX) or any(state(file).st_size for file in STEPS.files(place).values()):
        raise OutputError(f"{path} is gone, and samples of the cell are there")
    if was_complete:
        raise OutputError(f"{place} is gone, and the cell was complete")
    return None
