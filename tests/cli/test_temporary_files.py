"""What a study that has ended leaves in the folder for temporary files: nothing."""

from pathlib import Path

import pytest

from commands import worldsize
from served import ITS_OWN
from tiny import MODEL
from user_scripts import BRIEF, put

LOADER = """
for batch in torch.utils.data.DataLoader(torch.ones(10**6, 4), batch_size=3, num_workers=2):
    step()
"""
TINY = ("--model", "tiny_model.py:net", "--data", "synthetic:3x32x32:10:512", "--strategies", "single,ddp")
WORKS = {
    "own": (*TINY, "--batch-sizes", 8, "--loader", "per-sample", "--loader-workers", 2, "--threads-per-worker", 1),
    "script": ("--script", "train.py"),
}


LEFT = pytest.mark.xfail(reason="a command is killed, and so are those that would remove its folders", strict=True)


@pytest.mark.parametrize("work", ["own", pytest.param("script", marks=LEFT)])
def test_processes_of_a_loader_leave_no_sockets(tmp_path: Path, work: str) -> None:
    """Each makes some, in a folder of multiprocessing's, and is ended with its rank.

    The server is the command's own: that of the tests has found its folder for temporary files before (torch._dynamo).
    """
    place, temporary = tmp_path / "place", tmp_path / "t"
    place.mkdir()
    temporary.mkdir()
    put(place, LOADER)
    (place / "tiny_model.py").write_text(MODEL)
    flags = ("--world-sizes", 1, "--out", "run", *BRIEF)
    done = worldsize("study", *WORKS[work], *flags, cwd=place, TMPDIR=str(temporary), **ITS_OWN)
    assert done.returncode == 0, done.stderr
    # torch keeps a cache of its compiler there, one for all programs.
    assert not [each for each in temporary.iterdir() if "torchinductor" not in each.name]
