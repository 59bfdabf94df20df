"""`--json`: a version first, numbers as numbers, codes apart from prose (docs/json.md)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from in_process import worldsize
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.numbers import number_text
from worldsize.analysis.study import analyse
from worldsize.cli.results import content
from worldsize.results.folder import load_run
from worldsize.results.records import SCHEMA_VERSION

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
SHOWN_IN = {"s": 1e3, "bytes/s": 1e-9, "share": 100, "ratio": 1, "samples/s": 1}
"""Unit of a piece of evidence → what its text shows it times."""
CELLS = [
    MadeCell("single", 1, 64),
    MadeCell("ddp", 2, 32, shares=synchronised(SHARES, 0.3)),
    MadeCell("ddp", 2, 64, shares=synchronised(SHARES, 0.3)),
    MadeCell("gather-scatter", 2, 64, shares=synchronised(SHARES, 0.5), state="failed"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("json"), CELLS)


@pytest.fixture(scope="module")
def told(run: Path) -> Any:
    return content(analyse(load_run(run)))


@pytest.mark.parametrize(
    "command",
    [("report", "{run}"), ("compare", "{run}", "{run}"), ("compare", "{run}", "--save", "b.json"), ("doctor",)],
)
def test_the_version_stands_first(run: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    done = worldsize(*(word.format(run=run) for word in command), "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert next(iter(found)) == "schema_version", done.stderr
    assert found["schema_version"] == SCHEMA_VERSION
    assert len(done.stdout.splitlines()) == 1


def test_evidence_is_a_number_beside_its_text(told: Any) -> None:
    every = [each for advice in told["advice"] for each in advice["evidence"]]
    numbers = [each for each in every if each["unit"] in SHOWN_IN]
    assert len(numbers) >= 3
    for each in numbers:
        factor = SHOWN_IN[each["unit"]]
        assert each["text"].startswith(number_text(each["value"] * factor)), each
        if each["low"] is not None:
            interval = f"[{number_text(each['low'] * factor)}, {number_text(each['high'] * factor)}]"
            assert interval in each["text"]


def test_gain_is_a_number_beside_its_text(told: Any) -> None:
    gains = [advice["gain"] for advice in told["advice"] if advice["gain"] and advice["gain"]["value"] is not None]
    assert gains
    for gain in gains:
        shown = f"{number_text(gain['value'])} [{number_text(gain['low'])}, {number_text(gain['high'])}]"
        assert shown in gain["text"]
        assert gain["at_most"] == ("at most" in gain["text"])
        assert gain["expected"] is None or gain["expected"]["value"] <= gain["value"]
        assert gain["basis"]


def test_strong_scaling_is_there_as_well(told: Any) -> None:
    rows = {(row["kind"], row["cell"]): row for row in told["scaling"]}
    weak, strong = rows["weak", "ddp-w2-b64"], rows["strong", "ddp-w2-b32"]
    assert (weak["baseline"], strong["baseline"]) == ("single-w1-b64", "single-w1-b64")
    assert weak["speedup"]["low"] <= weak["speedup"]["value"] <= weak["speedup"]["high"]
    assert strong["efficiency"]["value"] == pytest.approx(strong["speedup"]["value"] / 2)
    assert strong["karp_flatt"] is not None
    assert weak["karp_flatt"] is None


def test_a_state_is_a_word_and_its_reason_prose(told: Any) -> None:
    states = {row["cell"]: (row["state"], row["reason"]) for row in told["results"]}
    assert states["ddp-w2-b64"] == ("complete", None)
    state, reason = states["gather-scatter-w2-b64"]
    assert state == "failed"
    assert reason
    assert not reason.startswith("failed;")


def test_the_page_names_every_field(told: Any) -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    scaling, advice = told["scaling"][0], told["advice"][0]
    gain = next(each["gain"] for each in told["advice"] if each["gain"])
    fields = {*told, *scaling, *advice, *gain, *advice["evidence"][0]}
    assert fields <= named, fields - named
