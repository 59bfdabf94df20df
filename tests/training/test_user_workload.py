"""A class of the user's own is trained as it is written: three cases of researchers, and the parts that carry them."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from in_process import worldsize
from workloads import HEADS, LANGUAGE, ROWS, TABULAR
from worldsize.config import CellSettings
from worldsize.errors import FactoryError, UsageError
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Timeline
from worldsize.results.folder import Run, load_run
from worldsize.strategies import Channel, World
from worldsize.training.trainer import Trainer
from worldsize.training.user_task import UserTask

pytestmark = pytest.mark.usefixtures("clean_imports", "no_link_benchmark")

STEPS = ("--baseline", "single", "--steps", 4, "--warmup-steps", 1, "--threads-per-worker", 1, "--json")


def study(folder: Path, source: str, *flags: object) -> Run:
    """Run a study of the class `Mine` of this source, as it is typed."""
    (folder / "mine.py").write_text(source)
    done = worldsize("study", "--workload", "mine.py:Mine", *flags, *STEPS, "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    return load_run(folder / "out")


def trainer_of(folder: Path, source: str, **settings: Any) -> Trainer:
    """A trainer of the class `Mine` in this process, which drives all workers."""
    folder.mkdir(exist_ok=True)
    file = folder / "mine.py"
    file.write_text(source)
    cell = CellSettings(**{"workload": f"{file}:Mine", "batch_size": 4, **settings})
    timeline = Timeline(HostClock())
    world = World(
        Channel(0, 1, timeline),
        cell.world_size,
        torch.device("cpu"),
        find_unused_parameters=cell.find_unused_parameters,
    )
    return Trainer(cell, UserTask(cell), world, timeline)


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        pytest.param(LANGUAGE, (), id="language-model"),
        pytest.param(TABULAR, (), id="tabular-regression-of-dicts"),
        pytest.param(HEADS, ("--find-unused-parameters",), id="two-heads"),
    ],
)
def test_three_researchers_run_what_they_have_written(tmp_path: Path, source: str, flags: tuple[str, ...]) -> None:
    strategies = "single,data-parallel,ddp,all-reduce"
    run = study(tmp_path, source, "--strategies", strategies, "--world-sizes", "1,2", "--batch-sizes", 4, *flags)
    assert (run.study.data, run.study.train_samples) == (None, None)
    assert run.study.model is not None
    assert run.study.model.name == "mine.py:Mine"
    assert run.study.model.flops_per_sample
    records = [cell.record for cell in run.cells.values()]
    assert {record.state for record in records} == {"complete"}
    assert len(records) == 4
    for record in records:
        if record.world_size == 2:
            assert record.verified is not None
            assert record.verified.same
            drew = record.strategy == "data-parallel" and source == LANGUAGE
            assert (record.verified.largest is None) == drew  # its workers share one generator
        assert not any(warning.code == "not-the-reference" for warning in record.warnings)
    page = (tmp_path / "out/report/index.html").read_text()
    assert "mine.py:Mine" in page
    assert "digits" not in page
    with (tmp_path / "out/report/same-training.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["samples"], row["data"]) for row in rows} == {("0", "")}  # nothing is said of samples nobody compares


def test_several_workers_train_as_one_does_on_the_union_of_their_batches(tmp_path: Path) -> None:
    """The loss of a step depends on all updates before it."""
    strategies = "single,data-parallel,ddp"
    grid = ("--strategies", strategies, "--world-sizes", "1,2", "--global-batch", 8)
    run = study(tmp_path, ROWS, *grid, "--block-steps", 8)  # then come steps that only measure, and read on
    losses: dict[str, list[float]] = {}
    for name, cell in run.cells.items():
        ranks = [_losses(path) for path in sorted((tmp_path / "out/cells" / name).glob("rank?.jsonl"))]
        assert len(ranks) == (2 if cell.record.world_size == 2 and cell.record.strategy != "data-parallel" else 1)
        common = sorted(set.intersection(*(set(rank) for rank in ranks)))
        losses[name] = [sum(rank[step] for rank in ranks) / len(ranks) for step in common]
    wanted = losses.pop("single-w1-b8")
    assert len(losses) == 2
    for found in losses.values():
        count = min(len(found), len(wanted))
        assert count >= 5
        assert found[:count] == pytest.approx(wanted[:count], rel=1e-9)


def _losses(path: Path) -> dict[int, float]:
    """Step → loss of the steps that trained."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line.get("synchronised", True)}


def test_train_times_steps_of_a_workload(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HEADS.replace("F.mse_loss(mean, wanted)", "F.mse_loss(mean + spread, wanted)"))
    flags = ("--workload", "mine.py:Mine", "--world-size", 2, "--batch-size", 4, "--precision", "bf16", "--profile")
    done = worldsize("train", *flags, "--steps", 4, "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "out")
    record = run.cells["ddp-w2-b4"].record
    assert (record.state, record.evaluations, record.steps_per_epoch) == ("complete", [], None)
    assert list((tmp_path / "out/report").glob("trace-*.json"))


def test_token_ids_stay_what_they_are_and_the_optimizer_is_the_users(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, LANGUAGE)
    step = trainer.step()
    assert (step.samples, step.right) == (4, None)
    assert isinstance(trainer.optimizer, torch.optim.AdamW)
    assert trainer.optimizer.param_groups[0]["lr"] == 1e-3
    assert next(trainer.stream)[1].dtype == torch.int64


def test_without_an_optimizer_it_is_that_of_the_settings(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, TABULAR, learning_rate=0.5, lr_scaling="linear", base_batch=2)
    trainer.step()
    assert isinstance(trainer.optimizer, torch.optim.SGD)
    assert trainer.optimizer.param_groups[0]["lr"] == 1.0


def test_all_ranks_begin_with_the_weights_of_the_seed(tmp_path: Path) -> None:
    first, same, other = (trainer_of(tmp_path, TABULAR, seed=seed).model.state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_what_ends_is_begun_anew(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, HEADS)
    assert [trainer.step().epoch for _ in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    once = trainer_of(tmp_path / "once", ROWS, batch_size=32)  # a generator: batches() is called again
    assert [once.step().epoch for _ in range(5)] == [0, 0, 1, 1, 2]


def test_an_iterator_that_is_used_up_and_a_smaller_last_batch_are_told(tmp_path: Path) -> None:
    shared = """
    def batches(self, rank, world_size, local_batch):
        return self.once

    def __init__(self):
        self.once = iter([torch.zeros(4, 6, dtype=torch.float64)])

    def unused("""
    head, tail = ROWS.split("    def batches(")
    trainer = trainer_of(tmp_path, head + shared.lstrip("\n") + tail)
    with pytest.raises(FactoryError, match=r"batches\(\) gave none in epoch 2\n.*each time it is called"):
        [trainer.step() for _ in range(2)]
    trainer = trainer_of(tmp_path / "short", ROWS, batch_size=5)
    with pytest.raises(FactoryError, match=r"batch 13 of epoch 1 has a tensor of \(4, 6\)(?s:.*)drop_last"):
        [trainer.step() for _ in range(13)]


def test_batches_that_cannot_be_put_together_fail_one_process_of_several_workers_alone(tmp_path: Path) -> None:
    ragged = LANGUAGE.replace("(local_batch, 9)", "(local_batch, 9 + rank)")
    with pytest.raises(FactoryError, match="batches of 2 workers cannot be put together"):
        trainer_of(tmp_path, ragged, strategy="data-parallel", world_size=2).step()
    turned = LANGUAGE.replace("class Mine:", "class Mine:\n    batch_dimension = 1\n").replace(
        "(local_batch, 9)", "(9, local_batch)"
    )
    with pytest.raises(FactoryError, match=r"batch_dimension is 1; (?s:.*)Leave out data-parallel"):
        trainer_of(tmp_path / "turned", turned, strategy="data-parallel", world_size=2).step()


def test_to_look_at_the_sizes_leaves_no_trace(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, TABULAR)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    state = torch.get_rng_state()
    sizes = trainer.sizes()
    assert (sizes.input_bytes, sizes.output_bytes) == (4 * (6 + 1 + 1) * 8, 4 * 8)
    assert all(torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def group() -> Iterator[None]:
    """DDP wants one, of one process as well."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_ddp_names_the_parameters_that_are_not_used(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, HEADS, strategy="ddp")
    with pytest.raises(
        UsageError, match=r"depend on spread\.weight, spread\.bias, and (?s:.*)--find-unused-parameters"
    ):
        trainer.step()
    looking = trainer_of(tmp_path, HEADS, strategy="ddp", find_unused_parameters=True)
    assert [looking.step().epoch for _ in range(4)] == [0, 0, 0, 1]


@pytest.mark.usefixtures("group")
def test_parameters_that_a_later_step_does_not_use_are_named_as_well(tmp_path: Path) -> None:
    later = HEADS.replace(
        "return F.mse_loss(mean, wanted)",
        "self.calls = getattr(self, 'calls', 0) + 1\n"
        "        return F.mse_loss(mean + spread if self.calls < 3 else mean, wanted)",
    )
    trainer = trainer_of(tmp_path, later, strategy="ddp")
    with pytest.raises(UsageError, match=r"depend on spread\.weight, spread\.bias, and ddp"):
        [trainer.step() for _ in range(5)]


def test_a_language_model_of_the_docs_is_one(tmp_path: Path) -> None:
    """The example of docs/workload.md, as it stands there."""
    page = (Path(__file__).parents[2] / "docs/workload.md").read_text()
    _, _, rest = page.partition("```python\n")
    trainer = trainer_of(tmp_path, rest.partition("```")[0].replace("LanguageModel", "Mine"))
    losses = [float(trainer.step().loss) for _ in range(40)]
    assert losses[-1] < losses[0] - 0.1
