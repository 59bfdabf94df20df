"""Five training scripts that know nothing of worldsize, each run as it is with one worker and with two."""

import importlib.util
from pathlib import Path

import polars as pl
import pytest

from user_scripts import brought, codes, content, run_of, studied, typed
from worldsize.analysis.parts import with_parts
from worldsize.results.folder import Cell, load_run


def parts(cell: Cell) -> dict[str, float | None]:
    """Means of the parts of its timed steps."""
    wanted = ("step_s", "data_wait_s", "forward_s", "backward_s", "optimizer_s", "exposed_sync_s", "comm_s")
    return with_parts(cell).filter("timed").select(wanted).mean().collect().row(0, named=True)


def steps_of(cell: Cell) -> pl.DataFrame:
    """Its steps with their numbers in their launch, from 1 on."""
    steps = cell.step_columns("rank", "launch", "step", "phases", "samples")
    return steps.with_columns(number=1 + pl.col("step") - pl.col("step").min().over("launch"))


def numbers(cell: Cell, stretch: str) -> set[int]:
    """Those of the steps that have a stretch of this name."""
    return set(steps_of(cell).filter(pl.col("phases").list.contains(stretch))["number"])


def every(cell: Cell, count: int) -> set[int]:
    """The numbers of the steps that come after so many, again and again."""
    return set(range(count + 1, 1 + max(steps_of(cell)["number"]), count))


def test_a_language_model_with_accumulated_gradients_and_batches_of_its_own(tmp_path: Path) -> None:
    brought(tmp_path, "gpt.py")
    before = content(tmp_path)
    run = run_of(tmp_path, studied(tmp_path, "python gpt.py --accumulate 4 --eval-every 10", "--keep-outputs"))

    assert content(tmp_path, "run") == before, "what the script writes stays apart"
    assert {name: cell.record.state for name, cell in run.cells.items()} == dict.fromkeys(
        ("gpt-python-w1", "gpt-w1", "gpt-w2"), "complete"
    )
    assert all((tmp_path / f"run/cells/{name}/outputs/out/ckpt.pt").is_file() for name in run.cells)
    by_itself, alone, two = (run.cells[name] for name in ("gpt-python-w1", "gpt-w1", "gpt-w2"))
    sizes = [cell.record.batch_size for cell in (by_itself, alone, two)]
    assert sizes == [16, 16, 8], "4 micro-batches of 4; of two workers, 2 each"
    assert {cell.record.global_batch for cell in run.cells.values()} == {16}
    assert two.record.own_traits is not None
    assert two.record.own_traits.buckets
    found = parts(two)
    assert found["exposed_sync_s"] is not None
    assert found["comm_s"] is not None
    assert found["comm_s"] > 0
    assert all(found[part] for part in ("forward_s", "backward_s", "optimizer_s"))
    for stretch in ("evaluation", "checkpoint", "logging"):
        assert numbers(two, stretch) == every(two, 10)
        assert set(steps_of(two).filter(pl.col("phases").list.contains(stretch))["rank"]) == {0}
    assert run.study.settings is not None
    assert run.study.settings.script == ("python gpt.py --accumulate 4 --eval-every 10",)


def test_the_tutorial_with_a_distributed_sampler_and_sharded_weights(tmp_path: Path) -> None:
    """Both need what torchrun tells them, so it is what is typed."""
    brought(tmp_path, "ddp_tutorial.py", "fsdp2.py")
    scripts = [typed("ddp_tutorial.py 100000 8", torchrun=True), typed("fsdp2.py", torchrun=True)]
    done = studied(tmp_path, scripts)
    run = run_of(tmp_path, done)

    alone, two = run.cells["ddp-tutorial-w1"], run.cells["ddp-tutorial-w2"]
    assert alone.record.batch_size == two.record.batch_size == 8
    assert parts(two)["data_wait_s"] is not None
    assert not (tmp_path / "snapshot.pt").exists()
    assert not (tmp_path / "run/cells/ddp-tutorial-w2/outputs").exists()
    assert "ddp-tutorial" in done.stdout
    assert numbers(two, "restart") == every(two, 16), "16 batches of 8 an epoch"

    sharded = run.cells["fsdp2-w2"]
    assert sharded.record.own_traits is not None
    assert sharded.record.own_traits.collectives == ("all-gather", "reduce-scatter")
    assert "messages-not-seen" not in codes(sharded)
    assert parts(sharded)["exposed_sync_s"] is not None
    assert sharded.record.batch_size == 8


def test_data_parallel_is_one_process(tmp_path: Path) -> None:
    brought(tmp_path, "cifar_dataparallel.py")
    done = studied(tmp_path, "cifar_dataparallel.py")

    assert done.returncode == 1
    told = " ".join((done.stdout + done.stderr).split())
    assert "uses DataParallel, where one process drives all GPUs; it was started in 2" in told
    cells = load_run(tmp_path / "run").cells
    assert cells["cifar-dataparallel-w2"].record.state == "failed"
    for name in ("cifar-dataparallel-python-w1", "cifar-dataparallel-w1"):
        cell = cells[name]
        assert cell.record.batch_size == 24
        assert parts(cell)["data_wait_s"] is not None
        assert set(cell.step_columns("samples")["samples"]) == {24}, "the test set counts to none"
        assert numbers(cell, "evaluation") == numbers(cell, "restart") == every(cell, 10), "ten batches an epoch"
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
