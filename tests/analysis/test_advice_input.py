"""Waiting for data, with a share that was made."""

from dataclasses import replace
from pathlib import Path

import pytest

from advised import SINGLE, evidence, exchanging, found, gain, moved, steps, study
from made_runs import SHARES, MadeCell
from worldsize.analysis.verdict import verdict
from worldsize.config import StudySettings, validated
from worldsize.results.folder import load_run, write_study

WAITING = MadeCell("ddp", 2, step_s=0.7, shares={**SHARES, "data_wait_s": 0.32, "forward_s": 0.1, "backward_s": 0.5})


def test_names_the_share_the_loader_the_bound_and_the_command(tmp_path: Path) -> None:
    advice = found(study(tmp_path, [SINGLE, WAITING], loader="per-sample"), "input-bound")
    assert advice is not None
    assert advice.cell_id == WAITING.id
    assert advice.finding == (
        "Of ddp with 2 workers at b = 32, the rank that waits longest waits for data for 32.0 [32.0, 32.0] % of its "
        "step."
    )
    assert evidence(advice)["Loader"] == "per-sample, 2 worker processes per rank"
    assert evidence(advice)["Data wait per step, of the rank that waits longest"].startswith("224 ")  # 32 % of 0.7 s
    assert gain(advice) == "at most 1.47 [1.47, 1.47] times the samples/s"  # 1 / (1 − 0.32)
    assert advice.command == (
        "worldsize study --strategies single,ddp --world-sizes 1,2 --batch-sizes 32 --loader batched --steps 18"
    )


@pytest.mark.parametrize("waits", [(0.02, 0.02), (0.0, 0.16)], ids=["little", "not surely"])
def test_is_silent_about_a_little_and_about_what_may_be_little(tmp_path: Path, waits: tuple[float, ...]) -> None:
    """The second waits for 8 % of its steps, but in every other block for nothing."""
    cell = exchanging(exposed=0.0)
    changes = [
        steps(cell, moved("data_wait_s", "other_s", (0.02,))),
        steps(cell, moved("forward_s", "data_wait_s", waits)),
    ]
    assert found(study(tmp_path, [SINGLE, cell], changes=changes), "input-bound") is None


def test_a_loader_that_is_batched_already_has_no_command(tmp_path: Path) -> None:
    advice = found(study(tmp_path, [SINGLE, WAITING]), "input-bound")
    assert advice is not None
    assert advice.command is None
    assert evidence(advice)["Loader"] == "batched"


def test_a_users_data_set_gets_more_processes(tmp_path: Path) -> None:
    def own_data(folder: Path) -> None:
        record = load_run(folder).study
        write_study(
            folder, record.model_copy(update={"data": record.training[1].model_copy(update={"verification": "user"})})
        )

    analysis = study(tmp_path, [SINGLE, WAITING], changes=[own_data], data="mine.py:data", loader_workers=3)
    advice = found(analysis, "input-bound")
    assert advice is not None
    assert "--data mine.py:data" in str(advice.command)
    assert "--loader-workers 6" in str(advice.command)


def test_copies_to_the_device_that_take_a_notable_part(tmp_path: Path) -> None:
    copying = steps(WAITING, moved("data_wait_s", "copy_s", (0.3,)))
    advice = found(study(tmp_path / "a", [SINGLE, WAITING], changes=[copying]), "copy-bound")
    assert advice is not None
    assert (
        "copies its batches to the device for 30.0 [30.0, 30.0] % of its step (of the rank that has most)"
        in advice.finding
    )
    assert gain(advice) == "at most 1.43 [1.43, 1.43] times the samples/s"  # 1 / (1 − 0.3)
    little = steps(WAITING, moved("data_wait_s", "copy_s", (0.04,)))
    assert found(study(tmp_path / "b", [SINGLE, WAITING], changes=[little]), "copy-bound") is None


def of_a_script(folder: Path) -> None:
    settings = validated(StudySettings, {"script": ("train.py",), "world_sizes": (1, 2), "budget": "60s"})
    update = {"settings": settings, "data": None, "model": None}
    write_study(folder, load_run(folder).study.model_copy(update=update))


def test_work_of_the_loop_itself_is_told_of_a_script_only(tmp_path: Path) -> None:
    """In a training of worldsize's own it is worldsize's bookkeeping."""
    even = replace(WAITING, rank_spread=0)
    aside = steps(even, moved("data_wait_s", "other_s", (0.3,)))
    script = study(tmp_path / "a", [SINGLE, even], changes=[aside, of_a_script])
    advice = found(script, "other-work")
    assert advice is not None
    assert "spends 33.0 [33.0, 33.0] % of its step" in advice.finding
    assert "outside of data wait, forward, backward, communication, optimizer" in advice.finding
    assert "loss.item()" in advice.cause
    assert "outside" in verdict(script)
    assert found(study(tmp_path / "b", [SINGLE, even], changes=[aside]), "other-work") is None
