"""How long it takes to try an advice, told beside its command."""

from dataclasses import replace
from pathlib import Path

import pytest

from advised import SINGLE, exchanging, study
from worldsize.analysis.advice import advise
from worldsize.analysis.advice.finding import Advice
from worldsize.analysis.advice.price import minutes_text, takes_s
from worldsize.cli.results import print_results

FAST = exchanging("ddp", exposed=0.2, step_s=0.5)
ADVICE = Advice("any", None, "", (), "", "", None, None)


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        ("worldsize study --strategies ddp --world-sizes 2 --budget 2min", 120),
        ("worldsize study --strategies ddp --world-sizes 2", 90),
        ("worldsize study default", 90),
        # Two strategies at two sizes: 3 s to launch each, and 1.5 times its 100 steps of 500 ms.
        ("worldsize study --strategies single,ddp --world-sizes 1,2 --steps 100", 4 * (3 + 75)),
        ("torchrun --nproc-per-node 2 -m worldsize study --world-sizes 2 --steps 10", 3 + 7.5),
        # Ten steps at each batch: those of twice the batch take twice as long.
        ("worldsize study --world-sizes 2 --batch-sizes 32,64,128 --steps 10", 3 * 3 + 1.5 * 10 * (0.5 + 1 + 2)),
        ("worldsize comm --world-size 2", 20),
        ("worldsize comm --world-size 2 --budget 1min", 60),
        # An epoch of 1,536 samples at 128 samples/s, and of two epochs.
        ("worldsize train --strategy ddp --world-size 2 --batch-size 32", 3 + 1.5 * 12),
        ("worldsize train --strategy ddp --world-size 2 --batch-size 32 --epochs 2", 3 + 1.5 * 24),
        ("worldsize sweep --strategy ddp --world-size 2 --batch-size 32", None),
        (None, None),
    ],
)
def test_what_a_command_takes(tmp_path: Path, command: str | None, seconds: float | None) -> None:
    analysis = study(tmp_path, [SINGLE, FAST])
    found = takes_s(replace(ADVICE, command=command), analysis)
    assert found == (None if seconds is None else pytest.approx(seconds, rel=0.01))


def test_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analysis = study(tmp_path, [SINGLE, FAST])
    first = advise(analysis)[0]
    assert first.command is not None
    assert first.takes_s is not None
    print_results(analysis, tmp_path / "report.html")
    assert f"Takes:   {minutes_text(first.takes_s)}" in capsys.readouterr().out


def test_words() -> None:
    assert [minutes_text(each) for each in (20, 99.5, 120, 7200)] == [
        "about 20 s",
        "about 100 s",
        "about 2 min",
        "about 120 min",
    ]
