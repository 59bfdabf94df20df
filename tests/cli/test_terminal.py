"""What a person sees: on a real pseudo-terminal, and what a pipe gets."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from on_terminals import environment, on_terminal

SCRIPT = Path(__file__).parents[1] / "support" / "shown_study.py"
WIDTH, HEIGHT = 80, 24
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(?:3[0-9]|9[0-7])\b[0-9;]*m")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""The cursor."""


def on_a_terminal(folder: Path, **variables: str) -> str:
    """All that the study writes to a terminal of 80 columns."""
    return on_terminal([sys.executable, str(SCRIPT), str(folder)], (WIDTH, HEIGHT), **variables)


def seen(text: str) -> list[str]:
    """The lines without what steers the terminal."""
    return [line for part in text.split("\n") for line in ESCAPE.sub("", part).split("\r")]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return on_a_terminal(tmp_path_factory.mktemp("terminal"))


def test_a_terminal_gets_a_live_area_that_is_gone_at_the_end(terminal: str) -> None:
    assert HIDE in terminal
    live, _, rest = terminal.rpartition(SHOW)
    shown = "\n".join(seen(live))
    assert "0 of 3 cells, " in shown
    assert re.search(r"\d+ of 12\d steps, at most \d+ s left", shown)
    assert re.search(r"ddp-w2-b4  [\d.]+ steps/s  [\d.]+ samples/s  loss 1\.000", shown)
    assert re.search(r"▸ ddp-w2-b4 +\d+ +± [\d.]+ %", shown)
    assert "goal ± 3.00 %" in shown
    assert "steps left" not in rest
    assert "samples/s  loss" not in rest
    erased = live[live.rindex("✓") :]
    assert "\x1b[2K" in erased, "the last area is wiped out"


def test_lines_fit_the_terminal_and_names_do_not_steer_it(terminal: str) -> None:
    whole = ("report: ", "    worldsize ")  # to be copied
    assert max(len(line.rstrip()) for line in seen(terminal) if not any(each in line for each in whole)) <= WIDTH
    assert "\x1b[31mred" not in terminal


def test_the_verdict_comes_first_in_bold_and_warnings_have_colour(terminal: str) -> None:
    results = terminal.rpartition(SHOW)[2]
    assert next(line for line in seen(results) if line).startswith("2 workers are ")
    assert "\x1b[1m2 workers are" in results
    assert COLOUR.search(terminal)


def test_no_color_is_respected(tmp_path: Path) -> None:
    terminal = on_a_terminal(tmp_path, NO_COLOR="1")
    assert not COLOUR.search(terminal)
    assert HIDE in terminal


def test_a_pipe_gets_plain_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, env=environment(), check=True
    )
    assert "\x1b" not in done.stdout + done.stderr
    lines = [*done.stderr.splitlines(), *done.stdout.splitlines()]
    assert max(len(line) for line in lines if not line.startswith(("report: ", "    worldsize "))) <= WIDTH
    told = done.stderr.splitlines()
    assert told[0] == "resnet18 on digits, 1 thread per worker"
    assert told[1] == "3 cells, at most 30 timed steps each"
    assert [line for line in told if line.startswith("  starting")] == [
        f"  starting {name}" for name in ("single-w1-b4", "ddp-w2-b4", "all-reduce-w2-b4")
    ]
    ends = [line for line in told if line.startswith("✓ done")]
    assert len(ends) == 3
    assert all(re.match(r"✓ done  [\w-]+  \d+ ms/step ± [\d.]+ %  [\d.]+ samples/s", line) for line in ends)
    progress = [line for line in told if re.match(r"  \d of 3 cells, \d+ of 126 steps, at most \d+ s left; ", line)]
    # 126 steps, and rolled-back ones, of half a second each on the made clock: a line each 30 s. (Two at least, when
    # each block was paired with rolled-back steps; pairs are fewer now, and so is the time.)
    assert 1 <= len(progress) <= 5
    assert any("± " in line for line in told if not line.startswith("✓"))
