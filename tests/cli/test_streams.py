"""Terminals and pipes as they come: an encoding without signs, a reader that goes away, 40 columns."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from fake_cells import planned
from made_runs import make_run, usual_cells
from on_terminals import on_terminal
from worldsize.analysis.study import analyse
from worldsize.cli.console import output
from worldsize.cli.display import _rows
from worldsize.cli.progress import CellProgress
from worldsize.cli.results import terminal_tables
from worldsize.cli.tables import TerminalTable
from worldsize.config import StudySettings
from worldsize.results.files import read_record
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import StudyRecord

NUMBER = re.compile(r"[0-9][0-9.,]*")
COMMAND = (sys.executable, "-m", "worldsize")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("streams"), usual_cells())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_our_signs(run: Path, encoding: str) -> None:
    done = subprocess.run(
        [*COMMAND, "report", str(run)],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    text = done.stdout.decode(encoding)
    assert "Samples/s" in text
    assert "\\u" not in text, "each sign has one that stands for it"


def test_help_and_names_in_ascii(tmp_path: Path) -> None:
    """No sign is lost: what has no other stands with its number, and a file of settings is UTF-8 wherever it goes."""
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    helped = subprocess.run([*COMMAND, "comm", "--help"], capture_output=True, check=True, env=plain)
    assert "the alpha-beta cost model" in " ".join(helped.stdout.decode("ascii").split())
    named = ("study", "--model", "mod\u00e8le.py:make", "--print-toml")
    for encoding in ("ascii", "utf-8"):
        done = subprocess.run(
            [*COMMAND, *named], capture_output=True, check=True, env={**plain, "PYTHONIOENCODING": encoding}
        )
        assert tomllib.loads(done.stdout.decode("utf-8"))["model"] == named[2]
    told = subprocess.run(
        [*COMMAND, "report", "mod\u00e8le"], capture_output=True, check=False, env=plain, cwd=tmp_path
    )
    assert b"mod\\xe8le" in told.stderr


def test_a_pipe_that_does_not_block_gets_everything() -> None:
    """The reader is slow, the pipe is full for a while."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    script = "from worldsize.cli.streams import make_patient; make_patient(); print('x' * 400_000)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        time.sleep(1)
        got = b""
        while chunk := os.read(reading, 65536):
            got += chunk
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(reading)
    assert got == b"x" * 400_000 + b"\n"


@pytest.mark.parametrize("command", ["report {run}", "report {run} --json", "compare {run} {run}", "study --help"])
def test_a_reader_that_goes_away(run: Path, command: str) -> None:
    line = f"set -o pipefail; {' '.join(COMMAND)} {command.format(run=run)} | head -c 1 > /dev/null"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_exit_status_is_that_of_the_command(run: Path, tmp_path: Path) -> None:
    again = shutil.copytree(run, tmp_path / "again")
    record = read_record(StudyRecord, again / "study.json")
    record.provenance.created = "2026-01-01T00:00:00+00:00"  # the very same run is refused
    write_study(again, record)
    line = f"set -o pipefail; {' '.join(COMMAND)} compare {run} {again} --fail-above 1% --strict | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, ""), "one run a side proves nothing, and strict says so"


def on_a_terminal(columns: int, *line: str) -> str:
    """What a command writes to a terminal that is so wide, without what steers it."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_terminal([*COMMAND, *line], (columns, 50), NO_COLOR="1"))


def test_no_number_is_cut_on_40_columns(run: Path) -> None:
    """Each number of the tables, and each line of them no wider than the terminal."""
    written = on_a_terminal(40, "report", str(run))
    found = set(NUMBER.findall(written))
    wanted = {
        number
        for table in terminal_tables(analyse(load_run(run)))
        for row in table.rows
        for entry in row
        for number in NUMBER.findall(entry.plain)
    }
    assert len(wanted) > 20
    assert wanted <= found, wanted - found
    tables = written.split("Results\n")[1].split("report:")[0]
    assert max(map(len, tables.splitlines())) <= 40
    assert "…" not in tables


def test_a_table_that_fits_is_not_turned(run: Path) -> None:
    """80 columns show rows as rows."""
    lines = on_a_terminal(80, "report", str(run)).splitlines()
    head = next(line for line in lines if "Strategy" in line)
    assert "ms/step" in head
    assert "Samples/s" in head


def test_progress_cuts_names_and_no_numbers() -> None:
    """The live area on 40 columns: names are long, widths are large."""
    cells = [
        CellProgress(planned("gather-scatter", 2, StudySettings(), batch_size=128), half_width=4.38) for _ in range(2)
    ]
    console = output()
    console.width = 40
    with console.capture() as captured:
        console.print(_rows(cells, 5, None, console.width))
    lines = captured.get().splitlines()
    assert all("± 438 %" in line for line in lines[1:])
    assert max(map(len, lines)) <= 40


def test_every_table_has_a_shape_for_any_width(run: Path) -> None:
    for table in terminal_tables(analyse(load_run(run))):
        numbers = {number for row in table.rows for entry in row for number in NUMBER.findall(entry.plain)}
        for width in (*range(24, 84), 200):
            console = output()
            console.width = width
            with console.capture() as captured:
                console.print(TerminalTable(table))
            lines = captured.get().splitlines()
            assert max(map(len, lines)) <= max(width, 24)
            assert numbers <= set(NUMBER.findall(captured.get())) or width < 30, width
