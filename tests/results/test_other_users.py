"""Folders that belong to somebody else: one plain line, or a row with its reason; never a traceback, nor silence."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from made_messages import add_link
from made_runs import make_run, usual_cells
from worldsize.analysis.study import analyse
from worldsize.errors import OutputError
from worldsize.results.files import is_there, listed, own
from worldsize.results.folder import load_run

CELL, OTHER = "ddp-w2-b32", "single-w1-b32"
NOBODY = 65534


@contextmanager
def somebody_else() -> Iterator[None]:
    """Somebody without rights: root has them all, and for anybody else a folder without rights is closed as well."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def run() -> Iterator[Path]:
    """A run that was read before, so that nothing more is to be loaded; those of pytest are closed to others."""
    place = Path(tempfile.mkdtemp(prefix="worldsize-rights-"))
    place.chmod(0o755)
    cells = [cell for cell in usual_cells(blocks=2) if cell.id in (CELL, OTHER)]
    run = make_run(place / "run", cells)
    add_link(run, 2)
    make_run(run / "parts" / "further", [])
    assert analyse(load_run(run)).run.unread == {}
    yield run
    for folder in (run, *(path for path in run.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    shutil.rmtree(place)


def closed(folder: Path) -> Path:
    folder.chmod(0)
    return folder


def reopened(run: Path) -> None:
    run.chmod(0o755)


def test_a_run_that_may_not_be_looked_into(run: Path) -> None:
    closed(run)
    with somebody_else(), pytest.raises(OutputError) as caught:
        load_run(run)
    reopened(run)
    assert str(caught.value).splitlines() == [
        f"cannot read {run / 'study.json'}: Permission denied",
        "Its owner can give you the right to read it.",
    ]


def test_a_cell_that_may_not_be_looked_into_is_a_row_with_its_reason(run: Path) -> None:
    """It is not one that was never started."""
    place = closed(run / "cells" / CELL)
    with somebody_else():
        found = analyse(load_run(run))
    place.chmod(0o755)
    assert [(cell.id, cell.state) for cell in found.cells] == [(OTHER, "complete"), (CELL, "unreadable")]
    assert found.run.unread[CELL].startswith(f"cannot read {place / 'cell.json'}: Permission denied")
    assert "--resume" not in found.run.unread[CELL]


@pytest.mark.parametrize(
    ("name", "unread"), [("comm", "comm/"), ("parts", "parts/"), ("parts/further", "parts/further")]
)
def test_what_lies_beside_the_cells(run: Path, name: str, unread: str) -> None:
    place = closed(run / name)
    with somebody_else():
        found = load_run(run)
    place.chmod(0o755)
    assert [*found.unread] == [unread]
    assert "Permission denied" in found.unread[unread]
    assert [*found.cells] == [OTHER, CELL]


@pytest.mark.parametrize("look", [lambda path: own(path, "x"), lambda path: is_there(path / "x")])
def test_what_is_not_told_is_not_absent(run: Path, look: Callable[[Path], object]) -> None:
    assert look(run) in (run / "x", False)
    closed(run)
    with somebody_else(), pytest.raises(OutputError):
        look(run)
    reopened(run)


def test_a_folder_is_listed_in_order_and_an_absent_one_holds_nothing(run: Path) -> None:
    assert [path.name for path in listed(run, "*s")] == ["cells", "parts"]
    assert listed(run / "absent", "*") == listed(run / "study.json", "*") == []
