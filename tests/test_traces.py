"""The fixture that fails a test for what it leaves behind sees it, and puts it back."""

import os
import subprocess
import sys

import psutil
import pytest
import torch
import torch.distributed as dist

from traces import Traces


def test_a_tidy_test_leaves_nothing() -> None:
    assert Traces.now().clean_up() == []


def test_a_child_is_seen_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.PATIENCE_S", 0.2)
    before = Traces.now()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        assert before.clean_up(children=False) == []
        (left,) = before.clean_up()
        assert f"process {child.pid}" in left
        assert "sleep(60)" in left
    assert not psutil.pid_exists(child.pid)


def test_an_environment_variable_is_seen_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.delenv("ADDED", raising=False)
    before = Traces.now()
    os.environ["KEPT"] = "no"
    os.environ["ADDED"] = "yes"
    assert before.clean_up() == ["the environment variable ADDED", "the environment variable KEPT"]
    assert (os.environ["KEPT"], os.environ.get("ADDED")) == ("yes", None)


def test_threads_and_affinity_are_seen_and_put_back() -> None:
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    before = Traces.now()
    torch.set_num_threads(threads + 1)
    assert before.clean_up() == [f"{threads + 1} torch threads instead of {threads}"]
    assert torch.get_num_threads() == threads
    if len(cores) > 1:
        os.sched_setaffinity(0, {min(cores)})
        (left,) = before.clean_up()
        assert "affinity" in left
        assert os.sched_getaffinity(0) == cores


def test_an_open_process_group_is_seen_and_left() -> None:
    before = Traces.now()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert before.clean_up() == ["an open process group"]
    assert not dist.is_initialized()
