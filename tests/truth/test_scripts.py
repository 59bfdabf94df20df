"""Scripts whose steps are planted by resting, stopped between their turns: what a study finds must be what they do.

What a script takes by itself its own clock says, which counts steps where no study is. While a command is stopped the
clock of the machine goes on, and ends a sleep; so they rest in short pieces, as work would stand still.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from commands import LONG_S, worldsize
from repeated import Repeated
from user_scripts import run_of, studied, typed
from worldsize.analysis.parts import with_parts
from worldsize.analysis.steps import world_steps
from worldsize.analysis.study import analyse
from worldsize.results.files import outputs_folder
from worldsize.results.folder import Cell, Run

HEAD = """
import gc, os, queue, sys, threading, time
import torch
import torch._dynamo  # which the first optimizer loads: meanwhile a loader would fill all the room that it has
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
clocked, before = int(os.environ.get("CLOCKED", 0)), 20

def rest(seconds):
    while seconds > 0:
        begun = time.monotonic()
        time.sleep(min(seconds, 0.002))
        slept = time.monotonic() - begun
        seconds -= slept if slept < 0.003 else 0.002

class Net(nn.Module):
    def __init__(self, forward_s):
        super().__init__()
        self.forward_s, self.layer = forward_s, nn.Linear(8, 1)
    def forward(self, x):
        rest(self.forward_s)
        return self.layer(x)

class Slow(IterableDataset):
    def __init__(self, batch_s):
        self.batch_s = batch_s
    def __iter__(self):
        while True:
            rest(self.batch_s)
            yield torch.ones(4, 8)

def endless():
    while True:
        yield torch.ones(4, 8)

def train(forward_s, batches, beside=lambda number, model: None):
    if world > 1:
        dist.init_process_group("gloo")
    model = Net(forward_s)
    model = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begun = 0.0
    for number, batch in enumerate(batches):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        beside(number, model)
        if number == before:
            begun = time.monotonic()
        if clocked and number == before + clocked:
            if rank == 0:
                print("CLOCK", (time.monotonic() - begun) / clocked, flush=True)
            break
    if world > 1:
        dist.destroy_process_group()
"""
THREADS = """
made = queue.Queue(16)
def make():
    while True:
        rest(0.16)
        made.put(torch.ones(4, 8))
def batches():
    while True:
        yield made.get()
for _ in range(4):
    threading.Thread(target=make, daemon=True).start()
train(0.025, batches())
"""
POOL = """
import collections, concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(2)
def load():
    rest(0.08)
    return torch.ones(4, 8)
def batches():
    ahead = collections.deque(pool.submit(load) for _ in range(16))
    while True:
        yield ahead.popleft().result()
        ahead.append(pool.submit(load))
train(0.025, batches())
os._exit(0)  # there is no end of what it still has to load
"""
PROCESSES = """
if __name__ == "__main__":
    loader = DataLoader(
        Slow(BATCH_S), batch_size=None, num_workers=2, prefetch_factor=8, multiprocessing_context="KIND"
    )
    train(FORWARD_S, loader)
"""
LONG = """
own = open("own", "a", buffering=1)
def beside(number, model):
    own.write(f"{time.monotonic()}\\n")
train(0.15, endless(), beside)
"""
CHECKPOINTS = """
class Large:
    def __reduce__(self):
        rest(0.1)
        return Large, ()
def beside(number, model):
    if number % 5 == 0:
        torch.save({"weights": model.state_dict(), "large": Large()}, "last.pt")
train(0.02, endless(), beside)
"""
GARBAGE = """
own = open("own", "a", buffering=1)
gc.disable()
def beside(number, model):
    if number % 5 == 0:
        for _ in range(200_000):
            cycle = []
            cycle.append(cycle)
        begun = time.monotonic()
        gc.collect()
        own.write(f"{time.monotonic() - begun}\\n")
train(0.02, endless(), beside)
"""
EVALUATES = """
def beside(number, model):
    if number % 10 == 0 and rank == 0:
        model.eval()
        with torch.no_grad():
            model.module(torch.ones(4, 8))
            rest(0.18)
        model.train()
train(0.02, endless(), beside)
"""


def loaded(kind: str, batch_s: float, forward_s: float) -> str:
    """A script with two loader processes that take so long for a batch each."""
    words = {"KIND": kind, "BATCH_S": str(batch_s), "FORWARD_S": str(forward_s)}
    code = PROCESSES
    for word, value in words.items():
        code = code.replace(word, value)
    return code


@dataclass(frozen=True)
class Measured:
    """Scripts in a study, and by themselves."""

    clock_s: dict[str, float]
    """Seconds per step of the same script where no study is, by its own clock."""
    run: Run


def measured(
    folder: Path, codes: dict[str, str], *more: object, sizes: str, clocked: Sequence[str], steps: int
) -> Measured:
    """Run scripts by themselves, and then in one study, each as one cell."""
    for name, code in codes.items():
        (folder / f"{name}.py").write_text(HEAD + code)
    workers = int(sizes)
    clocks = {name: clock_s(folder, name, workers, steps) for name in clocked}
    commands = [typed(f"{name}.py", torchrun=workers > 1) for name in codes]
    done = studied(folder, commands, "--steps", steps, *more, "--keep-outputs", sizes=sizes)
    return Measured(clocks, run_of(folder, done))


def clock_s(folder: Path, name: str, workers: int, steps: int) -> float:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers))
    done = subprocess.run(
        [sys.executable, *(torchrun if workers > 1 else ()), f"{name}.py"],
        cwd=folder,
        env={**os.environ, "CLOCKED": str(steps)},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=True,
    )
    [line] = [line for line in done.stdout.splitlines() if line.startswith("CLOCK")]
    return float(line.split()[1])


def step_s(cell: Cell) -> float:
    return float(np.mean(world_steps(cell)["step_s"].to_numpy()))


def part(cell: Cell, name: str, *, rank: int = 0) -> list[float]:
    """How long a part took in each timed step of a rank, where it was there."""
    steps = with_parts(cell).filter(pl.col("timed") & (pl.col("rank") == rank) & (pl.col(name) > 1e-3))
    return [float(each) for each in steps.select(name).collect()[name]]


def close(found: float, true: float) -> bool:
    """Whether something is found as it is, within 5 %."""
    return found == pytest.approx(true, rel=0.05)


ONE = {
    "threads": THREADS,
    "pool": POOL,
    "forked": loaded("fork", 0.08, 0.025),
    "spawned": loaded("spawn", 0.08, 0.025),
    "long": LONG,
    "checkpoints": CHECKPOINTS,
    "garbage": GARBAGE,
}
LOADED = ("threads", "pool", "forked", "spawned")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Repeated[Measured]:
    """Of one worker each."""
    return Repeated(
        lambda: measured(
            tmp_path_factory.mktemp("one"),
            ONE,
            *("--block-steps", 20),
            sizes="1",
            clocked=[*LOADED, "checkpoints"],
            steps=60,
        )
    )


@pytest.mark.parametrize("name", LOADED)
def test_what_makes_batches_stands_still_while_its_script_does(one: Repeated[Measured], name: str) -> None:
    """A batch comes every 40 ms, and the model takes 25: room for 16 would be filled while others are timed."""

    def holds(found: Measured) -> None:
        cell = found.run.cells[f"{name}-w1"]
        assert close(step_s(cell), found.clock_s[name])
        assert close(step_s(cell), 0.04)
        waits = with_parts(cell).filter("timed").select(pl.col("data_wait_s").mean()).collect().item()
        assert waits == pytest.approx(0.015, abs=0.05 * 0.04)

    one.check(holds)


def test_a_step_that_spans_a_stop_counts_by_its_time_in_turn(one: Repeated[Measured]) -> None:
    """By the clock of the script itself it took seconds: the first step of each block had begun before it."""

    def holds(found: Measured) -> None:
        cell = found.run.cells["long-w1"]
        assert close(step_s(cell), 0.15)
        spanning = world_steps(cell).group_by("block", maintain_order=True).first()["step_s"].to_list()
        assert all(close(each, 0.15) for each in spanning)
        own = np.diff([float(line) for line in (outputs_folder(cell.folder) / "own").read_text().split()])
        assert (own > 1.0).any(), "another cell was started meanwhile"
        steps = cell.step_columns("start_ns", "step_s")
        ends_s = (steps["start_ns"].to_numpy() / 1e9 + steps["step_s"].to_numpy())[:-1]
        assert steps["start_ns"].to_numpy()[1:] / 1e9 == pytest.approx(ends_s, abs=1e-6), "none is left out"

    one.check(holds)


def test_a_checkpoint_is_part_of_its_step(one: Repeated[Measured]) -> None:
    def holds(found: Measured) -> None:
        cell = found.run.cells["checkpoints-w1"]
        saved = part(cell, "checkpoint_s")
        assert all(close(each, 0.1) for each in saved)
        steps = world_steps(cell)["step_s"].to_list()
        assert len(saved) == pytest.approx(len(steps) / 5, abs=1)
        assert statistics.median(step for step in steps if step < 0.1) == pytest.approx(0.02, abs=0.002)
        # As if a fifth of the steps had a checkpoint: a study ends wherever it ends.
        assert close(step_s(cell) + 0.1 * (0.2 - len(saved) / len(steps)), found.clock_s["checkpoints"])

    one.check(holds)


def test_garbage_is_part_of_its_step(one: Repeated[Measured]) -> None:
    """As long as the script itself sees it."""

    def holds(found: Measured) -> None:
        cell = found.run.cells["garbage-w1"]
        own = [float(line) for line in (outputs_folder(cell.folder) / "own").read_text().split()]
        collected = part(cell, "garbage_s")
        assert len(collected) == pytest.approx(len(world_steps(cell)) / 5, abs=1)
        assert close(statistics.median(collected), statistics.median(own))

    one.check(holds)


TWO = {"evaluates": EVALUATES, "loaded": loaded("fork", 0.16, 0.04)}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Repeated[Measured]:
    """Of two workers each."""
    return Repeated(
        lambda: measured(
            tmp_path_factory.mktemp("two"), TWO, *("--block-steps", 20), sizes="2", clocked=["evaluates"], steps=160
        )
    )


def test_an_evaluation_of_rank_0_is_part_of_a_step_of_both(two: Repeated[Measured]) -> None:
    """Every ten steps, for 0.2 s: samples/s are those of the script's own clock."""

    def holds(found: Measured) -> None:
        cell = found.run.cells["evaluates-w2"]
        evaluated = part(cell, "evaluation_s")
        steps = len(world_steps(cell))
        assert len(evaluated) == pytest.approx(steps / 10, abs=1)
        assert all(close(each, 0.2) for each in evaluated)
        assert part(cell, "evaluation_s", rank=1) == []
        mean_s = with_parts(cell).filter("timed").select(pl.col("evaluation_s").mean()).collect().item()
        assert close(mean_s * steps * 2, sum(evaluated)), "of ranks and steps"
        assert cell.record.summary is not None
        assert close(cell.record.summary.samples_per_s.value, 2 * 4 / found.clock_s["evaluates"])
        waited = part(cell, "exposed_sync_s", rank=1)
        assert sum(each > 0.15 for each in waited) == pytest.approx(len(evaluated), abs=1), "the other one waits"

    two.check(holds)


def test_a_loader_that_both_ranks_wait_for(two: Repeated[Measured]) -> None:
    """Two processes that take 160 ms a batch give each rank one every 80 ms."""

    def holds(found: Measured) -> None:
        cell = found.run.cells["loaded-w2"]
        assert close(step_s(cell), 0.08)
        waits = with_parts(cell).filter("timed").group_by("rank").agg(pl.col("data_wait_s").mean()).collect()
        # One whose loader began earlier may have a burst in stock for good, and waits for the other rank instead.
        assert waits["data_wait_s"].to_numpy().max() == pytest.approx(0.04, abs=0.05 * 0.08)

    two.check(holds)


SEVENTH = """
own = open(f"own{rank}", "a", buffering=1)
def beside(number, model):
    if number == 0:
        own.write(f"{time.time()}\\n")
    if number % 7 == 6:
        torch.save({"weights": model.state_dict(), "large": Large()}, "last.pt")
class Large:
    def __reduce__(self):
        rest(0.1)
        return Large, ()
train(0.02, endless(), beside)
"""


@pytest.fixture(scope="module")
def budgeted(tmp_path_factory: pytest.TempPathFactory) -> Repeated[Run]:
    """A script that saves for 100 ms every seven steps of 20 ms, in a budget."""

    def measure() -> Run:
        place = tmp_path_factory.mktemp("budgeted")
        (place / "train.py").write_text(HEAD + SEVENTH)
        more = ("--world-sizes", "1,2", "--budget", "50s", "--keep-outputs", "--out", "run")
        return run_of(place, worldsize("study", *more, "train.py", cwd=place))  # a budget begins with the process

    return Repeated(measure)


def test_blocks_of_a_budget_are_whole_periods(budgeted: Repeated[Run]) -> None:
    """The first block shows after how many steps something recurs; each other one has as many of these as it should."""

    def holds(found: Run) -> None:
        for cell in found.cells.values():
            steps = with_parts(cell).filter(pl.col("timed") & (pl.col("rank") == 0) & (pl.col("block") > 0))
            saves = (pl.col("checkpoint_s") > 0.05).sum()
            counts = steps.group_by("block").agg(pl.len().alias("steps"), saves.alias("saves")).collect()
            assert len(counts) > 0
            assert (counts["steps"] == 7 * counts["saves"]).all()

    budgeted.check(holds)


def test_cells_are_launched_side_by_side(budgeted: Repeated[Run]) -> None:
    """All but the first, which tells how much memory they need: both begin before one of them has made a step."""

    def holds(found: Run) -> None:
        cells = [found.cells[name] for name in ("train-w1", "train-w2")]
        begun = [max(each.stat().st_mtime for each in (cell.folder / "job").glob("launch*")) for cell in cells]
        stepped = [float((outputs_folder(cell.folder) / "own0").read_text().split()[0]) for cell in cells]
        assert max(begun) < min(stepped)

    budgeted.check(holds)


def test_the_speed_up_of_a_script_is_the_planted_one(tmp_path: Path) -> None:
    """One worker computes for 40 ms; each of two for 60, so two are 2 × 40/60 as fast."""

    def measure() -> tuple[float, str]:
        place = tmp_path / f"try{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        (place / "train.py").write_text(HEAD + "train(0.06 if world > 1 else 0.04, endless())")
        run = run_of(place, studied(place, "train.py", "--steps", 60, "--block-steps", 20))
        assert set(run.cells) == {"train-python-w1", "train-w1", "train-w2"}
        [row] = [row for row in analyse(run).scaling if row.cell.world_size == 2]
        assert row.baseline is not None
        assert row.speedup is not None
        return row.speedup.estimate.value, row.baseline.id

    def holds(found: tuple[float, str]) -> None:
        assert close(found[0], 4 / 3)
        assert found[1] == "train-python-w1"

    Repeated(measure).check(holds)
