"""Scripts whose ranks use unlike loaders, and loaders that cannot be stopped while the script waits for its turn."""

from pathlib import Path

from user_scripts import codes, put, run_of, studied

ALONE = """
torch.distributed.init_process_group("gloo")
held_out = torch.utils.data.DataLoader(torch.ones(12, 4), 3, num_workers=2)
for number in range(10**6):
    torch.distributed.all_reduce(torch.ones(1))
    step()
    if number == 1 and torch.distributed.get_rank() == 0:
        with torch.no_grad():
            for batch in held_out: model(batch)
"""
SPAWNED = """
import multiprocessing
if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=time.sleep, args=(8,), daemon=True).start()
    while True: step()
"""


def test_rank_0_alone_evaluates_with_processes(tmp_path: Path) -> None:
    """All ranks make the same steps, else they wait for each other for ever."""
    put(tmp_path, ALONE)
    [cell] = run_of(tmp_path, studied(tmp_path, "train.py", "--hang-timeout", "20s", sizes="2")).cells.values()
    assert cell.record.state == "complete"
    assert "loaders-go-on" not in codes(cell), "forked ones are stopped"
    made = cell.steps.group_by("rank").len()["len"].to_list()
    assert made[0] == made[1]
    first = cell.steps.filter(rank=1, block=0)["timed"].to_list()
    assert first[-6:] == [False, False, True, True, True, True], "two processes: two steps lead into four"


def test_processes_that_cannot_be_stopped_are_told(tmp_path: Path) -> None:
    put(tmp_path, SPAWNED)
    [cell] = run_of(tmp_path, studied(tmp_path, "train.py", sizes="1")).cells.values()
    [told] = [each.message for each in cell.record.warnings if each.code == "loaders-go-on"]
    assert told.startswith("Its processes started by spawn go on while it waits for its turn")
