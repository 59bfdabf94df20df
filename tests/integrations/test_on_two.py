"""The adapters with two processes under torchrun: each rank's batches, and the messages of the real DDP."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adapted import EPOCHS, PHASES, Net, lines
from worldsize import load_run

SUPPORT = Path(__file__).parents[1] / "support"
NEEDS = {"lightning": "lightning", "hugging_face": "transformers", "accelerate": "accelerate"}
SAMPLES = {"lightning": [8, 3], "hugging_face": [8, 4], "accelerate": [8, 4]}
"""11 batches of 2, shared by two: Lightning shares out samples, Accelerate whole batches, and one of them twice."""
GRADIENTS_BYTES = 4 * sum(parameter.numel() for parameter in Net().parameters())


@pytest.mark.parametrize("kind", NEEDS)
def test_the_messages_of_ddp_are_seen_on_both(kind: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(NEEDS[kind]) is None:
        pytest.skip(f"needs worldsize[{NEEDS[kind]}]")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, str(SUPPORT / "adapted_on_two.py"), kind, "run"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SUPPORT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "worldsize: " not in done.stderr
    out = tmp_path / "run"
    for rank in range(2):
        steps = lines(out, rank)
        assert [step["samples"] for step in steps] == SAMPLES[kind] * EPOCHS
        assert all(set(step["phases"]) >= PHASES for step in steps)
        (spans,) = out.glob(f"cells/*/rank{rank}.spans.jsonl")
        messages = [json.loads(line) for line in spans.read_text().splitlines()]
        assert [step["payload_bytes"].count(GRADIENTS_BYTES) for step in messages] == [1] * len(steps)
    (cell,) = load_run(out).cells.values()
    assert (cell.record.strategy, cell.record.world_size, cell.record.state) == ("ddp", 2, "complete")
    assert [warning.code for warning in cell.record.warnings] == ["samples-counted"]
