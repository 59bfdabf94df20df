"""A few inputs of each kind that worldsize reads end as they should; benchmarks/fuzz.py runs ten thousand and more."""

import json
from pathlib import Path

import pytest

from fuzz_kinds import KINDS_OF_INPUT
from fuzzing import LIMIT_S, Found, fuzz, outcome_of, time_limit
from worldsize.errors import UsageError

EXAMPLES = {
    "report": 6,
    "run folder": 40,
    "baseline": 60,
    "checkpoint": 100,
    "study file": 150,
    "cifar10": 60,
    "user data": 100,
}
KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "fuzz.json"


@pytest.fixture(scope="module", params=KINDS_OF_INPUT)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Found]:
    folder = tmp_path_factory.mktemp("fuzz")
    make, clean = KINDS_OF_INPUT[request.param](folder)
    return request.param, fuzz(make, EXAMPLES[request.param], seed=20, after=clean)


def test_no_input_crashes_or_hangs(found: tuple[str, Found]) -> None:
    kind, ended = found
    assert ended.failures == {}
    assert ended.outcomes.keys() <= {"accepted", "refused"}
    assert ended.total >= EXAMPLES[kind] * 0.9
    # A cell of a run folder that cannot be read is a row of the report; all other damage is refused.
    assert ended.outcomes["refused"] or kind == "report", "damage is seen"
    assert ended.outcomes["accepted"], "and what is whole is still read"


def test_what_ended_how_is_told_apart() -> None:
    def refuse(text: str) -> None:
        raise UsageError(text)

    assert outcome_of(lambda: None) == ("accepted", None)
    assert outcome_of(lambda: refuse("two lines\nof text")) == ("refused", None)
    assert outcome_of(lambda: refuse(""))[0] == "crashed", "a refusal that says nothing"
    assert outcome_of(lambda: refuse("x\n" * 9))[0] == "crashed", "one that is not plain"
    assert "ZeroDivisionError" in str(outcome_of(lambda: 1 / 0)[1])


def test_an_input_that_takes_too_long_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzing.LIMIT_S", 0.05)

    def stay() -> None:
        while True:
            pass

    outcome, told = outcome_of(stay)
    assert outcome == "hung"
    assert "in stay" in str(told)
    with time_limit(LIMIT_S):
        pass  # the timer is off again


def test_the_kept_run_covers_every_kind() -> None:
    if not KEPT.exists():
        pytest.skip("no run is kept: PYTHONPATH=src python benchmarks/fuzz.py makes benchmarks/results/fuzz.json")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert kept["kinds"].keys() == KINDS_OF_INPUT.keys()
    counts = [kind["outcomes"] for kind in kept["kinds"].values()]
    assert sum(sum(outcomes.values()) for outcomes in counts) == kept["inputs"] >= 10_000
    assert [outcomes for outcomes in counts if outcomes.get("crashed") or outcomes.get("hung")] == []
