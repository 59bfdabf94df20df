"""The short proof of a cell in one process; that of several is in test_proofs.py."""

from pathlib import Path

import pytest
import torch

from proofs import HERE
from tiny import alone, tiny_settings
from worldsize.config import CellSettings
from worldsize.results.check_records import DIGEST_LENGTH
from worldsize.training import check as module
from worldsize.training.check import check
from worldsize.training.workload import RolledBack

pytestmark = pytest.mark.usefixtures("clean_imports")


def two(folder: Path, strategy: str = "data-parallel", **settings: object) -> CellSettings:
    return tiny_settings(folder, strategy=strategy, world_size=2, batch_size=8, **settings)


def test_workers_of_one_process_are_held_against_the_mean_of_their_shares(tmp_path: Path) -> None:
    trainer, _ = alone(two(tmp_path))
    with RolledBack(trainer)():
        found = check(trainer, 2)
    assert (found.gradients, found.apart, found.left_out) == (None, None, None)
    assert found.largest is not None
    assert found.largest < 1e-5
    assert [len(batch) for batch in found.samples] == [16 * DIGEST_LENGTH] * 2


def test_a_process_that_drives_its_workers_wrongly_is_found(tmp_path: Path) -> None:
    trainer, _ = alone(two(tmp_path, f"{HERE}:Doubles"))
    with RolledBack(trainer)():
        found = check(trainer, 1)
    assert found.gradients is not None
    assert found.gradients.parameter == "1.weight"
    assert found.gradients.relative == pytest.approx(1)


def test_workers_that_share_a_generator_cannot_be_compared_and_it_says_so(tmp_path: Path) -> None:
    trainer, _ = alone(two(tmp_path, model=f"{HERE}:net"))
    with RolledBack(trainer)():
        found = check(trainer, 1)
    assert found.left_out is not None
    assert (found.largest, found.gradients) == (None, None)


def test_one_worker_is_only_asked_what_it_reads(tmp_path: Path) -> None:
    trainer, _ = alone(tiny_settings(tmp_path, batch_size=8))
    calls: list[object] = []
    trainer.strategy.unwrap().register_forward_pre_hook(lambda *_: calls.append(1))
    found = check(trainer, 3)
    assert (found.largest, len(found.samples)) == (None, 3)
    assert calls == []


def test_it_reads_the_same_whatever_was_read_before_and_no_more_than_there_is(tmp_path: Path) -> None:
    trainer, _ = alone(tiny_settings(tmp_path, batch_size=700))
    first = check(trainer, 9).samples
    trainer.step()
    assert check(trainer, 9).samples == first
    assert [len(batch) // DIGEST_LENGTH for batch in first] == [700, 700]


def test_late_samples_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SAMPLES", 20)
    trainer, _ = alone(tiny_settings(tmp_path, batch_size=8))
    assert [len(batch) // DIGEST_LENGTH for batch in check(trainer, 4).samples] == [8, 8, 4, 0]


def test_half_precision_is_allowed_more(tmp_path: Path) -> None:
    trainer, _ = alone(two(tmp_path, precision="bf16"))
    with RolledBack(trainer)():
        found = check(trainer, 1)
    assert (found.tolerance, found.gradients) == (2e-2, None)
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16
