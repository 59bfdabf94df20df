"""Every text in every record of a run folder at once is an attempt to break out; tests/browser looks with a browser."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fuzz_kinds import CELL, made_run
from fuzzing import outcome_of
from made_hostile import ATTEMPTS, OWNED
from worldsize.analysis.study import analyse
from worldsize.errors import OutputError
from worldsize.report.write import write_report
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run

HOSTILE = "".join(ATTEMPTS[:-1]) + "=cmd|' /C calc'!A0"
Where = tuple[str | int, ...]


class Page(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def texts(value: Any, where: Where = ()) -> Iterator[Where]:
    """The places of all texts in a JSON value, those of keys that somebody chose too (as a last part of -1)."""
    if isinstance(value, str):
        yield where
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, (*where, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:4]):
            yield from texts(inner, (*where, number))


def alike(a: Where, b: Where) -> bool:
    """Whether two places are the same but for numbers in lists."""
    return [key for key in a if isinstance(key, str)] == [key for key in b if isinstance(key, str)]


def put(file: Path, where: Where) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    holder = content
    for key in where[:-1]:
        holder = holder[key]
    holder[where[-1]] = f"{HOSTILE} {holder[where[-1]]}"
    file.write_text(json.dumps(content), encoding="utf-8")


def whole(run: Path) -> None:
    """Analyse a run; raise OutputError if a part of it is refused."""
    unread = analyse(load_run(run)).run.unread
    if unread:
        raise OutputError(next(iter(unread.values())))


def poisoned(run: Path) -> list[tuple[str, Where]]:
    """Put an attempt into each text that is not refused; returns where."""
    done: list[tuple[str, Where]] = []
    files = [path for path in sorted(run.rglob("*.json")) if path.name not in ("columns.json",)]
    for file in files:
        for where in texts(json.loads(file.read_text(encoding="utf-8"))):
            if any(name == file.name and alike(where, other) for name, other in done):
                continue
            before = file.read_bytes()
            put(file, where)
            outcome, told = outcome_of(lambda: whole(run))
            assert told is None, told
            if outcome == "accepted":
                done.append((file.name, where))
            else:
                file.write_bytes(before)
    return done


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, Where]]]:
    run = made_run(tmp_path_factory.mktemp("hostile") / "run")
    lines = cell_folder(run, CELL) / "rank0.spans.jsonl"
    lines.write_text(lines.read_text().replace('"all_reduce"', json.dumps(HOSTILE)))
    done = poisoned(run)
    return write_report(run).parent, done


def test_texts_of_all_records_are_among_them(hostile: tuple[Path, list[tuple[str, Where]]]) -> None:
    names = {where[-1] for _, where in hostile[1]}
    assert {"name", "model", "hostname", "cpu_model", "formula", "location", "device", "backend", "collective"} <= {
        *names,
        "location",  # made runs have none; tests/browser does
    }
    assert {file for file, _ in hostile[1]} >= {"study.json", "cell.json", "w2.json", "rank0.json"}


def test_the_page_holds_no_script(hostile: tuple[Path, list[tuple[str, Where]]]) -> None:
    text = (hostile[0] / "index.html").read_text(encoding="utf-8")
    elements = Page(text).elements
    assert OWNED in text
    assert not {"script", "img", "iframe", "object", "embed", "base", "foreignobject"} & {tag for tag, _ in elements}
    for tag, attributes in elements:
        assert [name for name in attributes if name.startswith("on")] == [], tag
        link = attributes.get("href") or attributes.get("src") or ""
        assert link == "data:," or not re.match(r"\s*(javascript|data|https?):", link), "our own icon, which is empty"


def test_drawings_hold_no_script(hostile: tuple[Path, list[tuple[str, Where]]]) -> None:
    drawings = list(hostile[0].glob("*.svg"))
    assert drawings
    for drawing in drawings:
        for tag, attributes in Page(drawing.read_text(encoding="utf-8")).elements:
            assert tag not in ("script", "img", "image", "foreignobject", "iframe", "a"), drawing.name
            assert [name for name in attributes if name.startswith("on") or "href" in name] == []


def test_sheets_and_latex_run_nothing(hostile: tuple[Path, list[tuple[str, Where]]]) -> None:
    for file in hostile[0].glob("*.tex"):
        assert not re.search(r"\\(input|write|include|openout)\b", file.read_text(encoding="utf-8")), file.name
    for file in hostile[0].glob("*.csv"):
        assert not re.search(r'(?:^|,|\n)"?[=@\t\r](?!\d)', file.read_text(encoding="utf-8")), file.name
