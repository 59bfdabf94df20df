"""Scripts whose steps are planted by sleeping, held between their turns: what a study finds must be what they do."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from repeated import Repeated
from user_scripts import run_of, studied
from worldsize.analysis.parts import with_parts
from worldsize.analysis.steps import world_steps
from worldsize.analysis.study import analyse
from worldsize.results.folder import Cell

HEAD = """
import os, time
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
dist.init_process_group("gloo")
torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
    def forward(self, x):
        time.sleep(float(os.environ.get("FORWARD_S", "0.04")))
        return self.layer(x)
class Slow(Dataset):
    def __len__(self):
        return 4_000
    def __getitem__(self, index):
        time.sleep(LOADED_S / 4)
        return torch.ones(8)
model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
LOOP = """
for x in DataLoader(Slow(), batch_size=4, num_workers=WORKERS):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def longest_wait_s(cell: Cell) -> float:
    """Mean data wait of the rank that waits most.

    One whose loader began earlier may have a burst in stock for good, and waits for the other rank instead.
    """
    waits = with_parts(cell).filter("timed").group_by("rank").agg(pl.col("data_wait_s").mean())
    return float(waits.collect()["data_wait_s"].to_numpy().max())


@pytest.mark.parametrize(
    ("loader_workers", "loaded_s", "forward_s", "step_s"), [(0, 0.08, 0.12, 0.2), (2, 0.16, 0.04, 0.08)]
)
def test_a_loader_that_is_waited_for(
    tmp_path: Path, loader_workers: int, loaded_s: float, forward_s: float, step_s: float
) -> None:
    """Two processes that take 160 ms a batch give one each 80 ms; while the script is held, they stand still."""
    code = (HEAD + LOOP).replace("LOADED_S", str(loaded_s)).replace("WORKERS", str(loader_workers))
    code = code.replace('"0.04"', f'"{forward_s}"')

    def measure() -> dict[str, tuple[float, float]]:
        place = tmp_path / f"try{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        (place / "train.py").write_text(code)
        run = run_of(place, studied(place, "train.py"))
        return {
            name: (
                float(np.mean(world_steps(cell)["step_s"].to_numpy())),
                longest_wait_s(cell),
            )
            for name, cell in run.cells.items()
        }

    def holds(found: dict[str, tuple[float, float]]) -> None:
        for name, (found_s, found_wait_s) in found.items():
            assert found_s == pytest.approx(step_s, rel=0.05), name
            assert found_wait_s == pytest.approx(step_s - forward_s, abs=0.05 * step_s), name

    Repeated(measure).check(holds)


def test_the_speed_up_of_a_script_is_the_planted_one(tmp_path: Path) -> None:
    """One worker computes for 40 ms; each of two for 60, so two are 2 × 40/60 as fast."""
    code = HEAD.replace("LOADED_S", "0").replace('"0.04"', '"0.06" if dist.get_world_size() == 2 else "0.04"')
    code += LOOP.replace(
        "DataLoader(Slow(), batch_size=4, num_workers=WORKERS)", "(torch.ones(4, 8) for _ in range(10**6))"
    )

    def measure() -> float:
        place = tmp_path / f"try{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        (place / "train.py").write_text(code)
        analysis = analyse(run_of(place, studied(place, "train.py")))
        [row] = [row for row in analysis.scaling if row.cell.world_size == 2]
        assert row.speedup is not None
        return row.speedup.estimate.value

    Repeated(measure).check(lambda found: _close(found, 4 / 3))


def _close(found: float, planted: float) -> None:
    assert found == pytest.approx(planted, rel=0.05)
