"""Bytecode of the package and of the tests, compiled once and not by each of the processes that share the tests.

Python may have been told to write none (PYTHONDONTWRITEBYTECODE), as in many containers: then each interpreter that a
test starts compiles the package, and each process of the tests rewrites the assertions of all of them.
"""

import compileall
import os
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc, assertstate_key, get_cache_dir

ROOT = Path(__file__).parents[2]


def compile_once(config: pytest.Config) -> None:
    """Write what is missing or out of date beside the sources; where that cannot be, all is as it would have been."""
    for folder in ("src", "tests/support", "benchmarks"):
        compileall.compile_dir(ROOT / folder, quiet=2)
    tests = [path for name in ("test_*.py", "conftest.py") for path in sorted((ROOT / "tests").rglob(name))]
    missing = [path for path in tests if _read_pyc(path, _place(path)) is None]
    parts = [missing[first :: os.cpu_count() or 1] for first in range(os.cpu_count() or 1)]
    for child in [_forked(config, part) for part in parts if part]:
        os.waitpid(child, 0)


def _place(path: Path) -> Path:
    return get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"


def _forked(config: pytest.Config, paths: list[Path]) -> int:
    child = os.fork()
    if child == 0:
        try:
            for path in paths:
                _place(path).parent.mkdir(exist_ok=True)
                source_hash, code = _rewrite_test(path, config)
                _write_pyc(config.stash[assertstate_key], code, source_hash, _place(path))
        finally:
            os._exit(0)
    return child
