"""Scripts whose ranks have unlike numbers of batches, and train within torch's Join."""

from pathlib import Path

from in_process import worldsize
from user_scripts import BRIEF, put
from worldsize.results.folder import load_run

JOINED = """
from torch.distributed.algorithms.join import Join
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    with Join([model]):
        for _ in range(8 + {more} * torch.distributed.get_rank()): step()
"""


def test_ranks_that_end_apart_are_told_at_once_and_others_are_timed(tmp_path: Path) -> None:
    put(tmp_path, JOINED.format(more=2), "apart.py")
    put(tmp_path, JOINED.format(more=0), "alike.py")
    two = ("--script", "apart.py", "--script", "alike.py", "--world-sizes", 2, "--out", "run")
    done = worldsize("study", *two, *BRIEF, "--hang-timeout", "30s", cwd=tmp_path)

    cells = load_run(tmp_path / "run").cells
    assert cells["alike-w2"].record.state == "complete", done.stderr
    error = cells["apart-w2"].record.error
    assert error is not None
    assert "the data of a rank of apart.py ended before another's" in error.message
    assert "after the same number of steps, or meter the loop in place of a study" in error.message
