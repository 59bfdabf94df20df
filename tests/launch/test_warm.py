"""The warm server: its children are as if each had been started anew, and none outlives what started it."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from jobs import alive, wait_until
from worldsize.launch.environment import quick_environment, read_at_start
from worldsize.launch.warm import ALL_STAGES, SERVER, START_METHOD, Child, ServerLostError, WarmServer, WarmServers

MIB = 2**20
TELL = "warm_entries:tell"


@pytest.fixture(scope="module")
def server() -> Iterator[WarmServer]:
    """One of our own, as a command begins it."""
    shared = os.environ.pop(SERVER)
    made = WarmServer(quick_environment(), (), ALL_STAGES)
    os.environ[SERVER] = shared
    yield made
    made.close()


def start(server: WarmServer, function: str = TELL, **environment: str) -> Child:
    return server.start(function, title="worldsize test", environment=environment)


def told(child: Child, line: str = "") -> Any:
    child.send(line)
    answer = child.get(60)
    assert answer is not None
    return json.loads(answer)


def end(child: Child) -> int:
    child.hang_up()
    return child.wait(60)


def test_lines_go_in_and_come_out_and_the_end_is_told(server: WarmServer) -> None:
    child = start(server)
    assert [told(child, word)["heard"] for word in ("one", "two")] == ["one", "two"]
    assert end(child) == 3


def test_the_server_has_one_thread_and_all_is_loaded_before_it_forks(server: WarmServer) -> None:
    child = start(server)
    told(child)
    assert server.pid is not None
    assert psutil.Process(server.pid).num_threads() == 1
    about = told(child)
    assert (about["start_method"], about["threads"], about["parent"]) == ("fork", 1, server.pid)
    end(child)


def test_a_child_has_its_own_folder_variables_session_and_random_numbers(
    server: WarmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(server)
    monkeypatch.chdir(tmp_path)
    second = start(server, GREETING="good day", TMPDIR=str(tmp_path))
    a, b = told(first), told(second)
    assert (a["greeting"], b["greeting"]) == (None, "good day")
    assert (b["folder"], b["searched"]) == (str(tmp_path), str(tmp_path))
    assert b["temporary"] == str(tmp_path) != a["temporary"]
    assert b["session"] == b["pid"]
    assert all(x != y for x, y in zip(a["numbers"], b["numbers"], strict=True)), "each would have drawn its own"
    assert a["tensor"] == b["tensor"], "torch begins with the same seed in each interpreter"
    end(first)
    end(second)


def test_a_child_holds_no_descriptor_of_another(server: WarmServer) -> None:
    """Or the end of the one would not be told while the other lives."""
    first = start(server)
    count = len(told(first)["descriptors"])
    others = [start(server) for _ in range(3)]
    assert [len(told(other)["descriptors"]) for other in others] == [count] * 3
    assert end(first) == 3
    for other in others:
        assert end(other) == 3


def test_ps_names_a_child(server: WarmServer) -> None:
    child = start(server)
    told(child)
    assert " ".join(psutil.Process(child.wait_for_pid()).cmdline()).strip() == "worldsize test"
    end(child)


def test_a_process_with_a_thread_or_a_gpu_is_not_forked(server: WarmServer) -> None:
    child = start(server, "warm_entries:tell_safety")
    assert json.loads(child.get(60) or "") == [True, False]
    child.wait(60)


def test_spawn_starts_a_new_interpreter(server: WarmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(START_METHOD, "spawn")
    child = start(server)
    assert told(child)["start_method"] == "spawn"
    assert end(child) == 3


def test_what_a_child_raises_is_in_its_log(server: WarmServer, tmp_path: Path) -> None:
    child = server.start("warm_entries:fail", title="worldsize test", environment={}, log=tmp_path / "log")
    assert child.wait(60) == 1
    assert "ValueError: this one fails" in (tmp_path / "log").read_text()


def test_a_killed_child_is_told(server: WarmServer) -> None:
    child = start(server)
    told(child)
    child.kill()
    assert child.wait(60) == -9


def test_peak_memory_is_what_the_child_itself_takes(server: WarmServer) -> None:
    """Planted: 200 MiB. The code that it shares with the server, about 300 MiB, is not in it."""
    child = start(server, "warm_entries:hold_memory")
    before, peak = json.loads(child.get(60) or "")
    child.wait(60)
    assert before < 20 * MIB
    assert 200 * MIB <= peak < 215 * MIB


def test_other_variables_at_the_start_get_a_server_of_their_own() -> None:
    servers = WarmServers()
    with servers.held():
        usual, other = servers.get(), servers.get({**quick_environment(), "PYTHONHASHSEED": "7"})
        assert usual is servers.get({**quick_environment(), "GREETING": "is no matter for a start"})
        assert usual is not other
        child = start(other)
        told(child)
        end(child)
    assert servers.get is not None
    assert read_at_start({"OMP_NUM_THREADS": "1", "RANK": "0"}) == {"OMP_NUM_THREADS": "1"}


def test_a_server_that_was_killed_is_told_and_another_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVER)
    servers = WarmServers()
    with servers.held():
        first = servers.get()
        child = start(first)
        told(child)
        processes = [psutil.Process(child.wait_for_pid())]
        assert first.pid is not None
        psutil.Process(first.pid).kill()
        with pytest.raises(ServerLostError, match="has ended, with status -9"):
            child.get(60)
        assert wait_until(lambda: not alive(processes))
        with pytest.raises(ServerLostError):
            start(first).get(60)
        second = servers.get()
        assert second is not first
        child = start(second)
        assert told(child, "on")["heard"] == "on"
        end(child)


PARENT = """
import sys, time
from worldsize.launch.warm import WARM
with WARM.held():
    child = WARM.get().start("warm_entries:tell", title="worldsize test", environment={})
    child.send("here")
    child.get()
    print(WARM.get().pid, child.pid, flush=True)
    time.sleep(3600)
"""


def test_a_parent_that_is_killed_takes_server_and_children_with_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env={**os.environ, SERVER: ""}
    ) as parent:
        assert parent.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert wait_until(lambda: not alive(processes))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has no other place")
def test_a_shared_server_serves_only_those_in_its_own_surroundings() -> None:
    """One that is pinned to a core would get children that are not."""
    code = (
        "import os; from worldsize.launch.warm import WARM\n"
        "with WARM.held():\n"
        "    shared = WARM.get().pid is None\n"
        "print(shared)"
    )
    one = min(os.sched_getaffinity(0))
    for prefix, shared in (((), "True\n"), (("taskset", "-c", str(one)), "False\n")):
        done = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == shared


def test_nothing_comes_from_a_child_that_is_silent(server: WarmServer) -> None:
    child = start(server)
    told(child)
    with pytest.raises(queue.Empty):
        child.get(0.05)
    end(child)


class Deaf:
    """A server that does as it is told by nobody: its child never runs, or never ends."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, message: dict[str, Any]) -> None:
        self.told.append(message["do"])


def test_a_limit_is_that_of_the_whole_wait() -> None:
    """Not one of each line: a worker that says something all the time would never be killed."""
    child = Child(cast(Any, Deaf()), 0)
    child.put({"pid": 1})
    for _ in range(1_000):
        child.put({"line": "still here"})
    ended = threading.Event()

    def chat() -> None:
        while not ended.wait(0.01):
            child.put({"line": "still here"})

    thread = threading.Thread(target=chat)
    thread.start()
    try:
        with pytest.raises(queue.Empty):
            child.wait(0.2)
    finally:
        ended.set()
        thread.join()
