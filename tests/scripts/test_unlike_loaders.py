"""Scripts whose ranks use unlike loaders, and what makes batches while the script waits for its turn."""

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
THREADS = """
import queue, threading
made, notes = queue.Queue(4), queue.Queue(4)
def fill(into, item):
    while True: into.put(item)
for item, into in ((torch.ones(6, 4), made), (torch.ones(6, 4), made), ("fine", notes)):
    threading.Thread(target=fill, args=(into, item), daemon=True).start()
while True:
    made.get(), notes.get()
    step()
"""
ENDS = """
import concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(2)
for _ in range(40):
    pool.submit(lambda: torch.ones(6, 4)).result()
    step()
"""
PROCESSES = """
import multiprocessing
fork = multiprocessing.get_context("fork")
made = fork.Queue(6)
def fill():
    while True: made.put(1.0)
for _ in range(3): fork.Process(target=fill, daemon=True).start()
held_out = torch.utils.data.DataLoader(torch.ones(12, 4), 3, num_workers=2, persistent_workers=True)
for batch in held_out: pass
while True:
    made.get()
    step()
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
    assert "its processes that were started by spawn: they go on while it waits for its turn" in told


def test_threads_that_make_batches_make_bursts_and_no_others(tmp_path: Path) -> None:
    put(tmp_path, THREADS)
    [cell] = run_of(tmp_path, studied(tmp_path, "train.py", sizes="1")).cells.values()
    assert "loaders-go-on" not in codes(cell), "they are held"
    first = cell.steps.filter(block=0)["timed"].to_list()
    assert first[-6:] == [False] * 2 + [True] * 4, "two threads: two steps lead into four; the third makes no batches"


def test_the_processes_of_a_script_make_bursts_as_those_of_a_loader_do(tmp_path: Path) -> None:
    put(tmp_path, PROCESSES)
    [cell] = run_of(tmp_path, studied(tmp_path, "train.py", sizes="1")).cells.values()
    first = cell.steps.filter(block=0)["timed"].to_list()
    assert first[-9:] == [False] * 3 + [True] * 6, "three processes: three steps lead into six; two are of a loader"


def test_a_script_whose_pool_is_still_open_comes_to_its_end(tmp_path: Path) -> None:
    """Python wakes its threads before it waits for them."""
    put(tmp_path, ENDS)
    done = studied(tmp_path, "train.py", "--hang-timeout", "20s", sizes="1")
    assert "ended by itself" in done.stderr or done.returncode == 0, done.stderr
    assert "hang" not in done.stderr
