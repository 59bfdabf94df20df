"""What `worldsize verify` makes of the answers of its jobs; the jobs themselves are in cli/test_verify_command.py."""

from typing import get_args

from made_runs import provenance
from worldsize.analysis.sameness import fault_texts
from worldsize.config import VerifySettings
from worldsize.report.tables import to_markdown, to_records
from worldsize.report.verify_table import findings, lossy_summary, verify_summary, verify_table
from worldsize.results.check_records import Difference, Fault, FaultKind, Losses
from worldsize.results.records import ErrorRecord
from worldsize.results.verify_records import DataDifference, Proof, ProofRecord, RankProof, Samples, VerifyRow
from worldsize.study.verify import _as_read, _compare


def row(name: str = "ddp", *, error: ErrorRecord | None = None, **found: object) -> VerifyRow:
    values = {"arithmetic": "fp64", "tolerance": 1e-9, "steps": 3, "compared_steps": 3, "dropouts": 0, "buffers": 0}
    proof = None if error else Proof.model_validate({**values, "largest_gradient": 1e-15, **found})
    return VerifyRow(id=f"{name}-w2-b4", strategy=name, world_size=2, processes=2, proof=proof, error=error, samples=8)


def record(*rows: VerifyRow) -> ProofRecord:
    return ProofRecord(provenance=provenance(), settings=VerifySettings(), rows=list(rows))


def wrong(step: int = 0, relative: float | None = 0.5) -> Difference:
    return Difference(step=step, parameter="layer.weight", relative=relative)


def test_the_exit_status_is_that_of_the_worst_row() -> None:
    crash = ErrorRecord(kind="ValueError", message="ValueError: no", exit_status=1)
    mistake = ErrorRecord(kind="UsageError", message="two forward passes differ", exit_status=2)
    assert record(row()).exit_status == 0
    assert record(row(), row(gradients=wrong())).exit_status == 1
    assert record(row(weights=wrong())).exit_status == record(row(ranks=wrong())).exit_status == 1
    assert record(row(), row(error=crash)).exit_status == 1
    assert record(row(error=mistake), row(gradients=wrong())).exit_status == 2


def test_other_data_are_a_difference() -> None:
    other = row()
    other.data = DataDifference(other="single-w1-b4", epoch=1, position=3)
    assert not other.same
    assert record(other).exit_status == 1
    assert findings(other) == ["sample 3 of epoch 1 is not that of single-w1-b4"]


def test_the_table_says_same_or_what_differs() -> None:
    failed = row("mine", error=ErrorRecord(kind="ValueError", message="ValueError: no\nmore"))
    apart = row("apart", gradients=wrong(1), weights=wrong(1), ranks=wrong(1, None))
    table = verify_table(record(row(), apart, failed))
    results = [entry["result"] for entry in to_records(table)]
    assert results == [
        "same",
        "the gradient of layer.weight differs by 0.500 in step 1 (allowed: 1e-09); "
        "layer.weight is not the same on all ranks after step 1",
        "failed: ValueError: no",
    ]
    short = to_records(verify_summary(record(row(), apart, failed)))
    assert [entry["result"] for entry in short] == ["same", "differs", "failed"]
    assert "in double precision over 3 step(s)" in to_markdown(table)


def test_lossy_rows_show_what_they_lose_and_what_is_wrong_with_it() -> None:
    kept = Losses(steps=3, step_error=0.001, step_allowed=0.008, sum_error=0.002)
    fault = Fault(kind="error", step=2, relative=0.5, allowed=0.008)
    lost = Losses(steps=3, step_error=0.5, step_allowed=0.008, faults=[fault])
    told = record(row(), row("half", losses=kept), row("sums", losses=lost))
    assert told.exit_status == 1
    assert record(row("half", losses=kept)).exit_status == 0
    _, half, sums = to_records(verify_table(told))
    assert (half["result"], half["ranks"], half["step_error"], half["step_allowed"]) == ("lossy", "alike", 0.001, 0.008)
    assert sums["result"] == "the averaged gradient of step 2 is off by 0.5 of its size (allowed: 0.008)"
    lossy = lossy_summary(told)
    assert lossy is not None
    assert [entry["strategy"] for entry in to_records(lossy)] == ["half", "sums"]
    assert lossy_summary(record(row())) is None
    assert "step_error" not in to_records(verify_table(record(row())))[0]


def test_every_kind_of_fault_is_told_in_words() -> None:
    for kind in get_args(FaultKind):
        [told] = fault_texts(
            Losses(steps=1, faults=[Fault(kind=kind, step=3, parameter="layer.weight", relative=0.25)])
        )
        assert "None" not in told


def test_a_fallback_and_dropout_are_said() -> None:
    fallback = row(arithmetic="fp32", fallback="it converts to float32", compared_steps=1, dropouts=2)
    note = verify_table(record(fallback)).note
    assert "cannot be trained in double precision (it converts to float32), so only the first step" in note
    assert "Dropout was set to 0 in 2 layer(s)" in note
    assert "Dropout" not in verify_table(record(row())).note


def test_samples_are_in_the_order_of_the_epoch_rank_after_rank() -> None:
    first = RankProof(samples=[Samples(epoch=0, digests=["a", "b"]), Samples(epoch=1, digests=["x"])])
    second = RankProof(samples=[Samples(epoch=0, digests=["c", "d"]), Samples(epoch=1, digests=["y"])])
    assert _as_read([first, second]) == {0: ["a", "b", "c", "d"], 1: ["x", "y"]}


def test_worlds_are_compared_as_far_as_both_have_read() -> None:
    small, large = {0: ["a", "b"], 1: ["x"]}, {0: ["a", "b", "c"], 1: ["x", "y"]}
    same = row()
    _compare(same, large, "single", small)
    assert same.data is None
    large[1][0] = "other"
    _compare(same, large, "single", small)
    assert same.data == DataDifference(other="single", epoch=1, position=0)


def test_the_cells_are_those_of_a_study_in_the_arithmetic_that_was_asked_for() -> None:
    assert VerifySettings().study.batch_sizes == (4,)
    assert [VerifySettings(arithmetic=a).study.precision for a in ("fp64", "fp32", "bf16")] == ["fp32", "fp32", "bf16"]
    assert "single" in VerifySettings(world_sizes=(1, 2)).strategies
    assert "single" not in VerifySettings(world_sizes=(2,)).strategies, "a world of one worker was not asked for"
    assert VerifySettings(world_sizes=(2,), strategies=("single",)).strategies == ("single",)
