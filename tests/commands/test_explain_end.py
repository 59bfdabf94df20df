"""Why a command failed, read from what it printed: real commands, and the words of launchers that are not installed."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from repeated import Repeated
from worldsize.commands.failure import Ending, explain_end

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ONE_FAILS = """
    import torch
    import torch.distributed as dist


    def load(rank):
        if rank == 1:
            open("data.bin")


    dist.init_process_group("gloo")
    load(dist.get_rank())
    dist.all_reduce(torch.ones(1))
"""
ONE_IS_KILLED = """
    import os
    import signal
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
"""
BOTH_FAIL = """
    import json

    json.loads("{")
"""
SPAWNS = """
    import torch
    from torch.utils.data import DataLoader

    for batch in DataLoader(torch.zeros(8, 2), num_workers=1, multiprocessing_context="spawn"):
        pass
"""
READS = """
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Pictures(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return open("a.png")


    for batch in DataLoader(Pictures(), num_workers=1):
        pass
"""
SUMMARY = """\
E1128 20:43:28.425000 59 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {0}) local_rank: 1
Traceback (most recent call last):
  File "/home/me/.venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_20:43:22
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {0} (pid: 5950)
  error_file: <N/A>
============================================================
"""
OPEN_MPI = """\
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[63047,1],1]
  Exit code:    1
--------------------------------------------------------------------------
"""
OPEN_MPI_SIGNAL = """\
--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node laptop exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""


def run(folder: Path, script: str, *command: str, status: int | None = None) -> Ending:
    """The explained end of a real command; `SCRIPT` among its words is a file with `script` in it."""
    (folder / "train.py").write_text(textwrap.dedent(script).lstrip("\n"))
    words = ["train.py" if word == "SCRIPT" else word for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode if status is None else done.returncode == status, done
    return explain_end(
        status=done.returncode, stderr=done.stderr, stdout=done.stdout, folder=folder, words=["python", *words[1:]]
    )


def python(folder: Path, script: str, *flags: str) -> Ending:
    return run(folder, script, sys.executable, *flags, "SCRIPT")


def explain(stderr: str, status: int = 1, stdout: str = "", words: tuple[str, ...] = ("python", "train.py")) -> Ending:
    return explain_end(status=status, stderr=stderr, stdout=stdout, folder=Path("/home/me/job"), words=words)


def traceback(error: str, *frames: str) -> str:
    """A traceback as Python prints it, of `file:line`, the outermost first."""
    pairs = (frame.split(":") for frame in frames)
    lines = (f'  File "{file}", line {line}, in main\n    work()\n' for file, line in pairs)
    return f"Traceback (most recent call last):\n{''.join(lines)}{error}\n"


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


CAUSE = traceback("ValueError: no such layer", "/home/me/job/train.py:12")
ECHO = traceback(
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]",
    "/home/me/job/train.py:30",
)


def started(folder: Path, script: str) -> "subprocess.Popen[str]":
    """Start torchrun with two ranks."""
    (folder / "train.py").write_text(textwrap.dedent(script).lstrip("\n"))
    pipe = subprocess.PIPE
    return subprocess.Popen((*TORCHRUN, "train.py"), cwd=folder, stdout=pipe, stderr=pipe, text=True)


def ended(folder: Path, process: "subprocess.Popen[str]") -> Ending:
    stdout, stderr = process.communicate()
    words = ("torchrun", "--nproc-per-node", "2", "train.py")
    return explain_end(status=process.returncode, stderr=stderr, stdout=stdout, folder=folder, words=words)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ending]:
    """Two ends of torchrun with two ranks, started together: most of it is loading torch."""
    scripts = {"one fails": ONE_FAILS, "one is killed": ONE_IS_KILLED}
    folders = {name: tmp_path_factory.mktemp(name.replace(" ", "-")) for name in scripts}
    running = {name: started(folders[name], script) for name, script in scripts.items()}
    return {name: ended(folders[name], process) for name, process in running.items()}


def test_the_rank_that_failed_is_told_and_not_the_one_that_lost_it(ends: dict[str, Ending]) -> None:
    ending = ends["one fails"]
    assert ending.error == "FileNotFoundError: [Errno 2] No such file or directory: 'data.bin' (train.py:7)"
    assert (ending.place, ending.rank, ending.advice) == ("train.py:7", 1, None)
    assert len(ending.lines) == 10
    assert not any("ChildFailedError" in line or "====" in line for line in ending.lines)


def test_a_killed_rank_is_told_although_only_the_other_says_something(ends: dict[str, Ending]) -> None:
    ending = ends["one is killed"]
    assert ending.error.startswith("rank 1 was killed by SIGKILL; the kernel's out-of-memory killer")
    assert (ending.place, ending.rank) == (None, 1)
    assert ending.text == f"{ending.error}\n{ending.advice}"
    assert ending.advice is not None
    assert "less memory" in ending.advice


def test_ranks_that_fail_alike_and_write_into_each_other(tmp_path: Path) -> None:
    """The line of the script is lost only where both have cut it."""

    def holds(ending: Ending) -> None:
        assert ending.error.startswith("JSONDecodeError: Expecting property name")
        assert ending.place == "train.py:3"
        assert ending.rank in (0, 1)

    Repeated(lambda: ended(tmp_path, started(tmp_path, BOTH_FAIL))).check(holds)


@pytest.mark.parametrize(
    ("script", "error", "place", "advice"),
    [
        ("import nosuch.part", "ModuleNotFoundError: No module named 'nosuch'", "train.py:1", "package of nosuch into"),
        ("input('name? ')", "EOFError: EOF when reading a line", "train.py:1", "asks for an answer"),
        ("x = 1\ndef f(:", "SyntaxError: invalid syntax", "train.py:2", None),
        ("import json\njson.load(3)", "AttributeError: 'int' object has no attribute 'read'", "train.py:2", None),
        ("raise SystemExit('no data here')", "it ended with exit status 1: no data here", None, None),
        ("raise SystemExit(3)", "it ended with exit status 3, and did not say why", None, None),
        ("raise AssertionError", "AssertionError", "train.py:1", None),
        ("class Odd(Exception): pass\nraise Odd('a\\nb')", "Odd: a", "train.py:2", None),
        ("try: {}['a']\nexcept KeyError as e: raise ValueError('b') from e", "ValueError: b", "train.py:2", None),
        ("raise ExceptionGroup('two', [ValueError('a')])", "ExceptionGroup: two (1 sub-exception)", "train.py:1", None),
        ("import os\nos.kill(os.getpid(), 9)", "it was killed by SIGKILL; the kernel's", None, "less memory"),
        ("import os\nos.kill(os.getpid(), 15)", "it was ended by SIGTERM", None, None),
        ("import ctypes\nctypes.string_at(0)", "it was ended by SIGSEGV", None, "PYTHONFAULTHANDLER"),
    ],
)
def test_a_script_under_python(tmp_path: Path, script: str, error: str, place: str | None, advice: str | None) -> None:
    ending = python(tmp_path, script)
    assert ending.error.startswith(error)
    assert ending.error.endswith(f" ({place})") or place is None
    assert (ending.place, ending.rank) == (place, None)
    assert (ending.advice is None) == (advice is None)
    assert advice is None or advice in str(ending.advice)


def test_what_the_fault_handler_says_gives_the_place(tmp_path: Path) -> None:
    ending = python(tmp_path, "import ctypes\nctypes.string_at(0)", "-X", "faulthandler")
    assert ending.error == "it was ended by SIGSEGV (segmentation fault) (train.py:2)"
    assert ending.advice is None


def test_missing_arguments(tmp_path: Path) -> None:
    script = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()"
    ending = python(tmp_path, script)
    assert ending.error == "train.py: error: the following arguments are required: --data"
    assert ending.advice == "Give the script its arguments: they stand behind its name."


def test_a_script_or_a_module_that_is_not_there(tmp_path: Path) -> None:
    no_script = run(tmp_path, "", sys.executable, "nosuch.py")
    assert no_script.error == f"No such file or directory: {tmp_path}/nosuch.py"
    assert no_script.advice is not None
    no_module = run(tmp_path, "", sys.executable, "-m", "nosuch.train")
    assert "No module named" in no_module.error
    assert no_module.advice is not None


def test_loader_processes_that_are_spawned_without_a_guard(tmp_path: Path) -> None:
    ending = python(tmp_path, SPAWNS)
    words = "An attempt has been made to start a new process before the current process has finished its bootstrapping"
    assert ending.error == f"RuntimeError: {words} phase (train.py:4)"
    assert ending.advice == 'Put the code that runs under `if __name__ == "__main__":`.'


def test_an_error_in_a_loader_process_is_told_at_its_own_place(tmp_path: Path) -> None:
    ending = python(tmp_path, READS)
    assert ending.error == "FileNotFoundError: [Errno 2] No such file or directory: 'a.png' (train.py:10)"


def test_a_place_lies_in_the_persons_own_code() -> None:
    frames = (
        *("/home/me/job/train.py:12", "/home/me/job/nets/vit.py:30"),
        *("/home/me/job/.venv/lib/python3.12/site-packages/torch/nn/functional.py:7", "/usr/lib/python3.12/re.py:9"),
        "<frozen importlib._bootstrap>:1",
    )
    assert explain(traceback("ValueError: a", *frames)).place == "nets/vit.py:30"
    assert explain(traceback("ValueError: a", *frames[2:])).place is None
    elsewhere = traceback("ValueError: a", "/home/me/code/train.py:3", "/opt/tools/x.py:4")
    assert explain(elsewhere).place is None
    assert explain(elsewhere, words=("python", "../code/train.py")).place == "train.py:3"


def test_a_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    text = traceback("ValueError: a", f"{tmp_path}/real/part.py:3")
    assert explain_end(status=1, stderr=text, stdout="", folder=link, words=["python"]).place == "part.py:3"


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_causes_that_of_the_rank_that_torchrun_saw_first(first: int) -> None:
    other = traceback("KeyError: 'b'", "/home/me/job/train.py:40")
    parts = [of_rank(1, CAUSE), of_rank(0, other)]
    ending = explain("".join(parts[:: 1 if first else -1]) + SUMMARY.format(1))
    assert (ending.error, ending.rank) == ("ValueError: no such layer (train.py:12)", 1)


def test_a_rank_that_says_nothing_is_named() -> None:
    ending = explain(of_rank(0, ECHO) + SUMMARY.format(7))
    assert ending.error == "rank 1 ended with exit status 7, and did not say why"
    assert ending.rank == 1


def test_an_echo_is_told_where_nothing_else_is_known() -> None:
    ending = explain(ECHO)
    assert ending.error.startswith("RuntimeError: [/pytorch/third_party/gloo")
    assert ending.place == "train.py:30"


@pytest.mark.parametrize(
    "after",
    [
        "Exception ignored in: <function Writer.__del__ at 0x7f>\n" + traceback("AttributeError: x", "/a/b.py:1"),
        "Exception in thread Thread-1 (work):\n" + traceback("OSError: x", "/home/me/job/train.py:1"),
        traceback("BrokenPipeError: [Errno 32] Broken pipe", "/home/me/job/train.py:1"),
        traceback("subprocess.CalledProcessError: Command '['x']' returned non-zero exit status 1.", "/a/launch.py:9"),
        "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
        OPEN_MPI,
    ],
)
def test_what_comes_after_the_cause_is_not_the_cause(after: str) -> None:
    assert explain(CAUSE + after).error == "ValueError: no such layer (train.py:12)"


def test_a_command_that_the_script_itself_runs_may_be_the_cause() -> None:
    error = "subprocess.CalledProcessError: Command '['git', 'log']' returned non-zero exit status 128."
    ending = explain(traceback(error, "/home/me/job/train.py:9", "/usr/lib/python3.12/subprocess.py:571"))
    assert ending.error.startswith("CalledProcessError: Command '['git', 'log']'")
    assert ending.place == "train.py:9"


def test_open_mpi_names_the_rank() -> None:
    assert explain(CAUSE + OPEN_MPI).rank == 1
    killed = explain(OPEN_MPI_SIGNAL, status=137)
    assert killed.error.startswith("it was killed by SIGKILL")
    assert killed.rank == 1
    tagged = "".join(f"[1,1]<stderr>: {line}\n" for line in CAUSE.splitlines())
    assert (explain(tagged).place, explain(tagged).rank) == ("train.py:12", 1)


def test_hydra_says_what_is_wrong_with_its_settings() -> None:
    hint = "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    said = "Could not override 'rate'.\nTo append to your config use +rate=1\nKey 'rate' is not in struct\n"
    assert explain(said + hint).error == "it ended with exit status 1: Could not override 'rate'."
    job = "Error executing job with overrides: ['rate=1']\n"
    assert explain(job + CAUSE + hint).error == "ValueError: no such layer (train.py:12)"


@pytest.mark.parametrize(
    ("error", "told", "advice"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. " + "GPU 0 is full. " * 30, "CUDA out of memory.", "batch"),
        ("AssertionError: Torch not compiled with CUDA enabled", "CUDA enabled (", "no GPU here"),
        ("RuntimeError: CUDA error: invalid device ordinal", "ordinal (", "fewer GPUs than processes"),
        ("MemoryError", "MemoryError (", "less memory"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", "Bus error. (", "shared memory"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", "Killed. (", "less memory"),
        ("torch.distributed.DistNetworkError: port: 29500, code: -98, name: EADDRINUSE", "EADDRINUSE (", "port"),
    ],
)
def test_what_to_do(error: str, told: str, advice: str) -> None:
    ending = explain(traceback(error, "/home/me/job/train.py:12"))
    assert told in ending.error
    assert len(ending.error) < 260
    assert advice in str(ending.advice)


def test_usage_of_other_parsers_and_through_a_launcher() -> None:
    click = "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: Missing option '--data'.\n"
    assert explain(click, status=2).error == "Error: Missing option '--data'."
    box = "╭─ Error ─────────────╮\n│ Missing option '--data'.  │\n╰─────────────────────╯\n"
    assert explain(box, status=2).error == "Error: Missing option '--data'."
    usage = "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data\n"
    accelerate = "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 2."
    for launcher in (SUMMARY.format(2), traceback(accelerate, "/a/launch.py:9"), ""):
        ending = explain(usage * 2 + launcher, status=1 if launcher else 2)
        assert ending.error == "train.py: error: the following arguments are required: --data"


def test_what_a_terminal_adds_is_taken_away() -> None:
    bar = "  0%|      | 0/10 [00:00<?]\r 10%|▎     | 1/10 [00:01<?]"
    coloured = CAUSE.replace("ValueError", "\x1b[1;35mValueError\x1b[0m").replace("\n", "\r\n")
    ending = explain(bar + coloured)
    assert ending.error == "ValueError: no such layer (train.py:12)"
    assert ending.lines[-1] == "ValueError: no such layer"
    assert ending.lines[0].startswith(" 10%|▎")
    merged = explain("", stdout=bar + coloured)
    assert (merged.error, merged.lines) == (ending.error, ending.lines)


def test_a_box_of_rich() -> None:
    box = "╭────── Traceback (most recent call last) ──────╮\n│ /home/me/job/train.py:12 in main            │\n╰───╯\n"
    assert explain(box + "ValueError: no such layer\n").error == "ValueError: no such layer (train.py:12)"


def test_what_a_script_prints_between_is_no_error() -> None:
    head, tail = CAUSE.split("    work()\n")
    assert explain(f"{head}Loss: 0.3\nDone\n    work()\n{tail}").error == "ValueError: no such layer (train.py:12)"
    frame = '  File "/home/me/job/train.py", line 13, in deeper\n    work()\n'
    own = explain(f"{head}Loss: 0.3\n    work()\n{frame}Odd: no such layer\nof that name\nDone\n")
    assert own.error == "Odd: no such layer (train.py:13)"


def _damaged() -> Iterator[str]:
    whole = of_rank(1, CAUSE) + of_rank(0, ECHO) + SUMMARY.format(1) + OPEN_MPI
    yield from (whole[:end] for end in range(0, len(whole), 7))
    yield from ("", "\n", "\r", "\x1b[", "[rank1]: ", 'Traceback (most recent call last):\n  File "')


def test_texts_that_are_cut_off_anywhere_are_explained_all_the_same() -> None:
    for text in _damaged():
        ending = explain(text)
        assert ending.error
        assert len(ending.lines) <= 10


def test_nothing_of_torch_is_loaded() -> None:
    code = "import sys, worldsize.commands.failure; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "False"
