"""The keeper of a command: its terminal, its end of file, its logs, and its end. All with real processes."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kept import KEEPER, kept, run, wait_for
from rights import needs_rights
from worldsize.commands import keeper, processes

SHELL = "/bin/sh"
# Each of these leaves the session and the parent behind; the second forgets its environment, the last one stops.
RUNAWAYS = """
setsid sh -c 'sleep 1000 & sleep 1000' &
setsid env -i sleep 1000 &
( ( setsid sleep 1000 & ) & )
( sleep 1000 & kill -STOP $! )
setsid sh -c 'kill -STOP $$; sleep 1000' &
"""


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


def named(name: str) -> set[int]:
    """The processes of a command that has forgotten its environment, by an argument of it."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and name.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return found


def test_a_command_runs_and_its_end_is_told(tmp_path: Path) -> None:
    command, told = run(tmp_path / "it", SHELL, "-c", "echo said; echo beside >&2; pwd; exit 3")
    assert [list(message) for message in told] == [["pid"], ["ended"]]
    assert told[1] == {"ended": 3}
    assert command.text() == f"said\n{tmp_path / 'it'}\n"
    assert command.text("stderr") == "beside\n"


def test_a_signal_is_told_as_a_negative_number(tmp_path: Path) -> None:
    _, told = run(tmp_path, SHELL, "-c", "kill -TERM $$")
    assert told[-1] == {"ended": -signal.SIGTERM}


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (("no-such-program",), {}, "no-such-program: No such file or directory"),
        (("/etc",), {}, "/etc: Permission denied"),
        ((SHELL,), {"cwd": "/no/such/folder"}, "/no/such/folder: No such file or directory"),
        ((SHELL,), {"stdout": "/no/such/folder/log"}, "/no/such/folder/log: No such file or directory"),
        ((SHELL,), {"network": 2**22 + 1}, "/proc/4194305/ns/net: No such file or directory"),
        ((SHELL,), {"marker": "="}, "a marker is NAME=value, not '='"),
    ],
)
def test_what_cannot_be_started_is_told_in_one_line(
    tmp_path: Path, words: tuple[str, ...], more: dict[str, Any], said: str
) -> None:
    _, told = run(tmp_path, *words, **more)
    assert told == [{"failed": said}]


def test_a_line_that_is_no_spec(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-I", "-S", KEEPER], input=b"{\n", capture_output=True, check=True)
    assert list(json.loads(done.stdout)) == ["failed"]
    done = subprocess.run([sys.executable, "-I", "-S", KEEPER], input=b"", capture_output=True, check=True)
    assert done.stdout == b""


def test_a_script_without_a_first_line_runs_in_a_shell(tmp_path: Path) -> None:
    (tmp_path / "it.sh").write_text("echo $0 $1")
    (tmp_path / "it.sh").chmod(0o755)
    command, told = run(tmp_path, "./it.sh", "a  b")
    assert told[-1] == {"ended": 0}
    assert command.text() == "./it.sh a b\n"


def test_the_terminal_is_one(tmp_path: Path) -> None:
    code = "import os; print([os.isatty(n) for n in range(3)], os.get_terminal_size(2), open('/dev/tty').isatty())"
    command, _ = run(tmp_path, SHELL, "-c", 'stty size; stty size <&2; exec "$@"', "sh", *python(code))
    size = "os.terminal_size(columns=123, lines=45)"
    assert command.text() == f"45 123\n45 123\n[True, True, True] {size} True\n"


def test_signals_are_as_a_shell_hands_them_on(tmp_path: Path) -> None:
    words = ("grep", "-E", "SigBlk|SigIgn", "/proc/self/status")
    command, _ = run(tmp_path, *words)

    def masks(text: str) -> list[int]:
        return [int(line.split()[1], 16) for line in text.splitlines()]

    # What no shell gives back, such as signals without a name that a CI ignores, a command inherits from anybody.
    blocked, ignored = masks(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    given_back = sum(1 << signal.Signals[f"SIG{name}"] - 1 for name in keeper.DEFAULTS)
    assert masks(command.text()) == [blocked, ignored & ~given_back]
    assert given_back & 1 << signal.SIGINT - 1
    assert given_back & 1 << signal.SIGPIPE - 1


READS = """
import sys
for _ in range(5):
    try: print(input("? "), "was read")
    except EOFError: print("end")
print(repr(sys.stdin.read()), repr(sys.stdin.readline()), repr(open("/dev/tty").read()), repr(open(0, "rb", 0).read(9)))
"""


def test_whoever_reads_finds_the_end_of_the_file(tmp_path: Path) -> None:
    command, told = run(tmp_path, *python(READS))
    assert told[-1] == {"ended": 0}
    assert command.text() == "end\n" * 5 + "'' '' '' b''\n"


def test_two_processes_read_at_once(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(READS)
    script = '"$@" reads.py > one & "$@" reads.py > two & wait; cat one two; read x; echo $?; cat'
    command, told = run(tmp_path, SHELL, "-c", script, "sh", sys.executable, "-I", "-S")
    assert told[-1] == {"ended": 0}
    assert command.text().splitlines()[-1] == "1"
    assert command.text().count("end\n") == 10


def test_who_reads_in_the_background_is_not_stopped(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(READS.replace("/dev/tty", "/dev/stdin"))
    script = 'timeout 60 "$@" reads.py; set -m; "$@" reads.py & wait'
    command, told = run(tmp_path, SHELL, "-c", script, "sh", sys.executable, "-I", "-S")
    assert told[-1] == {"ended": 0}
    assert command.text().count("end\n") == 10


def test_what_is_written_to_any_terminal_is_kept(tmp_path: Path) -> None:
    command, _ = run(tmp_path, SHELL, "-c", "echo a >&0; echo b; echo c > /dev/tty")
    assert sorted(command.text().split()) == ["a", "b", "c"]


def test_the_end_of_the_file_comes_again_after_all_input_was_thrown_away(tmp_path: Path) -> None:
    code = "import termios; termios.tcflush(0, termios.TCIFLUSH)\ntry: input()\nexcept EOFError: print('end')"
    command, _ = run(tmp_path, *python(code))
    assert command.text() == "end\n"


def test_a_debugger_is_left(tmp_path: Path) -> None:
    command, told = run(tmp_path, sys.executable, "-c", "import pdb, readline; pdb.set_trace(); print('after')")
    assert told[-1] == {"ended": 1}
    assert "BdbQuit" in command.text("stderr")


def test_last_words_are_whole(tmp_path: Path) -> None:
    said = "import os, sys; sys.stdout.write(''.join(f'{n}\\n' for n in range(300_000))); sys.stdout.flush()"
    command, _ = run(tmp_path, *python(f"{said}; os.write(2, b'x' * 50_000); os._exit(0)"))
    assert command.text() == "".join(f"{n}\n" for n in range(300_000))
    assert command.text("stderr") == "x" * 50_000


def test_a_log_ends_and_has_the_last_words(tmp_path: Path) -> None:
    code = "import os\nfor n in range(2500): os.write(1, b'%09d\\n' % n * 1000)"
    command, _ = run(tmp_path, *python(code))
    text = command.text()
    head, _, tail = text.partition("\n[…]\n")
    assert (len(head), len(tail)) == (keeper.LOG_BYTES, keeper.TAIL_BYTES)
    assert head.startswith("000000000\n")
    assert tail.endswith("000002499\n")


def test_a_log_that_is_just_full_is_whole(tmp_path: Path) -> None:
    command, _ = run(tmp_path, *python(f"print('x' * ({keeper.LOG_BYTES} + 10), end='')"))
    assert command.text() == "x" * (keeper.LOG_BYTES + 10)


def test_nothing_is_left_when_the_command_ends(tmp_path: Path) -> None:
    with kept(tmp_path, SHELL, "-c", f"{RUNAWAYS} setsid env -i sleep 1000.25 & sleep 0.5; exit 7") as command:
        assert list(command.hear()) == ["pid"]
        assert command.end() == [{"ended": 7}]
        assert not processes.marked(command.marker)
        assert not named("1000.25")


FORKS = """
import os, time
while True:
    if os.fork() == 0:
        os.setsid()
        time.sleep(0.05)
        os._exit(0)
    time.sleep(0.002)
"""


def test_nothing_is_left_of_what_forks_without_end(tmp_path: Path) -> None:
    with kept(tmp_path, SHELL, "-c", '"$@" & "$@" & sleep 0.5', "sh", *python(FORKS)) as command:
        command.hear()
        assert command.end() == [{"ended": 0}]
        assert not processes.marked(command.marker)


STUDY = """
import json, os, subprocess, sys, time
keeper = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    env={**os.environ, sys.argv[3]: sys.argv[4]}, start_new_session=True)
os.set_inheritable(keeper.stdin.fileno(), True)
helper = subprocess.Popen(["sleep", "1000"], close_fds=False) if sys.argv[5] == "fork" else None
keeper.stdin.write(sys.argv[2].encode() + b"\\n")
keeper.stdin.flush()
print(keeper.pid, helper.pid if helper else 0, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("helper", ["none", "fork"])
def test_a_killed_study_leaves_nothing(tmp_path: Path, helper: str) -> None:
    """Also where a process that the study has forked still holds the pipe."""
    marker = f"WORLDSIZE_TEST_COMMAND={os.urandom(8).hex()}"
    script = f"{RUNAWAYS} setsid env -i sleep 1000.75 & sleep 0.5; echo ready; kill -STOP $$"
    spec = {
        **{"words": [SHELL, "-c", script], "cwd": str(tmp_path), "stdout": str(tmp_path / "stdout.log")},
        **{"stderr": str(tmp_path / "stderr.log"), "overlays": [], "network": None, "columns": 80, "lines": 24},
        "marker": marker,
    }
    words = (STUDY, KEEPER, json.dumps(spec), *marker.split("="), helper)
    with subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE) as study:
        assert study.stdout is not None
        kept_by, held_by = map(int, study.stdout.readline().split())
        log = tmp_path / "stdout.log"
        wait_for(lambda: log.exists() and "ready" in log.read_text())
        wait_for(lambda: len(processes.marked(marker)) > 6 and named("1000.75"))
        study.kill()
    wait_for(lambda: not (processes.marked(marker) or named("1000.75") or kept_by in processes.descendants(1)))
    if held_by:
        os.kill(held_by, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_keeper_ends_all(tmp_path: Path, number: int) -> None:
    with kept(tmp_path, SHELL, "-c", f"{RUNAWAYS} echo ready; sleep 1000") as command:
        command.hear()
        wait_for(lambda: "ready" in command.text())
        command.process.send_signal(number)
        assert command.end() == [{"ended": -signal.SIGKILL}]
        assert not processes.marked(command.marker)


def test_the_end_of_stdin_ends_all(tmp_path: Path) -> None:
    with kept(tmp_path, SHELL, "-c", "echo ready; sleep 1000") as command:
        command.hear()
        wait_for(lambda: "ready" in command.text())
        assert command.process.stdin is not None
        command.process.stdin.close()
        assert command.end() == [{"ended": -signal.SIGKILL}]
        assert not processes.marked(command.marker)


def test_a_killed_keeper_takes_the_command_along(tmp_path: Path) -> None:
    """The rest is for the study to end, by the marker: nobody else knows of it any more."""
    # A terminal that goes tells its session so, which not all heed.
    script = "trap '' HUP; setsid sh -c 'echo ready; exec sleep 1000' & exec sleep 1000"
    with kept(tmp_path, SHELL, "-c", script) as command:
        pid = command.hear()["pid"]
        wait_for(lambda: "ready" in command.text())
        assert pid in processes.descendants(command.process.pid)
        command.process.kill()
        command.process.wait()
        wait_for(lambda: pid not in processes.marked(command.marker))
        assert processes.marked(command.marker)  # the first one to sleep
        assert processes.end_all(command.marker) == []
        assert not processes.marked(command.marker)


@pytest.mark.parametrize("marker", ["", "=", "NAME=", "=value", "NAME"])
def test_what_is_no_marker_ends_nothing(marker: str) -> None:
    with pytest.raises(ValueError, match="a marker is NAME=value"):
        processes.end_all(marker)


@needs_rights[0]
@needs_rights[1]
def test_a_command_joins_the_network_of_a_process(tmp_path: Path) -> None:
    with subprocess.Popen(["unshare", "--net", "sleep", "1000"]) as host:
        try:
            ours, theirs = (Path(f"/proc/{process}/ns/net") for process in ("self", host.pid))
            wait_for(lambda: ours.readlink() != theirs.readlink())
            command, _ = run(tmp_path, "readlink", "/proc/self/ns/net", network=host.pid)
            assert command.text().strip() == str(theirs.readlink())
        finally:
            host.kill()
