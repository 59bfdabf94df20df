"""TrackerListener in a study whose cells take turns: what they are told, and that their failing harms nothing."""

import gc
import shutil
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from fake_cells import FakeExecutor
from fake_study import Study, grid
from histories import tensorboard_numbers, wandb_numbers, wandb_records, wandb_summary
from worldsize.config import StudySettings
from worldsize.results.records import WarningRecord
from worldsize.study.blocks import BLOCK_WARMUP
from worldsize.study.plan import PlannedCell
from worldsize.study.tracking import tracked

STUDY = StudySettings(steps=6, block_steps=2, warmup_steps=1)
CELLS = ("single-w1-b4", "ddp-w2-b4")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)


def run_with(
    clients: tuple[str, ...], run: Path, executor: FakeExecutor, settings: StudySettings = STUDY
) -> tuple[Study, list[WarningRecord]]:
    """A study of two cells with these clients, and the warnings that it ends with."""
    warnings: list[WarningRecord] = []
    study = Study(run, grid("single", "ddp", settings=settings), executor, settings)
    with tracked(clients, run, executor.session, study.heard, keep=warnings.extend) as everyone:
        study.schedule.listener = everyone
        study.run()
    assert study.heard.endings == dict.fromkeys(CELLS, "cap" if settings.epochs is None else "epochs")
    return study, warnings


def test_cells_that_take_turns_have_a_run_each(tmp_path: Path) -> None:
    study, warnings = run_with(("tensorboard", "wandb"), tmp_path, FakeExecutor(tmp_path, 0))
    assert warnings == []
    assert sorted(study.heard.rests) == sorted(list(CELLS) * 3)
    assert [(name, blocks) for name, _, blocks in study.heard.widths] == [(name, n) for n in (1, 2) for name in CELLS]
    found = wandb_records(tmp_path)
    for name in CELLS:
        assert list(wandb_numbers(found[name])) == list(range(1 + 3 * (BLOCK_WARMUP + 2)))
        assert list(tensorboard_numbers(tmp_path, name)[0]) == list(range(1 + 3 * (BLOCK_WARMUP + 2)))
        assert wandb_summary(found[name])["summary/timed_steps"] == 6


def test_a_session_that_goes_on_has_runs_of_its_own(tmp_path: Path) -> None:
    for session in (0, 1):
        run_with(("tensorboard",), tmp_path, FakeExecutor(tmp_path, session))
    names = {path.name for path in (tmp_path / "tensorboard").iterdir()}
    assert names == {*CELLS, *(f"{name}-session1" for name in CELLS)}
    for name in names:
        assert list(tensorboard_numbers(tmp_path, name)[0]) == list(range(1 + 3 * (BLOCK_WARMUP + 2)))


def test_epochs_with_their_evaluations(tmp_path: Path) -> None:
    run_with(("tensorboard",), tmp_path, FakeExecutor(tmp_path, 0), StudySettings(epochs=2))
    numbers, _, _ = tensorboard_numbers(tmp_path, CELLS[1])
    assert [step for step, values in numbers.items() if "test_accuracy" in values] == [3, 7]


def test_a_cell_that_fails_ends_its_run_as_failed(tmp_path: Path) -> None:
    executor = FakeExecutor(tmp_path, 0, fails={(CELLS[1], "steps"): 2})
    warnings: list[WarningRecord] = []
    study = Study(tmp_path, grid("single", "ddp", settings=STUDY), executor, STUDY)
    with tracked(("wandb",), tmp_path, 0, study.heard, keep=warnings.extend) as everyone:
        study.schedule.listener = everyone
        study.run()
    found = wandb_records(tmp_path)
    states = {name: wandb_summary(found[name])["state"] for name in CELLS}
    assert states == {CELLS[0]: "complete", CELLS[1]: "failed"}
    assert list(wandb_numbers(found[CELLS[1]])) == [0, *range(1, 1 + BLOCK_WARMUP + 2)], "what it ran before is kept"


def test_a_client_that_cannot_write_is_switched_off_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    _, [warning] = run_with(("tensorboard", "wandb"), tmp_path, FakeExecutor(tmp_path, 0))
    assert warning.code == "history-log"
    assert warning.message.startswith("--log tensorboard was switched off: ")
    assert list(wandb_numbers(wandb_records(tmp_path)[CELLS[0]])) == list(range(1 + 3 * (BLOCK_WARMUP + 2)))


def test_a_client_whose_process_is_killed_harms_nothing(tmp_path: Path) -> None:
    """W&B's own process dies between two turns, as when memory is short."""
    killed: list[int] = []

    def step_time(cell: PlannedCell, now: float) -> float:
        for child in psutil.Process().children() if now > 2 and not killed else ():
            if "wandb-core" in child.name():
                child.kill()
                killed.append(child.pid)
        return 0.5

    _, [warning] = run_with(("wandb", "tensorboard"), tmp_path, FakeExecutor(tmp_path, 0, step_time))
    for place in Path(tempfile.gettempdir()).glob(f"wandb-*-{killed[0]}-*"):
        shutil.rmtree(place)
    for process in gc.get_objects():  # W&B does not wait for a process that it has lost
        if type(process) is subprocess.Popen and process.pid in killed:
            process.wait()
    assert warning.message.startswith("--log wandb was switched off: ")
    assert len(warning.message.splitlines()) == 1
    assert list(tensorboard_numbers(tmp_path, CELLS[0])[0]) == list(range(1 + 3 * (BLOCK_WARMUP + 2)))
