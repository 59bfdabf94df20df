"""One worker has nobody to talk to: a study of one prints no communication and no bandwidth (method.md §5)."""

import re
from pathlib import Path

import pytest

from commands import worldsize

WORDS = re.compile(r"communication|bandwidth|busbw|algbw|overlap|exposed|transfer|GB/s|Sync", re.IGNORECASE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    (folder / "mine.py").write_text(
        "from torch import nn\ndef net(classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(3072, classes))\n"
    )
    grid = ("--strategies", "single,all-reduce,ddp,bucketed", "--world-sizes", 1, "--batch-sizes", 4)
    data = ("--data", "synthetic:3x32x32:10:64", "--model", "mine.py:net")
    done = worldsize("study", *data, *grid, "--steps", 4, "--block-steps", 2, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "said.txt").write_text(done.stdout + done.stderr)
    return folder


def test_the_terminal_says_nothing_of_it(folder: Path) -> None:
    assert WORDS.findall((folder / "said.txt").read_text()) == []


def test_the_report_says_nothing_of_it(folder: Path) -> None:
    report = folder / "run" / "report"
    assert WORDS.findall((report / "summary.md").read_text()) == []
    page = re.sub(r"<style>.*?</style>|<[^>]*>", " ", (report / "index.html").read_text(), flags=re.DOTALL)
    assert WORDS.findall(page) == []
    for drawing in report.glob("*.svg"):
        assert WORDS.findall(drawing.read_text()) == []
