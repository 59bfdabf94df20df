"""Five training scripts that know nothing of worldsize, each run as it is with one worker and with two."""

import importlib.util
from pathlib import Path

import pytest

from user_scripts import brought, codes, content, run_of, studied
from worldsize.analysis.parts import with_parts
from worldsize.results.folder import Cell


def parts(cell: Cell) -> dict[str, float | None]:
    """Means of the parts of its timed steps."""
    wanted = ("step_s", "data_wait_s", "forward_s", "backward_s", "optimizer_s", "exposed_sync_s", "comm_s")
    return with_parts(cell).filter("timed").select(wanted).mean().collect().row(0, named=True)


def test_a_language_model_with_accumulated_gradients_and_batches_of_its_own(tmp_path: Path) -> None:
    brought(tmp_path, "gpt.py")
    before = content(tmp_path)
    run = run_of(tmp_path, studied(tmp_path, "python gpt.py --accumulate 4 --eval-every 10", "--keep-outputs"))

    assert content(tmp_path, "run") == before, "what the script writes stays apart"
    assert (tmp_path / "run/cells/gpt-w1/outputs/out/ckpt.pt").is_file()
    assert {name: cell.record.state for name, cell in run.cells.items()} == {"gpt-w1": "complete", "gpt-w2": "complete"}
    alone, two = run.cells["gpt-w1"], run.cells["gpt-w2"]
    assert (alone.record.batch_size, two.record.batch_size) == (16, 8), "4 micro-batches of 4; of two workers, 2 each"
    assert alone.record.global_batch == two.record.global_batch == 16
    assert two.record.own_traits is not None
    assert two.record.own_traits.buckets
    found = parts(two)
    assert found["exposed_sync_s"] is not None
    assert found["comm_s"] is not None
    assert found["comm_s"] > 0
    assert all(found[part] for part in ("forward_s", "backward_s", "optimizer_s"))
    steps = alone.step_columns("step", "timed")
    assert not steps["timed"].all(), "a step in which the loop evaluates is not timed"
    assert run.study.settings is not None
    assert run.study.settings.script == ("python gpt.py --accumulate 4 --eval-every 10",)


def test_the_tutorial_with_a_distributed_sampler(tmp_path: Path) -> None:
    brought(tmp_path, "ddp_tutorial.py")
    done = studied(tmp_path, "ddp_tutorial.py 100000 8")
    run = run_of(tmp_path, done)

    alone, two = run.cells["ddp-tutorial-w1"], run.cells["ddp-tutorial-w2"]
    assert alone.record.batch_size == two.record.batch_size == 8
    assert parts(two)["data_wait_s"] is not None
    assert not (tmp_path / "snapshot.pt").exists()
    assert not (tmp_path / "run/cells/ddp-tutorial-w2/outputs").exists()
    assert "ddp-tutorial" in done.stdout
    assert two.step_columns("epoch")["epoch"].to_numpy().max() > 0


def test_sharded_weights(tmp_path: Path) -> None:
    brought(tmp_path, "fsdp2.py")
    run = run_of(tmp_path, studied(tmp_path, "fsdp2.py"))

    two = run.cells["fsdp2-w2"]
    assert two.record.own_traits is not None
    assert two.record.own_traits.collectives == ("all-gather", "reduce-scatter")
    assert "messages-not-seen" not in codes(two)
    assert parts(two)["exposed_sync_s"] is not None
    assert two.record.batch_size == 8


def test_data_parallel_is_one_process(tmp_path: Path) -> None:
    brought(tmp_path, "cifar_dataparallel.py")
    done = studied(tmp_path, "cifar_dataparallel.py")

    assert done.returncode == 1
    told = " ".join((done.stdout + done.stderr).split())
    assert "uses DataParallel, where one process drives all GPUs; it was started in 2" in told


def test_data_parallel_alone(tmp_path: Path) -> None:
    brought(tmp_path, "cifar_dataparallel.py")
    done = studied(tmp_path, "cifar_dataparallel.py", sizes="1")
    [cell] = run_of(tmp_path, done).cells.values()

    assert cell.record.batch_size == 24
    assert parts(cell)["data_wait_s"] is not None
    epochs = cell.step_columns("epoch", "step")
    assert epochs.group_by("epoch").len()["len"].to_numpy().max() <= 10, (
        "ten batches an epoch; the test set counts to none"
    )
    assert not (tmp_path / "checkpoint").exists()


def test_a_trainer_of_lightning(tmp_path: Path) -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("needs worldsize[lightning]")
    brought(tmp_path, "lightning_fit.py")
    run = run_of(tmp_path, studied(tmp_path, "lightning_fit.py"))

    two = run.cells["lightning-fit-w2"]
    assert two.record.batch_size == 16
    assert two.record.own_traits is not None
    assert two.record.own_traits.buckets
    assert parts(two)["exposed_sync_s"] is not None
    assert not (tmp_path / "checkpoints").exists()
