"""Each common mistake that a report tells of is found by `worldsize audit`, by the rule that stands beside it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from advised import study
from made_audits import found, table
from made_runs import SHARES, MadeCell, synchronised
from worldsize.analysis.assumptions import Assumption, assumptions


@pytest.fixture
def told(tmp_path: Path) -> dict[str, Assumption]:
    two = MadeCell("ddp", 2, 32, step_s=0.6, shares=synchronised(SHARES, 0.1), comm_s=0.12, overlapped_s=0.06)
    analysis = study(tmp_path, [MadeCell("single", 1, 32, step_s=0.5), two])
    return {each.mistake: each for each in assumptions(analysis.record, analysis.cells, analysis.scaling)}


def first(text: str) -> float:
    """The number with which a text begins."""
    return float(re.sub(r"[^\d.].*", "", text.replace(",", "")))


def speedups(value: float) -> str:
    return table(f"GPUs, Epoch time (s), Speedup / 1, 24.0, 1.00 / 2, 14.4, {value:.2f}")


def parameters(value: float) -> str:
    return table(f"Model, Parameters / ResNet-18, {value:.0f}", "CIFAR-10")


def steps(value: float) -> str:
    return table(f"GPUs, Batch per GPU, Steps / 1, 32, 48 / 2, 32, {value:.0f}", "1536 training samples")


def bandwidth_of_a_step(value: float) -> str:
    """Gradients in MB, all-reduced in 100 ms; 44.7 MB are 0.447 GB/s."""
    return table(f"GPUs, Size (MB), Comm time (ms), Bandwidth (GB/s) / 2, 44.7, 100, {value / 100:.4f}")


def bandwidth_of_an_epoch(value: float) -> str:
    """In GB over the 2.4 s of communication of an epoch."""
    words = "11,173,962 parameters in fp32, 1536 training samples, batch size 32 per GPU"
    return table(
        f"GPUs, Epoch time (s), Comm per epoch (s), Bandwidth (GB/s) / 2, 14.4, 2.40, {value / 2.4:.2f}", words
    )


CASES: dict[str, Callable[[float], str]] = {
    "N counted twice in a speed-up": speedups,
    "Parameters of the 1000-class model": parameters,
    "Steps per epoch not divided by N": steps,
    "Elements taken for bytes": bandwidth_of_a_step,
    "One synchronisation counted for a whole epoch": bandwidth_of_an_epoch,
}


@pytest.mark.parametrize("mistake", CASES)
def test_the_rule_beside_it_finds_it(told: dict[str, Assumption], mistake: str) -> None:
    each = told[mistake]
    document = CASES[mistake]
    assert each.rule not in {rule for rule, _ in found(document(first(each.ours)))}
    assert each.rule in {rule for rule, _ in found(document(first(each.other)))}
