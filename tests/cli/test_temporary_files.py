"""What a study that has ended leaves in the folder for temporary files: nothing."""

from pathlib import Path

import pytest

from commands import worldsize
from user_scripts import BRIEF, put

LOADER = """
for batch in torch.utils.data.DataLoader(torch.ones(10**6, 4), batch_size=3, num_workers=2):
    step()
"""
WORKS = {
    "own": ("--data", "synthetic:3x8x8:10:512", "--loader", "per-sample", "--loader-workers", 2, "--batch-sizes", 8),
    "script": ("--script", "train.py"),
}


@pytest.mark.parametrize("work", WORKS)
def test_processes_of_a_loader_leave_no_sockets(tmp_path: Path, work: str) -> None:
    """Each makes some, in a folder of multiprocessing's, and is ended with its rank."""
    place, temporary = tmp_path / "place", tmp_path / "t"
    place.mkdir()
    temporary.mkdir()
    put(place, LOADER)
    flags = ("--world-sizes", 1, "--out", "run", *BRIEF)
    done = worldsize("study", *WORKS[work], *flags, cwd=place, TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert not list(temporary.iterdir())
