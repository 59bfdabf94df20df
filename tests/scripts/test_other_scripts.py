"""What a study of a person's commands says of those that it cannot time, that end, and that are stopped."""

import json
import signal
import time
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commands import LONG_S, processes_of, start, wait_until
from commands import worldsize as by_itself
from in_process import worldsize
from user_scripts import BRIEF, codes, put, run_of, studied, typed
from worldsize.analysis.parts import with_parts
from worldsize.results.files import outputs_folder
from worldsize.results.folder import Cell, Run, load_run
from worldsize.study import command_executor

FORKS = """
import multiprocessing
def work():
    for _ in range(20): step()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""
FAILING = {
    "none": (
        "model(torch.ones(6, 4)).sum().backward()",
        "UsageError",
        "none.py 1 ended without a step of an optimizer",
    ),
    # Its loader's processes stand still between turns, and Python waits for them at its end.
    "loaders": (
        "loader = torch.utils.data.DataLoader(torch.ones(15, 4), 3, num_workers=2, persistent_workers=True)\n"
        "for batch in loader: step()\nsys.exit(3)",
        "CommandError",
        " loaders.py 1: it ended with exit status 3",
    ),
    "raises": (
        "step(); raise ValueError('shapes differ')",
        "CommandError",
        " raises.py 1: ValueError: shapes differ (raises.py:13)",
    ),
    # A process that a script forks is no rank of it.
    "forks": (FORKS, "UsageError", "forks.py 1 ended without a step of an optimizer"),
}


def test_what_cannot_be_timed_is_a_row_with_its_reason(tmp_path: Path) -> None:
    for name, (code, _, _) in FAILING.items():
        put(tmp_path, code, f"{name}.py")
    done = studied(tmp_path, [typed(f"{name}.py") for name in FAILING], sizes="1")

    assert done.returncode == 1, done.stderr
    cells = load_run(tmp_path / "run").cells
    for name, (_, kind, told) in FAILING.items():
        error = cells[f"{name}-w1"].record.error
        assert error is not None
        assert error.kind == kind
        assert told in error.message
        assert f"{name}-w1" in " ".join(done.stderr.split())


NEVER = """
def prepared():
    time.sleep(1000)
prepared()
"""
HANGS = """
for _ in range(9): step()
def waits():
    time.sleep(1000)
waits()
"""


def test_what_makes_no_step_is_told_with_the_place_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_executor, "START_S", 20.0)
    monkeypatch.setattr(command_executor, "STALL_S", 2.0)
    put(tmp_path, NEVER, "never.py")
    put(tmp_path, HANGS, "hangs.py")
    scripts = [typed("never.py"), typed("hangs.py")]
    assert studied(tmp_path, scripts, "--hang-timeout", "3s", sizes="1").returncode == 1

    never, hangs = (load_run(tmp_path / "run").cells[f"{name}-w1"].record for name in ("never", "hangs"))
    assert never.error is not None
    assert "has made no step of an optimizer within 20 s" in never.error.message
    assert "is in never.py:15, in prepared" in never.error.message
    assert hangs.error is not None
    assert hangs.error.kind == "Hang"
    assert "has ended no step for 3 s; rank 0 is in hangs.py:16, in waits" in hangs.error.message
    assert "hangs.py" in (hangs.error.traceback or "")


def test_two_workers_that_know_nothing_of_each_other(tmp_path: Path) -> None:
    put(tmp_path, "while True: step()")
    done = studied(tmp_path, "train.py")

    told = " ".join((done.stdout + done.stderr).split())
    assert "train.py runs 2 processes without a process group: each trains by itself" in told
    states = {name: cell.record.state for name, cell in load_run(tmp_path / "run").cells.items()}
    assert states == {"train-python-w1": "complete", "train-w1": "complete", "train-w2": "failed"}


def test_a_script_that_ends_within_a_block_is_timed_as_far_as_it_goes(tmp_path: Path) -> None:
    put(tmp_path, "for _ in range(12): step()")
    done = studied(tmp_path, typed("train.py"), "--steps", 20, "--block-steps", 12, sizes="1")
    [cell] = run_of(tmp_path, done).cells.values()

    assert cell.record.state == "complete"
    assert cell.record.launches >= 3, "9 steps of each are timed: three warm up"
    assert "ran-to-its-end" in codes(cell)
    assert cell.step_columns("timed")["timed"].sum() >= 20
    numbers = cell.step_columns("step")["step"].to_list()
    assert sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers))), "each has a number of its own"


FIRST = """
many = iter(torch.utils.data.DataLoader(torch.ones(10**6, 4), batch_size=3))
while True:
    batches = [next(many) for _ in range(4)]
    for batch in batches:
        (model(batch).sum() / 4).backward()
    optimizer.step()
"""
AVERAGED = """
import copy
average, loader = copy.deepcopy(model).requires_grad_(False), torch.utils.data.DataLoader(torch.ones(60, 4), 3)
for number in range(10**6):
    step()
    if number % 5 == 0:
        with torch.no_grad():
            for batch in loader:
                average(batch)
                time.sleep(0.01)
"""
STAMPS = """
stamps = open("stamps", "ab", buffering=0)
def stamped():
    step(0.02)  # long beside the time in which a turn is ended
    stamps.write(f"{time.monotonic_ns()} ".encode())
"""
IN_A_THREAD = """
import threading
def work():
    while True: stamped()
threading.Thread(target=work).start()
"""
GAN = """
other = torch.nn.Linear(4, 1)
second = torch.optim.Adam(other.parameters())
while True:
    stamped()
    other(torch.ones(6, 4)).sum().backward()
    second.step()
    second.zero_grad()
"""
ENDS = """
import concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(2)  # Python wakes its threads at its end, and waits for them
for _ in range(14):
    pool.submit(lambda: torch.ones(6, 4)).result()
    step()
"""
LOOP = """
from mine.rest import REST
assert sys.argv[1:] == ["--rate", "a b"]
open("written.txt", "w").write("by the script")
while True: step(REST)
"""
ENDLESS = {
    "fetched": FIRST,
    "averaged": AVERAGED,
    "threads": STAMPS + IN_A_THREAD,
    "gan": STAMPS + GAN,
    "ends": ENDS,
    "mine/loop": LOOP,
}


class Several(NamedTuple):
    """A study of several scripts, and what its command wrote."""

    said: Any
    run: Run


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Several:
    folder = tmp_path_factory.mktemp("several")
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").touch()
    (folder / "mine" / "rest.py").write_text("REST = 0.001\n")
    for name, code in ENDLESS.items():
        put(folder, code, f"{name}.py")
    scripts = [*(typed(f"{name}.py") for name in ENDLESS if "/" not in name), "-m mine.loop --rate 'a b'"]
    done = studied(folder, scripts, "--json", "--keep-outputs", sizes="1")
    return Several(json.loads(done.stdout), run_of(folder, done))


def test_a_script_that_ends_by_itself_is_started_again(several: Several) -> None:
    cell = several.run.cells["ends-w1"]
    assert cell.record.launches > 1
    assert "ran-to-its-end" in codes(cell)
    assert cell.step_columns("timed")["timed"].sum() >= 16


def test_micro_batches_that_are_fetched_first_are_all_counted(several: Several) -> None:
    assert several.run.cells["fetched-w1"].record.batch_size == 12


def test_an_average_of_the_weights_is_evaluated_in_the_step_it_lies_in(several: Several) -> None:
    """A step in five evaluates, 20 batches for 10 ms each: its time is its own, and has its name.

    The clock goes on while a command is stopped, and ends the sleep of a batch (method.md §13).
    """
    cell = several.run.cells["averaged-w1"]
    assert cell.record.batch_size == 6
    steps = with_parts(cell).select("step", "step_s", "evaluation_s").collect()
    long = steps.filter(steps["evaluation_s"] > 0)
    assert {step % 5 for step in long["step"]} == {2}, "step 1 ends before the first evaluation"
    assert all(seconds > 19 * 0.01 for seconds in long.filter(long["step"] > 2)["evaluation_s"])
    others = steps.filter((steps["step"] % 5 != 2) & (steps["step"] > 1))
    assert others["evaluation_s"].to_list() == [0.0] * len(others)


def test_a_thread_of_the_script_may_train(several: Several) -> None:
    assert several.run.cells["threads-w1"].record.batch_size == 6


def test_of_two_optimizers_the_first_counts(several: Several) -> None:
    cell = several.run.cells["gan-w1"]
    [told] = [each.message for each in cell.record.warnings if each.code == "several-optimizers"]
    assert told == "2 optimizers stepped; a step is one of the first that did. The others: Adam."
    assert cell.record.batch_size == 6


def test_a_module_and_its_arguments(several: Several) -> None:
    """A script alone is started by python, and by torchrun."""
    cells = [several.run.cells[name] for name in ("loop-python-w1", "loop-w1")]
    programs = [cell.record.settings.program for cell in cells if cell.record.settings is not None]
    assert [program.shown for program in programs if program] == [
        "python -m mine.loop --rate 'a b'",
        "torchrun --standalone --nproc-per-node 1 -m mine.loop --rate 'a b'",
    ]
    code = several.run.study.provenance.user_code
    assert code is not None
    names = {"mine/__init__.py", "mine/loop.py", "mine/rest.py"}
    assert {file.name for file in code.files} == {*names, *(f"{name}.py" for name in ENDLESS)}


def test_what_scripts_write_is_kept_apart(several: Several) -> None:
    place = several.run.folder.parent
    for name in ("loop-python-w1", "loop-w1"):
        assert (outputs_folder(several.run.cells[name].folder) / "written.txt").read_text() == "by the script"
    assert not (place / "written.txt").exists()
    assert not (place / "stamps").exists()


def test_several_take_turns_and_one_goes_on_at_a_time(several: Several) -> None:
    """By the clocks of the scripts themselves: their steps lie in blocks, one behind the other."""
    assert several.said["gate"] == []

    def stamps(cell: Cell) -> list[tuple[int, str]]:
        text = (outputs_folder(cell.folder) / "stamps").read_text()
        return [(int(word), cell.record.id) for word in text.split()]

    cells = [several.run.cells[name] for name in ("threads-w1", "gan-w1")]
    # Both are started side by side: until each has been stopped, steps of one may lie between those of the other.
    first_ns = min(moment for cell in cells for moment in cell.steps.filter("timed")["start_ns"])
    made = [each for each in sorted([*stamps(cells[0]), *stamps(cells[1])]) if each[0] >= first_ns]
    runs = [len(list(of_one)) for _, of_one in groupby(made, key=lambda each: each[1])]
    assert len(runs) >= 4
    assert min(runs[1:-1]) >= 3, "a turn has four steps, or three that warm up"


def test_a_script_behind_the_flags_and_a_launcher_behind_two_dashes(tmp_path: Path) -> None:
    """What stands behind a script is its own, also where it looks like a flag of ours."""
    put(tmp_path, "assert sys.argv[1:] == ['--steps', '7', '--out', 'b c']\nwhile True: step()")
    own = ("train.py", "--steps", "7", "--out", "b c")
    flags = ("--world-sizes", 1, *BRIEF)
    plain = worldsize("study", *flags, "--out", "run", *own, cwd=tmp_path)
    assert set(run_of(tmp_path, plain).cells) == {"train-python-w1", "train-w1"}
    launcher = ("torchrun", "--standalone", "--nproc-per-node", "{n}")
    behind = worldsize("study", *flags, "--out", "other", "--", *launcher, *own, cwd=tmp_path)
    assert behind.returncode == 0, behind.stderr
    [cell] = load_run(tmp_path / "other").cells.values()
    assert cell.record.settings is not None
    assert cell.record.settings.program is not None
    assert cell.record.settings.program.shown == (
        "torchrun --standalone --nproc-per-node 1 train.py --steps 7 --out 'b c'"
    )


def test_an_interrupted_study_of_two_workers_goes_on(tmp_path: Path) -> None:
    code = "torch.distributed.init_process_group('gloo')\nassert open('there.txt').read() == 'x'\n"
    put(tmp_path, f"{code}while True: step(0.02)")
    (tmp_path / "there.txt").write_text("x")
    flags = ("--world-sizes", "2", "--steps", 300, "--block-steps", 10, "--out", "run")
    study = start("study", "--script", typed("train.py", torchrun=True), *flags, cwd=tmp_path)
    lines = tmp_path / "run/cells/train-w2/rank1.jsonl"
    wait_until(lambda: lines.exists() and b'"timed":true' in lines.read_bytes(), study)
    study.send_signal(signal.SIGINT)
    out, err = study.communicate(timeout=LONG_S)
    assert study.returncode == 130, out + err
    assert "Go on with --resume" in err
    assert not processes_of(tmp_path)
    before = len(lines.read_text().splitlines())
    again = worldsize("study", "--resume", "--out", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    [cell] = load_run(tmp_path / "run").cells.values()
    steps = cell.step_columns("session", "rank")
    assert set(steps["session"]) == {0, 1}
    assert len(steps.filter((steps["session"] == 0) & (steps["rank"] == 1))) == before, "what was measured stays"


LOADER = """
signal = __import__("signal")
signal.signal(signal.SIGTERM, lambda *_: None)
for batch in torch.utils.data.DataLoader(torch.ones(10**6, 4), batch_size=3, num_workers=2):
    step()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_that_is_stopped_outlives_the_command(tmp_path: Path, number: int) -> None:
    put(tmp_path, LOADER)
    flags = ("--world-sizes", "1", "--budget", "60s", "--out", "run")
    study = start("study", "--script", "train.py", *flags, cwd=tmp_path)
    wait_until(lambda: (tmp_path / "run/cells/train-w1/rank0.jsonl").exists(), study)
    study.send_signal(number)
    study.communicate(timeout=LONG_S)
    assert study.returncode in (130, 143, -number)
    until = time.monotonic() + 45
    while (left := processes_of(tmp_path)) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left


@pytest.mark.quiet  # beside other tests an interval of 51 % held 0
@pytest.mark.parametrize(
    ("old_s", "new_s", "status", "told"),
    [(0.03, 0.045, 3, "gate at 5 %: failed: new-w1 takes"), (0.03, 0.03, 0, "gate at 5 %: passed")],
)
def test_the_gate_between_old_and_new(tmp_path: Path, old_s: float, new_s: float, status: int, told: str) -> None:
    put(tmp_path, f"while True: step({old_s})", "old.py")
    put(tmp_path, f"while True: step({new_s})", "new.py")
    scripts = ("--script", typed("old.py"), "--script", typed("new.py"), "--world-sizes", "1")
    flags = ("--fail-above", "5%", "--budget", "40s", "--block-steps", 4, "--out", "run")
    done = by_itself("study", *scripts, *flags, cwd=tmp_path)  # a budget counts from the begin of the process

    assert done.returncode == status, done.stdout + done.stderr
    assert told in done.stdout
    pages = [(tmp_path / "run" / "report" / name).read_text() for name in ("index.html", "summary.md")]
    assert all(told.partition("%: ")[2] in page for page in pages), "who reads the page sees it as well"
