"""Commands of other launchers, and of an environment that has no worldsize, are run as they are typed."""

import importlib.util
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from in_process import worldsize
from no_links import leave_links_out
from worldsize.results.folder import Run, load_run

TRAIN = """
import os, time, torch
import torch.distributed as dist
rank = int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
size = int(os.environ.get("WORLD_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", 1)))
if size > 1:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", os.environ.get("PORT", "29555"))
    dist.init_process_group("gloo", rank=rank, world_size=size)
model = torch.nn.Linear(4, 1)
if size > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100000):
    model(torch.ones(6, 4)).sum().backward()
    time.sleep(0.01)
    optimizer.step()
    optimizer.zero_grad()
"""
BRIEF = ("--steps", 12, "--block-steps", 4, "--out", "run")


def studied(folder: Path, *words: object, sizes: str = "1,2") -> Run:
    """Study a command of a folder, from this folder; its links are not measured."""
    (folder / "train.py").write_text(TRAIN)
    with pytest.MonkeyPatch.context() as patch:
        leave_links_out(patch)
        done = worldsize("study", "--world-sizes", sizes, *BRIEF, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return load_run(folder / "run")


def beside(program: str) -> str:
    """A program of the environment that runs the tests."""
    found = Path(sys.executable).parent / program
    if not found.exists():
        pytest.skip(f"{program} is not installed")
    return str(found)


def check(run: Run, shown: str) -> None:
    """All cells have numbers; that of two workers runs what was typed, and its buckets are seen."""
    for cell in run.cells.values():
        assert cell.record.summary is not None, cell.record.error
        assert cell.record.batch_size == 6
    two = run.cells["train-w2"]
    assert two.record.settings is not None
    assert two.record.settings.program is not None
    assert two.record.settings.program.text == shown
    assert two.record.own_traits is not None
    assert "all-reduce" in two.record.own_traits.collectives
    assert two.scan_spans().collect().height > 0


def test_torchrun_is_run_as_it_is_typed(tmp_path: Path) -> None:
    run = studied(tmp_path, "--", "torchrun", "--standalone", "--nproc-per-node", "{n}", "train.py")
    check(run, "torchrun --standalone --nproc-per-node 2 train.py")


def test_accelerate_is_run_as_it_is_typed(tmp_path: Path) -> None:
    """On CPUs it starts several workers only where it is told that they are of several GPUs."""
    accelerate = beside("accelerate")
    words = (accelerate, "launch", "--multi_gpu", "--num_processes", "{n}", "train.py")
    check(studied(tmp_path, "--", *words, sizes="2"), f"{accelerate} launch --multi_gpu --num_processes 2 train.py")


def test_mpirun_is_run_as_it_is_typed(tmp_path: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed: apt-get install openmpi-bin")
    words = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "{n}", sys.executable, "train.py")
    check(studied(tmp_path, "--", *words), f"mpirun --allow-run-as-root --oversubscribe -n 2 {sys.executable} train.py")


def test_an_environment_without_worldsize_is_seen(tmp_path: Path) -> None:
    """It has torch by a path file, and nothing else of the environment that runs the tests."""
    place = tmp_path / "other"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    only_torch = tmp_path / "torch-alone"
    only_torch.mkdir()
    found = importlib.util.find_spec("torch")
    assert found is not None
    for name in Path(str(found.origin)).parent.parent.iterdir():
        if not name.name.startswith(("worldsize", "_worldsize", "__editable__", "_editable")):
            (only_torch / name.name).symlink_to(name)
    [site] = (place / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(f"{only_torch}\n")
    asked = subprocess.run([python, "-c", "import worldsize"], capture_output=True, cwd=tmp_path, check=False)
    assert asked.returncode != 0, "it has no worldsize"
    run = studied(tmp_path, "--script", f"{python} train.py", sizes="1")
    record = run.cells["train-python-w1"].record
    assert record.summary is not None, record.error
    assert record.batch_size == 6
