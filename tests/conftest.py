"""Fixtures of the whole tree."""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from traces import Traces

ROOT = Path(__file__).parents[1]


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
