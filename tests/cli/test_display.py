"""The display of a study: when it draws, what its lines say, how long it thinks the rest will take."""

import errno
import io
import re
import sys
import threading
from collections.abc import Callable

import pytest

from fake_cells import planned, step_line
from worldsize.cli.console import duration_text, lines
from worldsize.cli.display import BETWEEN_S, WITHIN_S, Display, ahead_text, counts_text, ending_text, far_text
from worldsize.cli.progress import Progress, rate_text
from worldsize.config import StudySettings
from worldsize.results.records import CellRecord, CellSummary, ErrorRecord, Estimate
from worldsize.results.step_records import StepRecord
from worldsize.results.training_records import Evaluation

SETTINGS = StudySettings(steps=6)
CELL, OTHER = planned("ddp", 2, SETTINGS), planned("single", 1, SETTINGS)

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def step(**changes: float | None) -> StepRecord:
    return StepRecord.model_validate_json(step_line(0, 0.5)).model_copy(update=changes)


def record(**changes: object) -> CellRecord:
    return CellRecord.of(CELL.settings, state="complete").model_copy(update=changes)


class Clock:
    """A clock that is told."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


Stream = Callable[[], str]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Stream:
    """Stderr claims to be a terminal; what was written to it since the last call."""
    for name, value in {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    return lambda: capsys.readouterr().err


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (None, "ddp-w2-b4"),
        (step(accuracy=0.625), "ddp-w2-b4  2.00 steps/s  16.0 samples/s  loss 1.000  accuracy 62%"),
        (step(), "ddp-w2-b4  2.00 steps/s  16.0 samples/s  loss 1.000"),
        (step(loss=None), "ddp-w2-b4  2.00 steps/s  16.0 samples/s"),
        (step(step_s=0.0012345), "ddp-w2-b4  810 steps/s  6,480 samples/s  loss 1.000"),
        (step(step_s=0.0), "ddp-w2-b4  loss 1.000"),
    ],
)
def test_the_last_step_as_far_as_it_is_known(last: StepRecord | None, text: str) -> None:
    """Samples per second are those of all workers."""
    assert rate_text(CELL, last) == text


def test_the_live_area_has_cells_steps_pace_intervals_and_time_left(terminal: Stream) -> None:
    clock = Clock()
    with Display(clock=clock) as display:
        display.planned([CELL, OTHER], 8)
        display.starting(CELL)
        assert "starting ddp-w2-b4" in terminal()
        clock.now_s += 10
        display.advanced(CELL, 3, step(accuracy=0.25))
        display.narrowed(CELL, 0.021, 5)
        display.narrowed(OTHER, 0.4, 5)
        display.rested(record())
        clock.now_s += 10
        display.skipped(1)
        display.advanced(OTHER, 1, step())
        shown = terminal()
    assert "0 of 2 cells, 4 of 7 steps, at most 10 s left" in shown
    assert "accuracy 25%" in shown
    assert "  ddp-w2-b4         500  ± 2.10 %  ✓" in ESCAPE.sub("", shown)
    assert "▸ single-w1-b4      500  ± 40.0 %   " in ESCAPE.sub("", shown)


def test_it_draws_seldom_while_steps_are_timed_and_has_no_thread(terminal: Stream) -> None:
    clock = Clock()
    threads = threading.active_count()
    with Display(clock=clock) as display:
        assert threading.active_count() == threads
        display.planned([CELL], 1000)
        terminal()
        drawn = []
        for _ in range(100):
            clock.now_s += WITHIN_S / 10
            display.advanced(CELL, 1, step())
            drawn.append(bool(terminal()))
        assert drawn.count(True) == 10
        display.rested(record())
        assert not terminal(), "it drew a moment ago"
        clock.now_s += BETWEEN_S
        display.rested(record())
        assert terminal()


def test_more_cells_than_lines_are_counted(terminal: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "10")
    with Display(clock=Clock()) as display:
        display.planned([planned("ddp", n, SETTINGS) for n in range(2, 30)], 100)
        assert "and 24 more" in terminal()


def test_a_terminal_that_is_closed_does_not_end_the_study(terminal: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

        def flush(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    with Display(clock=Clock()) as display:
        display.planned([CELL], 6)
        monkeypatch.setattr(sys, "stderr", Closed())
        display.starting(CELL)
        display.advanced(CELL, 2, step())
        display.ended(record())


def test_lines_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Display(clock=clock) as display:
        display.planned([CELL], 80)
        display.starting(CELL)
        for _ in range(7):
            clock.now_s += 10
            display.advanced(CELL, 10, step())
            display.rested(record())
        display.ended(record(state="failed", error=ErrorRecord(kind="ValueError", message="no\nand why")))
    assert capsys.readouterr().err.splitlines() == [
        "resnet18 on digits, 1 thread per worker",
        "1 cell, at most 6 timed steps each",
        "  starting ddp-w2-b4",
        "  0 of 1 cells, 30 of 80 steps, at most 50 s left; ddp-w2-b4 2.00 steps/s",
        "  0 of 1 cells, 60 of 80 steps, at most 20 s left; ddp-w2-b4 2.00 steps/s",
        "✗ failed  ddp-w2-b4: no",
    ]


def test_a_batch_that_does_not_fit_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep plans as it goes: nobody knows how many steps are ahead."""
    with Display(clock=Clock()) as display:
        display.planned([CELL], 0)
        display.starting(CELL)
        display.advanced(CELL, 3, step())
        display.skipped(-3)
        display.ended(record(state="failed", error=ErrorRecord(kind="OutOfMemory", message="no memory")))
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "resnet18 on digits, 1 thread per worker",
        "1 sweep(s)",
        "  starting ddp-w2-b4",
        "✗ does not fit  ddp-w2-b4: no memory",
    ]


def test_the_end_of_a_cell_in_a_line() -> None:
    summary = CellSummary(
        step_s=Estimate(value=0.5, low=0.49, high=0.51, samples=5),
        samples_per_s=Estimate(value=16, samples=5),
        parts_s={},
        timed_steps=10,
        blocks=5,
    )
    evaluation = Evaluation(epoch=1, step=8, test_loss=1, test_accuracy=0.75, test_samples=8)
    text = ending_text(record(summary=summary, evaluations=[evaluation]))
    assert text == "ddp-w2-b4  500 ms/step ± 2.00 %  16.0 samples/s  test accuracy 75.0% after 8 steps"
    of_epochs = CellRecord.of(CELL.settings.model_copy(update={"epochs": 2, "steps": None}), evaluations=[evaluation])
    assert ending_text(of_epochs).endswith("test accuracy 75.0% after epoch 2")
    summary.blocks = 1  # of its steps an interval can be made, of the study's ratios none
    assert ending_text(record(summary=summary)) == "ddp-w2-b4  500 ms/step  16.0 samples/s"
    summary.step_s = Estimate(value=0.5, samples=1)
    assert ending_text(record(summary=summary)) == "ddp-w2-b4  500 ms/step  16.0 samples/s"


def test_a_short_budget_is_called_so_and_what_is_over_it_is_counted() -> None:
    assert ahead_text([CELL, OTHER], 0, 45) == "2 cells; the answer comes within about 45 s"
    assert ahead_text([CELL, OTHER], 0, 6) == (
        "2 cells and about 6 s left, which is short; each is still timed for one block"
    )
    progress = Progress([CELL, OTHER], 0, now_s=100, budget_s=6)
    progress.advanced(CELL, 1, step(), now_s=104)
    assert counts_text(progress) == "0 of 2 cells, 1 step, at most 2 s left"
    progress.advanced(CELL, 1, step(), now_s=118)
    assert counts_text(progress) == "0 of 2 cells, 2 steps, 12 s over the budget"


def test_time_left_follows_the_turns_with_all_that_is_measured_in_them() -> None:
    progress = Progress([CELL, OTHER], 100, now_s=0)
    assert progress.left_s is None
    progress.advanced(CELL, 10, step(timed=False), now_s=500)  # starting and warming up took long: that is over
    assert progress.left_s == pytest.approx(90 * 0.5), "a step is all that is known"
    progress.advanced(CELL, 5, step(), now_s=505)
    progress.rested(CELL.id, now_s=510)
    assert progress.left_s == pytest.approx(85 * 2.0)
    progress.advanced(OTHER, 5, step(), now_s=540)
    progress.rested(OTHER.id, now_s=540)
    assert progress.left_s == pytest.approx(80 * 4.0), "the pace of a round: 10 s and 30 s for 5 steps each"
    progress.skipped(40)
    progress.ended(record(), now_s=541)
    assert progress.left_s == pytest.approx(40 * 6.0)
    progress.skipped(40)
    assert progress.left_s is None


def test_whole_epochs_have_no_interval_to_wait_for() -> None:
    cell = planned("ddp", 2, StudySettings(epochs=2))
    progress = Progress([cell], 100, now_s=0)
    progress.advanced(cell, 10, step(timed=False), now_s=5)
    assert far_text(progress) == "0 of 1 cells, 10 of 100 steps, about 45 s left; ddp-w2-b4 2.00 steps/s"
    progress.advanced(cell, 40, step(timed=False), now_s=50)
    progress.rested(cell.id, now_s=50)
    assert progress.left_s == pytest.approx(50)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "1 h 00 min"), (3900, "1 h 05 min")]
)
def test_a_time_to_wait(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_lines_keep_values_together_and_paths_whole() -> None:
    text = "the largest that fits is b = 208; 95 % of it is ± 3 of\tall\x1b[31m"
    assert lines(text, 30, indent="  ") == ["the largest that fits is", "  b = 208; 95 % of it is ± 3", "  of all [31m"]
    path = "/a/very-long/path/" + "x" * 40
    assert lines(f"see {path} now", 20) == ["see", path, "now"]
