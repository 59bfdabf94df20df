"""What a thread does with its time, where that is known: computing, sleep, garbage, a queue for a core."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worldsize.measure.activity import Activity, queued_by_all_s

COUNTED = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count it")


@pytest.fixture
def activity() -> Iterator[Activity]:
    watch = Activity()
    yield watch
    watch.close()


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@contextmanager
def sharing_a_core() -> Iterator[None]:
    """This thread and another process, which computes, have one core together."""
    cores = os.sched_getaffinity(0)
    core = max(cores)
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            os.sched_setaffinity(0, {core})
            yield
        finally:
            os.sched_setaffinity(0, cores)
            busy.kill()


def test_computing_is_the_time_of_this_thread_alone(activity: Activity) -> None:
    other = threading.Thread(target=burn, args=(0.1,))
    activity.begin()
    other.start()
    burn(0.05)
    other.join()
    found = activity.end(5)
    assert found is not None
    assert found.steps == 5
    assert 0.05 <= found.cpu_s < 0.1


@pytest.mark.quiet
def test_a_sleep_is_no_computing_and_no_queue(activity: Activity) -> None:
    activity.begin()
    time.sleep(0.2)
    found = activity.end(1)
    assert found is not None
    assert found.cpu_s < 0.02
    assert found.queued_s is None or found.queued_s < 0.1, "the machine may be busy, but not for half of it"


def test_garbage_counts_whoever_collects_it(activity: Activity) -> None:
    activity.begin()
    collecting = threading.Thread(target=gc.collect)
    began = time.perf_counter()
    collecting.start()
    collecting.join()
    took_s = time.perf_counter() - began
    found = activity.end(1)
    assert found is not None
    assert 0 < found.collected_s <= took_s


def test_the_time_of_a_thread_that_trains_elsewhere() -> None:
    go, done = threading.Event(), threading.Event()

    def train() -> None:
        go.wait()
        burn(0.05)
        done.set()
        go.clear()
        go.wait(10)

    thread = threading.Thread(target=train)
    thread.start()
    watch = Activity(thread)
    watch.begin()
    go.set()
    done.wait()
    found = watch.end(1)
    go.set()
    thread.join()
    watch.close()
    assert found is not None
    assert found.cpu_s >= 0.05


@COUNTED
def test_waiting_for_a_core_that_another_process_uses(activity: Activity) -> None:
    """Two that compute on one core have half of it each, so this one waits for about as long as it computes."""
    with sharing_a_core():
        activity.begin()
        burn(0.2)
        found = activity.end(1)
    assert found is not None
    assert found.queued_s is not None
    assert found.queued_s > 0.08


@COUNTED
def test_other_threads_wait_for_a_core_as_well() -> None:
    """Those of the thread that reads are not all: messages are sent by others."""
    burnt, read = threading.Event(), threading.Event()

    def compute() -> None:
        with sharing_a_core():
            burn(0.2)
            burnt.set()
            read.wait()

    before_s = queued_by_all_s()
    thread = threading.Thread(target=compute)
    thread.start()
    burnt.wait()
    after_s = queued_by_all_s()
    read.set()
    thread.join()
    assert before_s is not None
    assert after_s is not None
    assert 0.08 < after_s - before_s < 2


@COUNTED
def test_workers_are_forked_from_a_process_that_knew_its_threads_by_other_numbers() -> None:
    assert threading.main_thread().native_id  # known before the fork
    reading, writing = os.pipe()
    if not (child := os.fork()):
        watch = Activity()
        watch.begin()
        burn(0.01)
        found = watch.end(1)
        os.write(writing, b"told" if found and found.queued_s is not None else b"nothing")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 9) == b"told"


def test_without_a_step_there_is_nothing_to_tell(activity: Activity) -> None:
    assert activity.end(3) is None, "it has not begun"
    activity.begin()
    assert activity.end(0) is None


def test_nobody_listens_to_the_collector_afterwards() -> None:
    before = list(gc.callbacks)
    watch = Activity()
    assert len(gc.callbacks) == len(before) + 1
    watch.close()
    watch.close()
    assert gc.callbacks == before
