"""`worldsize audit` as a user types it: what it prints and writes, its exit statuses, what it refuses."""

import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import worldsize as package
from commands import worldsize
from made_runs import make_run, usual_cells
from on_terminals import environment, on_terminal
from worldsize.cli.app import main
from worldsize.errors import UsageError
from worldsize.results.records import SCHEMA_VERSION

WRONG = """# Strong scaling

Table 1: epoch time

| GPUs | Time (s) | Speedup | Efficiency |
|-----:|---------:|--------:|-----------:|
| 1    | 100.0    | 1.00    | 100%       |
| 2    | 52.0     | 1.92    | 96%        |
| 4    | 28.0     | 3.57    | 89%        |
| 8    | 16.0     | 7.25    | 91%        |
"""
SOUND = WRONG.replace("7.25", "6.25").replace("91%", "78%")
SECOND = "\nTable 2: the same again\n\n| GPUs | Fooness |\n|---|---|\n| 1 | 100.0 |\n| 2 | 51.0 |\n| 4 | 27.0 |\n"
Ended = Callable[..., tuple[int, str, str]]


class _Typed(io.TextIOWrapper):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with tables that hold and tables that do not."""
    (tmp_path / "wrong.md").write_text(WRONG)
    (tmp_path / "sound.md").write_text(SOUND)
    (tmp_path / "two.md").write_text(WRONG + SECOND)
    (tmp_path / "empty.md").write_text("")
    (tmp_path / "words.md").write_text("No table at all.\n")
    (tmp_path / "binary.md").write_bytes(b"\0\1\2")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ended(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Exit status, stdout and stderr of a command in this process."""

    def run(line: str, typed: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["worldsize", "audit", *shlex.split(line)])
        monkeypatch.setattr(sys, "stdin", _Typed(typed))
        status = 0
        try:
            main()
        except SystemExit as left:
            status = int(left.code or 0)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_what_is_wrong_is_named_by_row_and_column(ended: Ended) -> None:
    status, said, complained = ended("wrong.md")
    assert (status, complained) == (0, "")
    text = " ".join(said.split())
    assert re.search(r"^Table 1 “Table 1: epoch time”: workers, epoch time \(s\), speed-up, efficiency", text)
    assert re.search(r"3 series; \d+ checks? holds?", text)
    assert re.search(r"FAIL speedup, table 1: row “8”, columns? .*“Speedup”", text)
    assert "printed: 7.25" in text
    assert re.search(r"\d FAIL, (?:.*, )?\d MISSING; \d+ checks hold\.$", text)
    assert max(map(len, said.splitlines())) <= 80


def test_tables_that_hold(ended: Ended) -> None:
    status, said, _ = ended("sound.md --strict")
    assert status == 0
    assert "FAIL" not in said
    assert re.search(r"^All \d+ checks hold", said.splitlines()[-1])


@pytest.mark.parametrize("flags", ["", "--json", "--markdown -", "--out x.html"])
def test_strict_ends_with_3(ended: Ended, flags: str) -> None:
    assert ended(f"wrong.md --strict {flags}")[0] == 3
    assert ended(f"wrong.md {flags}")[0] == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_standard_input(ended: Ended, encoding: str) -> None:
    status, said, _ = ended("- --json", WRONG.encode(encoding))
    assert status == 0
    found = json.loads(said)
    assert found["document"] == {"name": "-", "format": "markdown"}
    assert found["findings"][0]["rule"] == "speedup"


def test_json_counts_from_1(ended: Ended) -> None:
    _, said, complained = ended("wrong.md --json")
    assert complained == ""
    assert len(said.splitlines()) == 1
    found = json.loads(said)
    assert next(iter(found)) == "schema_version"
    assert found["schema_version"] == SCHEMA_VERSION
    assert found["holds"] is False
    [table] = found["tables"]
    assert (table["table"], table["caption"], table["line"]) == (1, "Table 1: epoch time", 5)
    assert table["columns"][0] == {"heading": "GPUs", "quantity": "workers", "unit": None, "per": None}
    assert table["columns"][1]["unit"] == "s"
    assert all(isinstance(count, int) for count in table["checks"].values())
    first = found["findings"][0]
    assert first.keys() == {
        "rule", "verdict", "table", "cells", "says", "printed", "recomputed", "fits", "changes"
    }  # fmt: skip
    assert (first["verdict"], first["table"]) == ("FAIL", 1)
    assert {"table": 1, "row": 4, "column": 3, "text": "7.25"} in first["cells"]


def test_the_page_of_json_names_every_field(ended: Ended) -> None:
    found = json.loads(ended("wrong.md --json")[1])
    written = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", written))
    first = found["findings"][0]
    fields = {*found, *found["tables"][0], *found["tables"][0]["columns"][0], *first, *first["cells"][0]}
    assert fields <= named, fields - named


def test_a_page_and_markdown(ended: Ended, place: Path) -> None:
    status, said, _ = ended("wrong.md --out pages/page.html --markdown found.md")
    assert status == 0
    assert said.splitlines()[-1] == "page: pages/page.html"
    assert "<html" in (place / "pages" / "page.html").read_text()
    markdown = (place / "found.md").read_text()
    assert markdown.startswith("# Audit of wrong.md")
    assert ended("wrong.md --markdown -")[1].rstrip("\n") == markdown.rstrip("\n")


def test_one_table_alone(ended: Ended, place: Path) -> None:
    _, said, _ = ended("two.md --table 2 --json")
    found = json.loads(said)
    assert [table["table"] for table in found["tables"]] == [2]
    assert all(finding["table"] == 2 for finding in found["findings"])
    assert ended("two.md --table 2 --out page.html --markdown -")[0] == 0
    assert ended("two.md --table 1 --strict")[0] == 3


def test_a_column_that_was_not_understood_and_what_says_it(ended: Ended) -> None:
    _, said, _ = ended("two.md --table 2")
    assert '--column "Fooness=QUANTITY:UNIT"' in " ".join(said.split())
    _, said, _ = ended("two.md --table 2 --column Fooness=epoch_time:s --column GPUs=n")
    assert "epoch time (s)" in " ".join(said.split())
    assert "Not understood" not in said


def test_settings_beside_the_file(ended: Ended, place: Path) -> None:
    (place / "two.audit.toml").write_text('table = 2\nsamples = 50000\n[column]\nFooness = "epoch_time:s"\n')
    _, said, _ = ended("two.md --json")
    [table] = json.loads(said)["tables"]
    assert (table["table"], table["columns"][1]["quantity"]) == (2, "epoch time")
    _, said, _ = ended("two.md --json --table 1")
    assert [table["table"] for table in json.loads(said)["tables"]] == [1], "a flag lies over the file"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("none.md", ["there is no file none.md"]),
        ("folder", ["folder is not a worldsize run folder"]),
        ("binary.md", ["binary.md is no text"]),
        ("empty.md", ["no table was found in empty.md"]),
        ("words.md", ["no table was found in words.md", "Markdown"]),
        ("-", ["no table was found in standard input"]),
        ("wrong.md --column Time=epoch_tim:s", ["did you mean epoch_time?", "Known: n, nodes"]),
        ("wrong.md --column 'Time (s)=epoch_time:furlong'", ["'furlong' is no known unit"]),
        ("wrong.md --column Tiem=epoch_time:s", ["no table has a column with this heading"]),
        ("wrong.md --column Sped=speedup", ["Did you mean 'Speedup'?"]),
        ("wrong.md --column 'Time (s)=time:GB'", ["time has no unit 'GB'"]),
        ("wrong.md --column Speedup=other --column speedup=time:s", ["'speedup' is given twice"]),
        ("wrong.md --column Time", ["HEADING=QUANTITY:UNIT is allowed"]),
        ("wrong.md --model resnet19:10", ["unknown model 'resnet19'", "resnet18, resnet34"]),
        ("wrong.md --model resnet18:many", ["the classes are a whole number"]),
        ("wrong.md --samples 0", ["samples: 0 was given; at least 1"]),
        ("wrong.md --batch huge", ["'local' or 'global' is allowed"]),
        ("wrong.md --scaling up", ["'weak' or 'strong' is allowed"]),
        ("wrong.md --format docx", ["'docx' was given"]),
        ("two.md --table 9", ["--table 9 was given; there are 2 tables"]),
        ("wrong.md --table 0", ["table: 0 was given"]),
        ("wrong.md --json --markdown -", ["both print"]),
        ("wrong.md --out /proc/no/page.html", ["cannot write", "--out"]),
    ],
)
def test_what_is_refused(ended: Ended, line: str, told: list[str]) -> None:
    _refused(ended(line), told)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("samples =", ["wrong.audit.toml cannot be read as TOML"]),
        ("sampels = 3", ["wrong.audit.toml: unknown key 'sampels'; did you mean 'samples'?"]),
        ("xyz = 3", ["unknown key 'xyz'", "`worldsize audit --help`"]),
        ("samples = true", ["samples: true was given"]),
        ("samples = 'many'", ["samples: 'many' was given; a whole number"]),
        ("column = 3", ["column: 3 was given"]),
        ("column = ['Time']", ["HEADING=QUANTITY:UNIT"]),
    ],
)
def test_a_damaged_file_of_settings(ended: Ended, place: Path, content: str, told: list[str]) -> None:
    (place / "wrong.audit.toml").write_text(content)
    _refused(ended("wrong.md"), told)


def test_a_run_folder(ended: Ended, place: Path) -> None:
    make_run(place / "run", usual_cells(blocks=2))
    status, said, complained = ended("run --json")
    assert (status, complained) == (0, "")
    found = json.loads(said)
    assert found["tables"][0]["caption"] == "Results"
    assert not [finding for finding in found["findings"] if finding["verdict"] == "FAIL"]


def test_the_function_does_the_same(place: Path) -> None:
    found = package.audit("wrong.md", samples=50_000)
    assert not found.holds
    assert found.findings[0].rule == "speedup"
    assert found.write_page(place / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert "speed-up of N = 8" in found._repr_html_()
    assert found.markdown.startswith("# Audit of wrong.md")
    assert package.audit(text=SOUND).holds
    read = package.audit(text=SECOND, column={"Fooness": "epoch_time:s"})
    assert {str(fact.quantity) for fact in read.readings[0].facts} == {"workers", "epoch time"}
    for wrong in ({}, {"source": "wrong.md", "text": SOUND}):
        with pytest.raises(UsageError, match="a source or a text"):
            package.audit(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown key 'strict'"):
        package.audit("wrong.md", strict=True)  # type: ignore[call-arg]


def test_signs_of_ascii_and_a_reader_that_has_gone(place: Path) -> None:
    done = worldsize("audit", "wrong.md", cwd=place, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    command = f"{sys.executable} -m worldsize audit wrong.md --strict | true; exit ${{PIPESTATUS[0]}}"
    gone = subprocess.run(["bash", "-c", command], cwd=place, capture_output=True, text=True, check=False)
    assert (gone.returncode, gone.stderr) == (3, "")


@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_gets_colour_and_whole_numbers(place: Path, columns: int) -> None:
    said = on_terminal([sys.executable, "-m", "worldsize", "audit", str(place / "wrong.md")], (columns, 24))
    assert "\x1b[1;31mFAIL" in said
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert max(len(line) for line in plain.splitlines()) <= columns
    assert "printed: 7.25" in plain


def test_it_starts_no_server_and_loads_no_torch(place: Path) -> None:
    code = (
        "import sys; sys.argv = ['worldsize', 'audit', 'wrong.md', '--out', 'x.html']\n"
        "from worldsize.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(*sorted({'torch', 'polars', 'scipy', 'worldsize.launch.warm'} & {*sys.modules}), 'end')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout.splitlines()[-1] == "end"


def _refused(found: tuple[int, str, str], told: list[str]) -> None:
    """Status 2, and one or two plain lines."""
    status, said, complained = found
    assert (status, said) == (2, ""), complained
    assert "Traceback" not in complained
    assert len(complained.splitlines()) <= 2
    for text in told:
        assert text in complained
