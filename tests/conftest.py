"""Fixtures of the whole tree."""

import contextlib
import gc
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from served import serving
from slow_tests import listed, names_of
from traces import Traces

if TYPE_CHECKING:
    from own_loops import WarmLoops

# An example that takes longer than hypothesis' 200 ms says that the machine was busy, and no more.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
TOGETHER = ("launchers", "failures", "metering", "browser", "security", "slurm")
"""Folders whose tests share what is dear to start, the longest first."""
FIRST = (
    *("training/test_compiled.py", "scripts/test_other_scripts.py", "scripts/test_compiled_scripts.py"),
    *("scripts/test_real_scripts.py", "cli/test_resume.py", "cli/test_damaged_run.py", "cli/test_end_to_end.py"),
    *("training/test_user_workload.py", "cli/test_bad_input.py", "cli/test_streams.py", "cli/test_other_code.py"),
    *("study/test_run_study.py", "study/test_pace.py", "training/test_save_restore.py", "strategies/test_parity.py"),
    *("analysis/test_gate.py", "trackers/test_each_tracker.py", "launch/test_by_hand.py", "training/test_trainer.py"),
    *("integrations/test_examples.py", "launch/test_spread_job.py", "truth/test_coverage.py"),
)
"""Files that take longest: begun late, one of them would keep one process busy after all others have ended."""
QUIET = ("truth", "measure/test_conditions.py")
"""Tests that measure: nothing else may run beside them. So do tests elsewhere that are marked as quiet."""

COMPUTED = (
    *("truth/test_coverage.py", "truth/test_one_number.py", "truth/test_one_worker.py"),
    *("truth/test_rehearsals_end.py", "truth/test_statistical_efficiency.py", "truth/test_world_step.py"),
    "truth/test_wrong_clock.py",
)
"""Of these, tests of which all holds whatever runs beside them, but for those that say that they are quiet."""


class ByPlace(LoadScopeScheduling):  # type: ignore[misc]
    """Of two processes that share the tests, one runs all of a folder whose tests share something, or all of a file."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid.partition("::")[0].removeprefix("tests/"))


def pytest_configure() -> None:
    """Keep bytecode, also where the environment says not to, as in many containers.

    Else each interpreter that a test starts compiles the package anew, and the second half of the tests rewrites the
    assertions of all of them once more.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded here stays: Python need not look for garbage in it, neither now nor in the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPlace:
    """How pytest-xdist shares the tests out."""
    return ByPlace(config, log)


def is_quiet(place: Path) -> bool:
    """Whether all tests of a file measure, given as its place below tests/."""
    return any(place.is_relative_to(quiet) for quiet in QUIET) and str(place) not in COMPUTED


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests that measure are asked for, the many files without any are not imported."""
    if not str(config.option.markexpr).startswith("quiet") or not collection_path.match("test_*.py"):
        return None
    has_some = is_quiet(collection_path.relative_to(TESTS)) or "mark.quiet" in collection_path.read_text("utf-8")
    return None if has_some else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests need the machine for themselves, which are slow, and put first what takes longest."""
    slow = {name for _, name in listed()}
    for item in items:
        place = item.path.relative_to(TESTS)
        if names_of(item.nodeid) & slow:
            item.add_marker(pytest.mark.slow)
        if is_quiet(place):
            item.add_marker(pytest.mark.quiet)
    places = {name: place for place, name in enumerate((*TOGETHER, *FIRST))}
    items.sort(key=lambda item: places.get(_scope(item.path.relative_to(TESTS).as_posix()), len(places)))


def _scope(file: str) -> str:
    """What one process runs all of: a folder, or a file."""
    folder = file.partition("/")[0]
    return folder if folder in TOGETHER else file


@pytest.fixture(scope="session", autouse=True)
def one_thread_each() -> None:
    """Where processes share the tests, each computes with one thread: threads that share a core wait for each other."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import scipy.linalg  # noqa: F401 - its BLAS is one of its own
        import threadpoolctl
        import torch

        threadpoolctl.threadpool_limits(1)
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def warm_server() -> Iterator[None]:
    """One warm server for all tests of this session, and for the commands that they start (launch/server.py)."""
    with serving():
        yield


@pytest.fixture(scope="session")
def loops() -> "Iterator[WarmLoops]":
    """Where loops of a user's own are run, one after the other."""
    from own_loops import warm_loops

    with warm_loops() as found:
        yield found


@pytest.fixture(scope="module")
def no_link_benchmark() -> Iterator[None]:
    """Studies that a file runs in this process time no collectives first: for tests that read nothing of the link."""
    from no_links import leave_links_out

    with pytest.MonkeyPatch.context() as patch:
        leave_links_out(patch)
        yield


@pytest.fixture(scope="session")
def cifar10_dir() -> Path:
    """A folder with the real CIFAR-10 in its binary layout, made once from the archive beside the repository."""
    source = ROOT.parent / "shared" / "data"
    archive, maker = source / "cifar10-jpeg.tar.xz", source / "make_cifar10.py"
    if not (archive.is_file() and maker.is_file()):
        pytest.skip("no real CIFAR-10 here: there is no folder shared/data beside the repository")
    cache = ROOT / ".pytest_cache"
    target = cache / f"cifar10-{hashlib.sha256(archive.read_bytes()).hexdigest()[:16]}"
    if not target.is_dir():
        cache.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch) / "made"
            subprocess.run([sys.executable, str(maker), str(made)], check=True)
            with contextlib.suppress(OSError):  # another process of these tests was quicker
                made.rename(target)
    return target


@pytest.fixture
def clean_imports(tmp_path: Path) -> Iterator[None]:
    """Forget the modules of its folder that a test imports, and the folders that it adds to the search path."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        # Others stay: parts of torch cannot be imported twice.
        places = [getattr(sys.modules[name], "__file__", None), *getattr(sys.modules[name], "__path__", [])]
        if any(Path(place).is_relative_to(tmp_path) for place in places if place):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a child process, an environment variable, a process group or a thread count behind."""
    before = Traces.now()
    yield
    left = before.clean_up()
    if left:
        pytest.fail(f"the test left behind: {'; '.join(left)}")
