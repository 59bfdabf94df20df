"""`--compile` on the command line: refused where it cannot be, and shown beside the times that it is no part of."""

import json
from pathlib import Path

import pytest

from commands import worldsize
from tiny import MODEL

TINY = ("--model", "tiny_model.py:net", "--data", "digits", "--batch-sizes", 16, "--threads-per-worker", 1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tiny_model.py").write_text(MODEL)
    return tmp_path


@pytest.mark.parametrize("command", ["study", "verify"])
def test_without_a_compiler_nothing_is_started(place: Path, command: str) -> None:
    what = ("--model", "tiny_model.py:net", "--data", "digits", "--strategies", "single")
    done = worldsize(command, *what, "--compile", "--out", "run", cwd=place, CXX="no-such-compiler")
    assert done.returncode == 2
    told = done.stderr.strip().splitlines()[-2:]
    assert told == [
        "worldsize: --compile was given, and torch.compile needs a C++ compiler: no-such-compiler was not found",
        "Install one (apt-get install g++), name another in CXX, or leave --compile out.",
    ]
    assert not (place / "run").exists()


def test_a_compiled_study_shows_what_compiling_took_and_times_none_of_it(place: Path) -> None:
    """Into a cache of its own; it leaves no process, which `worldsize` looks for."""
    grid = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--bucket-mb", 0.01, "--steps", 12)
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(place / "cache")}
    done = worldsize("study", *TINY, *grid, "--compile", "--out", "run", "--json", cwd=place, **cache)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["study"]["settings"]["compile"]
    for name, cell in content["cells"].items():
        assert cell["state"] == "complete"
        assert len(cell["compile_s"]) == cell["launches"]
        assert not any(warning["code"] == "compiled-again" for warning in cell["warnings"])
        lines = (place / "run" / "cells" / name / "rank0.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in lines]
        assert sum(step["timed"] for step in steps) >= 12
        # No step holds it, not even one of the warm-up; a later launch, which finds what was kept, is quick.
        assert max(step["step_s"] for step in steps) < max(cell["compile_s"])
    proof = content["cells"]["ddp-w2-b16"]["verified"]
    assert proof["gradients"] is None
    table = (place / "run" / "report" / "compiling.csv").read_text().splitlines()
    assert len(table) == 1 + len(content["cells"])
    assert (place / "cache").is_dir()
