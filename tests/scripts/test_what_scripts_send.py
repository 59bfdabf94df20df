"""Causes planted in scripts: gradients that travel too often, collectives of the loop's own, batches that differ."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from user_scripts import run_of, studied, typed
from worldsize.analysis.advice import Advice, advise
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.own_loops import sends_of
from worldsize.analysis.study import StudyAnalysis, analyse

LOOP = """
import contextlib, os, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
model = nn.Sequential(nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
if world > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def backward(size):
    model(torch.randn(size, 400)).square().mean().backward()
number = 0
while True:
    number += 1
    time.sleep(0.005)
    STEP
    optimizer.step()
    optimizer.zero_grad()
"""


EACH = "for k in range(4):\n    backward(8)"
LAST = """for k in range(4):
    with model.no_sync() if world > 1 and k < 3 else contextlib.nullcontext():
        backward(8)"""
SLOW = """if number == 1:
    class Slow(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                time.sleep(0.03)
                yield torch.zeros(1)
    batches = iter(torch.utils.data.DataLoader(Slow(), batch_size=None))
next(batches)
"""
STEPS = {
    "each": EACH,
    "last": LAST,
    "own": "backward(8)\nif world > 1:\n    for _ in range(2):\n        dist.all_reduce(torch.ones(10**6))",
    "unlike": "backward(48 if rank else 16)",
    "shrinking": "backward(max(8, 512 - 16 * number))",
}


def analysed(folder: Path, steps: dict[str, str]) -> StudyAnalysis:
    for name, step in steps.items():
        (folder / f"{name}.py").write_text(LOOP.replace("STEP", step.replace("\n", "\n    ")))
    commands = [typed(f"{name}.py", torchrun=True) for name in steps]
    return analyse(run_of(folder, studied(folder, commands, "--steps", 24)))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    return analysed(tmp_path_factory.mktemp("sending"), STEPS)


def cells_of(found: StudyAnalysis, name: str) -> Sequence[CellAnalysis]:
    """Those of one script, of one worker and of two."""
    return [cell for cell in found.cells if cell.strategy == name]


def advised(found: StudyAnalysis, name: str) -> list[Advice]:
    """What is advised of one script."""
    return [each for each in advise(found) if (each.cell_id or "").startswith(f"{name}-")]


@pytest.mark.parametrize(("name", "synchronised"), [("each", 4), ("last", 1)])
def test_gradients_of_micro_batches(found: StudyAnalysis, name: str, synchronised: int) -> None:
    sends = sends_of(found.run.cells[f"{name}-w2"])
    assert sends is not None
    assert (sends.backwards, sends.synchronised) == (4, synchronised)
    assert ("synced-too-often" in {each.code for each in advised(found, name)}) is (synchronised > 1)


@pytest.mark.quiet  # beside other tests computing and messages take longer than the planted wait
def test_data_that_is_waited_for_longer_goes_first(tmp_path: Path) -> None:
    """What is lost to gradients that travel too often may be made up for in the next wait for data."""
    codes = [each.code for each in advise(analysed(tmp_path, {"train": SLOW + EACH}))]
    assert codes.index("input-bound") < codes.index("synced-too-often")


def test_collectives_of_the_loop_itself(found: StudyAnalysis) -> None:
    """Two of 4 MB a step."""
    sends = sends_of(found.run.cells["own-w2"])
    assert sends is not None
    assert sends.own == (("all_reduce", 2.0, 4e6),)
    own = [each for each in advised(found, "own") if each.code == "own-collectives"]
    assert [each.evidence[1].text for each in own] == ["2 all_reduce of 4.00 MB"]
    one, two = (cell.summary for cell in cells_of(found, "own"))
    gain = own[0].gain
    assert one is not None
    assert two is not None
    assert gain is not None
    assert gain.ratio is not None
    # No script of two workers steps faster than one that sends nothing; a margin for blocks that only one of them has.
    assert gain.ratio.value >= 0.95 * two.step_s.value / one.step_s.value


def test_ranks_with_unlike_batches(found: StudyAnalysis) -> None:
    one, two = cells_of(found, "unlike")
    assert one.summary is not None
    assert two.summary is not None
    assert two.batches is not None
    assert (two.batches.by_rank, two.batches.unlike, two.batches.trend) == ((16.0, 48.0), True, False)
    [row] = [row for row in found.scaling if row.cell is two]
    assert row.speedup is not None
    rates = two.summary.samples_per_s.value / one.summary.samples_per_s.value
    assert row.speedup.estimate.value == pytest.approx(rates), "of the printed samples/s"
    told = [warning.message for name, warning in found.warnings if warning.code == "batches-vary" and "unlike" in name]
    assert [text.split(" samples a step")[0] for text in told] == ["Ranks have unlike batches (rank 0 16, rank 1 48"]


def test_batches_that_shrink_are_no_drift_of_the_machine(found: StudyAnalysis) -> None:
    assert all(cell.batches is not None and cell.batches.trend for cell in cells_of(found, "shrinking"))
    warnings = {warning.code: warning.message for name, warning in found.warnings if "shrinking" in name}
    assert "drift" not in warnings
    assert "Batches went from" in warnings["batches-vary"]
    noisy = [each for each in advised(found, "shrinking") if each.code == "too-noisy"]
    assert all("batches of one size" in each.next_step and each.command is None for each in noisy)
