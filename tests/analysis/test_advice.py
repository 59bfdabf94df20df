"""All advice on a study: its order, one of each code, no contradiction to the verdict, and its page in the docs."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import worldsize.analysis.advice as package
from advised import SINGLE, Messages, basis, codes, evidence, exchanging, found, gain, link, messages, study
from made_runs import MadeCell, make_run, messy_cells, usual_cells
from worldsize.analysis.advice import RULES, advise
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.results.folder import load_run
from worldsize.results.records import ErrorRecord

DOCS = Path(__file__).parents[2] / "docs" / "advice.md"
SOURCES = Path(package.__file__).parent


def made(folder: Path, cells: list[MadeCell]) -> StudyAnalysis:
    return analyse(load_run(make_run(folder, cells)))


def test_every_code_has_its_row_in_the_docs() -> None:
    in_code = set(
        re.findall(r'(?:code=|candidate\(\s*)"([a-z-]+)"', "".join(path.read_text() for path in SOURCES.glob("*.py")))
    )
    in_docs = re.findall(r"^\| `([a-z-]+)` \|", DOCS.read_text(), flags=re.MULTILINE)
    assert sorted(in_docs) == sorted(in_code)


def test_every_rule_is_in_the_list() -> None:
    rules = re.findall(
        r"^def ([a-z]\w+)\(seen: Seen\) -> Iterator\[Candidate\]",
        "".join(path.read_text() for path in SOURCES.glob("*.py")),
        flags=re.MULTILINE,
    )
    assert sorted(rule.__name__ for rule in RULES) == sorted(rules)


class TestOrder:
    FAST = exchanging("ddp", exposed=0.2, step_s=0.5)
    SLOW = exchanging("all-reduce", exposed=0.6, step_s=0.9)

    def test_the_cell_of_the_verdict_before_others_and_the_largest_gain_first(self, tmp_path: Path) -> None:
        waits = replace(self.FAST, shares={**self.FAST.shares, "data_wait_s": 0.116, "forward_s": 0.14})
        analysis = study(tmp_path, [SINGLE, waits, self.SLOW])
        found_codes = [(each.code, each.cell_id) for each in advise(analysis)]
        assert found_codes == [
            ("communication-bound", waits.id),  # 20 %
            ("input-bound", waits.id),  # 11.6 %
            ("strategy-choice", self.SLOW.id),  # 1.8 times, but of a cell that nobody need use
        ]

    def test_one_advice_per_code_and_the_others_are_named(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [SINGLE, self.FAST, self.SLOW]), "communication-bound")
        assert advice is not None
        assert advice.cell_id == self.FAST.id, "not the worst one: the one that the verdict speaks of"
        assert evidence(advice)["Also in"] == "all-reduce-w2-b32"

    def test_many_others_are_counted(self, tmp_path: Path) -> None:
        others = [replace(self.SLOW, strategy=name) for name in ("a", "b", "c", "d", "e")]
        advice = found(study(tmp_path, [SINGLE, self.FAST, *others]), "communication-bound")
        assert advice is not None
        assert evidence(advice)["Also in"] == "a-w2-b32, b-w2-b32, c-w2-b32 and 2 more"

    def test_what_keeps_from_an_answer_goes_before_any_gain(self, tmp_path: Path) -> None:
        assert codes(study(tmp_path, [self.FAST]))[0] == "baseline-not-comparable"

    def test_no_code_twice(self, tmp_path: Path) -> None:
        found_codes = codes(study(tmp_path, [SINGLE, self.FAST, self.SLOW, replace(self.SLOW, world_size=4)]))
        assert len(found_codes) == len(set(found_codes))


class TestVerdict:
    def test_names_the_loss_of_the_first_advice(self, tmp_path: Path) -> None:
        cell = exchanging(exposed=0.3, step_s=0.7)
        analysis = study(tmp_path, [SINGLE, cell], changes=[messages(cell, Messages()), link(1e-5, 1e8)])
        assert codes(analysis)[0] == "communication-bound"
        assert "Its bottleneck is exposed communication: 210 ms of a mean step of 700 ms, 30.0 %." in verdict(analysis)

    def test_names_what_limits_even_where_one_worker_is_limited_by_it_as_well(self, tmp_path: Path) -> None:
        """Against its baseline it loses most to communication; but both wait for data half of the time."""
        waiting = {"data_wait_s": 0.5, "forward_s": 0.2, "backward_s": 0.3}
        several = {"data_wait_s": 0.46, "forward_s": 0.18, "backward_s": 0.28, "exposed_sync_s": 0.08}
        cells = [replace(SINGLE, shares=waiting), MadeCell("ddp", 2, step_s=0.55, shares=several, rank_spread=0)]
        analysis = study(tmp_path, cells)
        assert codes(analysis)[0] == "input-bound"
        assert verdict(analysis).endswith("What limits it most is waiting for data.")

    def test_does_not_doubt_a_loss_that_an_advice_is_sure_of(self, tmp_path: Path) -> None:
        cells = [replace(SINGLE, noise=0.02), replace(exchanging(exposed=0.11, step_s=0.502), noise=0.02)]
        analysis = study(tmp_path, cells)
        assert "communication-bound" in codes(analysis)
        assert "No significant loss" not in verdict(analysis)
        assert "Its bottleneck is exposed communication" in verdict(analysis)

    def test_a_noisy_study_names_no_cause_in_either(self, tmp_path: Path) -> None:
        cells = [replace(SINGLE, noise=0.25), replace(exchanging(exposed=0.1, step_s=0.7), noise=0.25)]
        analysis = study(tmp_path, cells)
        assert codes(analysis)[0] == "too-noisy"
        assert "too wide to name its bottleneck" in verdict(analysis)

    def test_a_sweep_that_is_not_sure_says_so(self, tmp_path: Path) -> None:
        cells = [MadeCell("single", 1, b, step_s=b / 64, noise=0.4) for b in (32, 128)]
        assert "This is uncertain: What single gains from larger batches is known to" in verdict(
            study(tmp_path, cells, sweep=True)
        )

    def test_a_strong_scaling_study_without_its_baseline_is_not_called_crowded(self, tmp_path: Path) -> None:
        text = verdict(study(tmp_path, [exchanging(exposed=0.3)], global_batch=64))
        assert "more threads than cores" not in text
        other = verdict(study(tmp_path / "two", [exchanging(), exchanging("all-reduce", step_s=0.9)], global_batch=64))
        assert "without a speed-up (no baseline" in other


MEMORY = ErrorRecord(kind="OutOfMemory", message="can't allocate memory", rank=0)
EXPERIMENTS: dict[str, tuple[list[MadeCell], dict[str, Any]]] = {
    "batch-sweep": (
        [
            MadeCell("single", 1, 32, step_s=0.4),
            MadeCell("single", 1, 128, step_s=1.0),
            MadeCell("single", 1, 512, state="failed", error=MEMORY),
        ],
        {"sweep": True},
    ),
    "dp-scaling": (
        [
            MadeCell("single", 1, 32, step_s=0.5),
            MadeCell("single", 1, 64, step_s=0.9),
            exchanging("data-parallel", step_s=0.6),
            exchanging("data-parallel", step_s=1.0, batch_size=64),
        ],
        {},
    ),
    "ddp-large-batch": ([MadeCell("single", 1, 32), exchanging(step_s=0.6)], {"accuracy_epochs": 2}),
    "sync-ladder": (
        [
            MadeCell("single", 1, 64, step_s=1.0),
            exchanging("gather-scatter", exposed=0.5, step_s=0.8),
            exchanging("ddp", exposed=0.3, step_s=0.6),
        ],
        {"global_batch": 64},
    ),
}


class TestExperiments:
    @pytest.mark.parametrize("name", list(EXPERIMENTS))
    def test_each_gets_advice_that_is_whole(self, tmp_path: Path, name: str) -> None:
        cells, settings = EXPERIMENTS[name]
        given = advise(study(tmp_path, cells, experiment=name, **settings))
        assert given
        for each in given:
            assert each.finding.endswith(".")
            told = [f"{every.label} {every.text}" for every in each.evidence]
            said = " ".join([each.finding, each.cause, each.next_step, gain(each), basis(each), *told])
            assert not re.search(r"None|nan|inf\b|–", said), said
            assert each.evidence
            assert all(every.text for every in each.evidence)
            assert all((every.number is None) == (every.unit is None) for every in each.evidence)
            assert each.gain is None or (each.gain.text and each.gain.basis)
            assert each.command is None or each.command.startswith("worldsize ")

    def test_the_ladder_says_first_what_limits_its_fastest_rung_and_what_to_try(self, tmp_path: Path) -> None:
        cells, settings = EXPERIMENTS["sync-ladder"]
        fastest = cells[2]
        full = [messages(fastest, Messages(payload_bytes=10**7, transfer_s=0.18)), link(1e-5, 1.15e8)]
        first, second = advise(study(tmp_path, cells, changes=full, experiment="sync-ladder", **settings))[:2]
        # All of it would fit beside backward; with twice the samples half of it stays.
        assert (first.code, first.cell_id) == ("overlap-incomplete", fastest.id)
        assert "--bucket-mb auto" in str(first.command)
        assert (second.code, second.cell_id) == ("bandwidth-bound", fastest.id)
        assert second.command is not None
        assert second.command.startswith("worldsize study ")
        assert "--global-batch 128" in second.command


@pytest.mark.parametrize("cells", [messy_cells(), usual_cells(noise=0.02), []], ids=["messy", "usual", "none"])
def test_whatever_a_study_left_gets_advice_or_none_and_never_an_error(tmp_path: Path, cells: list[MadeCell]) -> None:
    analysis = made(tmp_path, cells)
    assert advise(analysis) == advise(analyse(analysis.run)), "the same samples, the same advice"
