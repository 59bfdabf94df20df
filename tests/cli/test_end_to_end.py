"""The commands with real processes: what a user types, from a model file of ten lines to the report."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import worldsize as library
from commands import finish, processes_of, start, wait_until, worker, worldsize
from in_process import worldsize as here
from worldsize.results.check_records import DIGEST_LENGTH
from worldsize.results.files import cell_folder
from worldsize.results.folder import Run, load_run

MODEL = """
import os, time
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.AvgPool2d(4), nn.Flatten(), nn.LazyLinear(classes))

    def forward(self, images):
        if self.training and os.environ.get("WORLD_SIZE") == os.environ.get("RAISES_AT"):
            raise ValueError("a shape that does not fit")
        time.sleep(float(os.environ.get("SLOW_S", "0")))
        return super().forward(images) * float(os.environ.get("SCALE", "1"))

def net(classes):
    return Net(classes)
"""
DATA = """
import torch

def images(train):
    count = 96 if train else 24
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, 3, 8, 8, generator=generator), torch.randint(0, 10, (count,), generator=generator)
"""
TINY = ("--model", "mine.py:net", "--batch-size", 4, "--threads-per-worker", 1)
TINY_GRID = ("--model", "mine.py:net", "--batch-sizes", 4, "--threads-per-worker", 1)
SYNTHETIC = ("--data", "synthetic:3x8x8:10:64")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a user's model and data; nothing may run in it afterwards."""
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "data.py").write_text(DATA)
    yield tmp_path
    assert not processes_of(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a finished study of five strategies, and how its command ended."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "mine.py").write_text(MODEL)
    strategies = "single,data-parallel,gather-scatter,all-reduce,ddp"
    grid = ("--strategies", strategies, "--world-sizes", "1,2", "--baseline", "single")
    steps = ("--steps", 4, "--block-steps", 2, "--warmup-steps", 1)
    return folder, worldsize("study", *TINY_GRID, *SYNTHETIC, *grid, *steps, "--out", "run", cwd=folder, COLUMNS="200")


CELLS = {"single-w1-b4": 1, "data-parallel-w2-b4": 1, "gather-scatter-w2-b4": 2, "all-reduce-w2-b4": 2, "ddp-w2-b4": 2}
"""The cells of that study, and in how many processes each runs."""


def lines(run: Path, cell: str, rank: int = 0) -> list[dict[str, Any]]:
    file = cell_folder(run, cell) / f"rank{rank}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def states(run: Run) -> dict[str, str]:
    return {name: cell.record.state for name, cell in run.cells.items()}


def reason(run: Run, cell: str) -> str:
    error = run.cells[cell].record.error
    assert error is not None
    return error.message


def test_a_study_of_five_strategies(finished: tuple[Path, Any]) -> None:
    folder, done = finished
    assert done.returncode == 0, done.stderr
    assert "report: run/report/index.html" in done.stdout
    rows = [line.split()[:3] for line in done.stdout.splitlines()]
    for name, world_size, batch in (cell.rsplit("-", 2) for cell in CELLS):
        assert [name, world_size[1:], batch[1:]] in rows
    assert "5 cells, at most 4 timed steps each" in done.stderr.splitlines()
    for cell in CELLS:
        assert f"✓ done  {cell}" in done.stderr
    assert "Traceback" not in done.stderr

    run = load_run(folder / "run")
    assert states(run) == dict.fromkeys(CELLS, "complete")
    for cell, processes in CELLS.items():
        for rank in range(processes):
            written = lines(run.folder, cell, rank)
            steps = [step for step in written if step["synchronised"]]
            # One to warm up, and one that leads into each of the two blocks.
            assert [step["timed"] for step in steps] == [False] + [False, True, True] * 2
            # After each block as many steps without synchronisation, where there is one.
            assert len(written) - len(steps) == (0 if processes == 1 else 4)
            assert [step["block"] for step in steps if step["timed"]] == [0, 0, 1, 1]
            assert [step["samples"] for step in steps] == [8 if cell.startswith("data-parallel") else 4] * 7
        assert not (cell_folder(run.folder, cell) / f"rank{processes}.jsonl").exists()
        verified = run.cells[cell].record.verified
        assert verified is not None
        assert verified.same
        assert (verified.largest is None) == (run.cells[cell].record.world_size == 1)
        assert len(verified.samples) == 8 * DIGEST_LENGTH
        summary = run.cells[cell].record.summary
        assert summary is not None
        assert (summary.timed_steps, summary.blocks) == (4, 2)
    for cell in ("gather-scatter-w2-b4", "all-reduce-w2-b4", "ddp-w2-b4"):
        assert run.cells[cell].spans.height == 2 * 7, "one line per step and rank"
    assert list(run.comm) == [2], "the benchmark that their bandwidths stand next to"


def test_the_report_of_a_study_and_the_same_again(finished: tuple[Path, Any]) -> None:
    folder, done = finished
    page = folder / "run" / "report" / "index.html"
    kinds = {path.suffix for path in page.parent.iterdir()}
    assert kinds >= {".html", ".md", ".csv"}
    first = {path.name: path.read_bytes() for path in page.parent.iterdir()}
    shutil.rmtree(page.parent)
    again = worldsize("report", "run", cwd=folder)
    assert again.returncode == 0
    assert again.stderr == ""
    assert again.stdout == done.stdout
    assert {path.name: path.read_bytes() for path in page.parent.iterdir()} == first


def test_json_is_one_object_with_everything(finished: tuple[Path, Any]) -> None:
    folder, _ = finished
    done = here("report", "run", "--json", cwd=folder)
    assert done.returncode == 0
    assert done.stderr == ""
    content = json.loads(done.stdout)
    named = {
        "run",
        "report",
        "schema_version",
        "verdict",
        "decided",
        "advice",
        "gate",
        "results",
        "scaling",
        "on_machine",
        "workers",
        "memory",
        "rehearsal",
        "rungs",
        "links",
        "sweeps",
        "warnings",
        "study",
        "cells",
        "parts",
    }
    assert content.keys() == named
    assert [row["cell"] for row in content["results"]] == list(CELLS)
    assert content["cells"].keys() == CELLS.keys()
    assert content["study"]["settings"]["model"] == "mine.py:net"


def test_ctrl_c_then_resume_loses_nothing(place: Path) -> None:
    grid = ("--strategies", "single", "--world-sizes", 1, "--target-interval", "0.01%", "--out", "run", "--json")
    steps = ("--steps", 12, "--block-steps", 2, "--warmup-steps", 0)
    study = start("study", *TINY_GRID, *SYNTHETIC, *grid, *steps, cwd=place, SLOW_S="0.2")
    run, cell = place / "run", "single-w1-b4"
    wait_until(lambda: len(lines(run, cell)) >= 3, study)
    study.send_signal(signal.SIGINT)
    stopped = finish(study, place)
    assert stopped.returncode == 130
    told = stopped.stderr.splitlines()
    assert told[2] == f"  starting {cell}", "progress is told with --json, too"
    assert told[-3].startswith("– stopped")
    assert told[-2:] == [
        "worldsize: stopped; what was measured is in run",
        "Go on with --resume --out run.",
    ]
    assert json.loads(stopped.stdout)["cells"][cell]["state"] == "interrupted"
    kept = lines(run, cell)

    resumed = here("study", "--resume", "--out", "run", "--json", cwd=place)
    assert resumed.returncode == 0, resumed.stderr
    content = json.loads(resumed.stdout)
    assert content["cells"][cell]["state"] == "complete"
    assert len(content["study"]["sessions"]) == 1
    now = lines(run, cell)
    assert now[: len(kept)] == kept, "what session 0 measured is there"
    old, new = ({step["block"] for step in now if step["session"] == session} for session in (0, 1))
    assert len(old) + len(new) == 6, "only what was missing was run"
    assert old
    assert new


def test_a_cell_that_raises_is_a_row_and_the_others_are_complete(place: Path) -> None:
    """A user's own model and data; with two workers its forward raises."""
    grid = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--baseline", "single", "--data", "data.py:images")
    done = here("study", *TINY_GRID, *grid, "--epochs", 2, "--out", "run", cwd=place, RAISES_AT="2")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "✗ failed  ddp-w2-b4: ValueError: a shape that does not fit" in done.stderr
    assert "a shape that does not fit" in " ".join(done.stdout.split())
    run = load_run(place / "run")
    assert states(run) == {"single-w1-b4": "complete", "ddp-w2-b4": "failed"}
    assert reason(run, "ddp-w2-b4") == "ValueError: a shape that does not fit"


def test_a_killed_worker_is_a_row_that_names_its_signal_and_rank(place: Path) -> None:
    ddp = ("--strategy", "ddp", "--world-size", 2, "--epochs", 9)
    training = start("train", *TINY, *SYNTHETIC, *ddp, "--out", "run", cwd=place, SLOW_S="0.1")
    run = place / "run"
    wait_until(lambda: len(lines(run, "ddp-w2-b4", rank=1)) >= 5, training)
    worker(place, rank=1).kill()
    done = finish(training, place)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    record = load_run(run).cells["ddp-w2-b4"].record
    assert record.error is not None
    assert (record.error.kind, record.error.rank) == ("Signal", 1)
    assert record.error.message.startswith("rank 1 was killed by SIGKILL")
    assert "rank 1 was killed by SIGKILL" in " ".join(done.stdout.split())
    assert len(lines(run, "ddp-w2-b4", rank=1)) >= 5, "what was measured is kept"


def test_a_loss_that_is_not_finite_ends_with_a_line_and_the_steps_are_kept(place: Path) -> None:
    """The first step's loss is finite; what it makes of the weights is not."""
    done = here("train", *TINY, *SYNTHETIC, "--learning-rate", "1e30", "--out", "run", cwd=place)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if "failed" in line]
    assert line.startswith("✗ failed  single-w1-b4: the loss became ")
    run = load_run(place / "run")
    assert "Lower --learning-rate" in reason(run, "single-w1-b4")
    steps = lines(place / "run", "single-w1-b4")
    assert len(steps) >= 2
    lost = [step["loss"] is None for step in steps]
    assert lost == sorted(lost), "once it is not finite it stays so"
    assert lost[-1]


def test_train_on_real_images_says_how_well_it_learned(place: Path) -> None:
    done = here("train", *TINY, "--learning-rate", 0.01, "--out", "run", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stderr
    [evaluation] = load_run(place / "run").cells["single-w1-b4"].record.evaluations
    assert evaluation.test_samples > 200
    assert evaluation.test_accuracy > 0.5, "ten digits; a linear model guesses far better than one in ten"
    assert f"{evaluation.test_accuracy:.1%}" in done.stderr
    assert load_run(place / "run").study.training[1].verification == "embedded"


def test_the_library_trains_and_returns_the_run_or_raises(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    values: dict[str, Any] = {"model": "mine.py:net", "data": "data.py:images", "batch_size": 4, "loader_workers": 1}
    run = library.train(out="run", steps=2, block_steps=1, loader="per-sample", precision="bf16", **values)
    assert states(run) == {"single-w1-b4": "complete"}
    assert (run.study.asked.loader, run.study.asked.precision) == ("per-sample", "bf16")
    assert (place / "run" / "report" / "index.html").is_file()
    assert not processes_of(place)

    monkeypatch.setenv("RAISES_AT", "1")
    with pytest.raises(library.RunError, match="ValueError: a shape that does not fit"):
        library.train(out=place / "failed", steps=2, report=False, **values)
    assert states(library.load_run("failed")) == {"single-w1-b4": "failed"}
    assert not (place / "failed" / "report").exists()


def test_a_mistake_that_only_the_look_before_the_start_can_see(place: Path) -> None:
    (place / "mine.py").write_text("def net(classes):\n    raise RuntimeError('no weights today')\n")
    done = here("train", *TINY, *SYNTHETIC, "--out", "run", cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    told = "worldsize: model factory mine.py:net raised RuntimeError: no weights today"
    assert done.stderr.splitlines() == [f"{told} ({place / 'mine.py'}:2)"]
    assert not (place / "run").exists()


def test_debug_shows_where_an_error_comes_from(place: Path) -> None:
    plain, debug = (worldsize("study", "nope", *flags, cwd=place) for flags in ((), ("--debug",)))
    assert plain.returncode == 2
    assert "Traceback" not in plain.stderr
    assert "Traceback (most recent call last)" in debug.stderr
    assert "unknown preset 'nope'" in debug.stderr
    assert debug.returncode != 0
