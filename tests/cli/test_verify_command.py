"""`worldsize verify` with real processes, as a user types it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import processes_of
from in_process import worldsize
from proofs import HERE

SMALL = ("verify", "--model", f"{HERE}:net", "--batch-size", 4, "--threads-per-worker", 1, "--steps", 2)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert not processes_of(tmp_path)


def test_a_strategy_that_holds_at_every_world_size(place: Path) -> None:
    flags = ("--data", "synthetic:3x8x8:10:64", "--strategies", "ddp", "--world-sizes", "1,2")
    done = worldsize(*SMALL, *flags, "--json", cwd=place)
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["  starting ddp-w1-b4", "  starting ddp-w2-b4"]
    rows = {row["id"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["ddp-w1-b4", "ddp-w2-b4"]
    for row in rows.values():
        assert (row["error"], row["data"]) == (None, None)
        assert row["proof"]["arithmetic"] == "fp64"
        assert row["proof"]["largest_gradient"] < 1e-12
    assert rows["ddp-w2-b4"]["samples"] == 2 * 8 + 8, "two steps, and the first of the next epoch"
    assert not list(place.iterdir()), "without --out nothing is written"


def test_what_does_not_hold_is_named_and_ends_with_status_1(place: Path) -> None:
    """A strategy that leaves a parameter out, on data that are not the same at every world size."""
    flags = ("--data", f"{HERE}:by_world", "--strategies", f"{HERE}:Skips", "--world-sizes", "1,2", "--out", "proof")
    done = worldsize(*SMALL, *flags, cwd=place)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    said = " ".join(done.stdout.split())
    assert "the gradient of 4.bias differs by" in said
    assert "in step 0 (allowed: 1e-09); 4.bias is not the same on all ranks after step 0" in said
    assert "1 of 2 do not" in said
    written = json.loads((place / "proof" / "verify.json").read_text())
    alone, both = written["rows"]
    assert alone["data"] is None
    assert both["data"]["epoch"] == 0
    assert both["data"]["other"] == alone["id"]
    assert f"sample {both['data']['position']} of epoch 0 is not that of {alone['id']}" in said
    assert written["provenance"]["torch_version"]
    assert (place / "proof" / "verify.md").is_file()
    assert (place / "proof" / "verify.csv").read_text().count("\n") == 3
