"""The text beside the progress bar, and the lines of a display that is no terminal."""

import pytest

from fake_cells import planned, step_line
from worldsize.cli.display import Display, step_text
from worldsize.config import StudySettings
from worldsize.results.records import StepRecord

CELL = planned("ddp", 2, StudySettings(steps=6))


def step(**changes: float | None) -> StepRecord:
    return StepRecord.model_validate_json(step_line(0, 0.5)).model_copy(update=changes)


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (None, "ddp-w2-b4"),
        (step(accuracy=0.625), "ddp-w2-b4  0.5 s/step  16 samples/s  loss 1.000  accuracy 62%"),
        (step(), "ddp-w2-b4  0.5 s/step  16 samples/s  loss 1.000"),
        (step(loss=None), "ddp-w2-b4  0.5 s/step  16 samples/s"),
        (step(step_s=0.0012345), "ddp-w2-b4  0.00123 s/step  6480 samples/s  loss 1.000"),
        (step(step_s=0.0), "ddp-w2-b4  0 s/step  loss 1.000"),
    ],
)
def test_the_last_step_as_far_as_it_is_known(last: StepRecord | None, text: str) -> None:
    """Samples per second are those of all workers."""
    assert step_text(CELL, last) == text


def test_the_bar_shows_steps_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"TTY_COMPATIBLE": "1", "FORCE_COLOR": "1", "COLUMNS": "160"}.items():
        monkeypatch.setenv(name, value)
    with Display(quiet=False) as display:
        display.planned([CELL], 8)
        display.starting(CELL)
        display.advanced(CELL, 3, step(accuracy=0.25))
        display.skipped(1)
    shown = capsys.readouterr().err
    assert "3/7 steps" in shown
    assert "loss 1.000  accuracy 25%" in shown
    assert "left" in shown
