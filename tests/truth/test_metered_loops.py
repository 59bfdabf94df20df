"""Where the time of a loop of one's own goes is planted in it by sleeping; the meter must find it there."""

from pathlib import Path

import pytest

import worldsize
from own_loops import WarmLoops
from repeated import Repeated
from worldsize.analysis.parts import with_parts
from worldsize.results.folder import load_run

pytestmark = pytest.mark.usefixtures("clean_imports", "no_link_benchmark")

PLANTED_S = {"data_wait_s": 0.03, "forward_s": 0.02, "backward_s": 0.015, "optimizer_s": 0.01, "other_s": 0.025}
"""Of each micro-step; the optimizer's once a step."""
SLEEPS = """
from sleeping import SlowBackward

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        time.sleep(0.03 / 4)
        return torch.ones(8)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 1)
    def forward(self, x):
        time.sleep(0.02)
        return self.second(SlowBackward.apply(self.first(x), 0.015))

class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(0.01)
        super().step()

model = Net()
optimizer = SlowSGD(model.parameters(), lr=0.01)
meter = worldsize.meter(model, optimizer)
for epoch in range(3):
    for number, x in enumerate(meter(torch.utils.data.DataLoader(Slow(), batch_size=4))):
        time.sleep(0.025)  # whatever a loop does beside
        model(x).sum().backward()
        if (number + 1) % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize("accumulate", [1, 4])
def test_each_part_is_as_long_as_it_was_planted(loops: WarmLoops, tmp_path: Path, accumulate: int) -> None:
    def measure() -> dict[str, float]:
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        loops.ran(tmp_path, SLEEPS.replace("ACCUMULATE", str(accumulate)), out=out.name)
        [cell] = load_run(out).cells.values()
        assert cell.record.batch_size == 4 * accumulate
        return with_parts(cell).filter("timed").select("step_s", *PLANTED_S).mean().collect().row(0, named=True)

    def holds(found: dict[str, float]) -> None:
        for part, each_s in PLANTED_S.items():
            planted_s = each_s * (1 if part == "optimizer_s" else accumulate)
            assert found[part] == pytest.approx(planted_s, abs=0.05 * found["step_s"]), part

    Repeated(measure).check(holds)


LATE = """
import os, time
from torch import nn

class Late(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(192, classes))
    def forward(self, images):
        # The other rank waits for this one in every synchronisation.
        time.sleep(0.12 if os.environ.get("RANK") == "1" else 0.04)
        return self.layers(images)

def make(classes):
    return Late(classes)
"""
LOOPS = {
    "ddp": """
net = make(10)
model = nn.parallel.DistributedDataParallel(net)
def synchronise():
    pass
""",
    "all-reduce": """
model = net = make(10)
def synchronise():
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD
""",
    "fsdp2": """
from torch.distributed.fsdp import fully_shard
mesh = dist.device_mesh.init_device_mesh("cpu", (WORLD,))
model = net = fully_shard(make(10), mesh=mesh)
def synchronise():
    pass
""",
}
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
meter = worldsize.meter(model, optimizer)
for number in range(ACCUMULATE * 11):
    cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.zeros(4, dtype=torch.int64)).backward()
    if (number + 1) % ACCUMULATE == 0:
        synchronise()
        optimizer.step()
        optimizer.zero_grad()
end()
"""


def exposed_share(run: Path) -> float:
    """Exposed communication as a share of the step, mean over ranks and timed steps."""
    [cell] = load_run(run).cells.values()
    steps = with_parts(cell).filter("timed", "synchronised").select("exposed_sync_s", "step_s").collect()
    return float(steps["exposed_sync_s"].to_numpy().mean() / steps["step_s"].to_numpy().mean())


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("strategy", LOOPS)
def test_exposed_communication_is_that_which_was_planted(
    loops: WarmLoops, tmp_path: Path, strategy: str, accumulate: int
) -> None:
    (tmp_path / "late.py").write_text(LATE)
    code = "from late import make\n" + LOOPS[strategy] + LOOP.replace("ACCUMULATE", str(accumulate))
    # Rank 0 waits 80 of 120 ms, rank 1 never, and what the messages themselves take is 1 to 4 ms. The loops of DDP and
    # FSDP2 synchronise in each micro-step; the one with all-reduces of its own once a step, for all of its delays.
    planted = 40 / 120

    def measure() -> float:
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        loops.ran(tmp_path, code, workers=2, out=out.name)
        return exposed_share(out)

    def holds(found: float) -> None:
        assert found == pytest.approx(planted, abs=0.05)

    Repeated(measure).check(holds)


@pytest.mark.parametrize("strategy", ["ddp", "all-reduce"])
def test_a_study_of_the_same_model_finds_the_same(loops: WarmLoops, tmp_path: Path, strategy: str) -> None:
    (tmp_path / "late.py").write_text(LATE)
    code = "from late import make\n" + LOOPS[strategy] + LOOP.replace("ACCUMULATE", "1")

    def measure() -> tuple[float, float]:
        number = len(list(tmp_path.iterdir()))
        study = worldsize.study(
            out=tmp_path / f"study{number}",
            model=f"{tmp_path / 'late.py'}:make",
            data="synthetic:3x8x8:10:512",
            strategies=(strategy,),
            world_sizes=(2,),
            batch_sizes=(4,),
            threads_per_worker=1,
            steps=24,
            report=False,
        )
        loops.ran(tmp_path, code, workers=2, out=f"run{number}")
        return exposed_share(study.folder), exposed_share(tmp_path / f"run{number}")

    def holds(found: tuple[float, float]) -> None:
        assert found[0] == pytest.approx(found[1], abs=0.05)

    Repeated(measure).check(holds)
