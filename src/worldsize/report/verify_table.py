"""Tables of the proofs that training is the same: of `worldsize verify`, and of each cell of a study."""

from collections.abc import Callable
from typing import NamedTuple

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import number_text
from worldsize.analysis.sameness import data_reader, first_other_sample, samples_of
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, integers, numbers, prose, table_of, texts
from worldsize.report.tables import Table
from worldsize.results.check_records import Difference, VerifyRecord
from worldsize.results.verify_records import ProofRecord, VerifyRow

WAYS = {
    "fp64": "in double precision",
    "fp32": "in single precision, which only the first step is sharp in",
    "bf16": "in bf16, which only the first step is sharp in",
}


def verify_table(record: ProofRecord) -> Table:
    """A row for each strategy at each world size: the same, or what differs."""
    return _table(record, lambda row: "; ".join(findings(row)) or "same")


def verify_summary(record: ProofRecord) -> Table:
    """The same for 80 columns; what differs is told below it, by `findings`."""
    return _table(record, lambda row: "same" if row.same else "failed" if row.error else "differs")


def _table(record: ProofRecord, result: Callable[[VerifyRow], str]) -> Table:
    columns: list[ColumnOf[VerifyRow]] = [
        texts("Strategy", "strategy", lambda row: row.strategy),
        integers("N", "world_size", lambda row: row.world_size),
        prose("Result", "result", result),
        numbers(
            "Largest gradient difference",
            "largest_gradient",
            lambda row: row.proof.largest_gradient if row.proof else None,
        ),
        numbers("Weights", "largest_weight", lambda row: row.proof.largest_weight if row.proof else None),
        integers("Samples", "samples", lambda row: row.samples if row.proof else None),
        prose("Buffers", "buffers", _buffers),
    ]
    return table_of("verify", "Same training as the reference", columns, record.rows, _note(record))


def findings(row: VerifyRow) -> list[str]:
    """What differs, causes first, or why there is no proof; empty where all is the same."""
    if row.error is not None:
        return [f"failed: {row.error.message.splitlines()[0]}"]
    proof = row.proof
    assert proof is not None, "a row has a proof or an error"
    told = []
    if row.data is not None:
        told.append(f"sample {row.data.position} of epoch {row.data.epoch} is not that of {row.data.other}")
    if proof.gradients is not None:
        told.append(f"the gradient of {_told(proof.gradients, proof.tolerance)}")
    elif proof.weights is not None:  # other gradients make other weights: that would tell nothing new
        told.append(f"the weight {_told(proof.weights, proof.tolerance)}")
    if proof.ranks is not None:
        told.append(f"{proof.ranks.parameter} is not the same on all ranks after step {proof.ranks.step}")
    return told


def _told(found: Difference, tolerance: float) -> str:
    size = "by no finite number" if found.relative is None else f"by {number_text(found.relative)}"
    return f"{found.parameter} differs {size} in step {found.step} (allowed: {tolerance:.0e})"


def _buffers(row: VerifyRow) -> str | None:
    proof = row.proof
    if proof is None or not proof.buffers or row.processes == 1:
        return None
    apart = proof.buffers_apart_from
    return "the same on all ranks" if apart is None else f"per rank from step {apart}"


def _note(record: ProofRecord) -> str:
    proofs = [row.proof for row in record.rows if row.proof is not None]
    if not proofs:
        return "Method §10."
    first, times = proofs[0], record.settings.accumulate
    batches = "N" if times == 1 else f"N·{times} (--accumulate {times}: B = N·b·{times})"
    note = (
        f"Compared {WAYS[first.arithmetic]} over {first.compared_steps} step(s), with one process that averages the "
        f"gradients of {batches} micro-batches of b. Gradients, weights: the largest ‖difference‖ ÷ ‖reference‖ of a "
        f"parameter (allowed: {first.tolerance:.0e}). Parameters are compared bit for bit between ranks. Samples: so "
        "many were the same in order and augmentation at every world size. Buffers (BatchNorm statistics) at the start "
        "of a forward: ddp gives every rank those of rank 0, with others each rank averages over its own samples. "
        "Steps are counted from 0 (method §10)."
    )
    fallback = next((proof.fallback for proof in proofs if proof.fallback), None)
    if fallback:
        note += f" The model cannot be trained in double precision ({fallback}), so only the first step was compared."
    dropouts = max(proof.dropouts for proof in proofs)
    if dropouts:
        note += f" Dropout was set to 0 in {dropouts} layer(s): its draws differ from worker to worker."
    return note


class _Checked(NamedTuple):
    """A cell and its short proof."""

    cell: CellAnalysis
    found: VerifyRecord


def same_training_table(analysis: StudyAnalysis) -> Table:
    """The short proof of each cell: one batch, with and without the strategy's synchronisation."""
    first = data_reader(analysis.cells)
    columns: list[ColumnOf[_Checked]] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        numbers("Largest gradient difference", "largest_gradient", lambda row: row.found.largest),
        texts(
            "First differing parameter",
            "parameter",
            lambda row: other.parameter if (other := row.found.gradients) else None,
        ),
        texts("Weights on all ranks", "weights", _weights),
        integers("Samples read", "samples", lambda row: len(samples_of(row.cell))),
        texts("Data", "data", lambda row: _data(row.cell, first)),
    ]
    verified = ((cell, cell.record.verified) for cell in analysis.cells if cell.record)
    rows = [_Checked(cell, found) for cell, found in verified if found is not None]
    left_out = {row.found.left_out: row.cell.id for row in rows if row.found.left_out}
    note = (
        "Before it is timed, each cell takes one batch twice from the same weights. Gradients: the largest "
        "‖difference‖ ÷ ‖gradient‖ of a parameter as the strategy averages it and as a plain mean over the workers "
        "has it. Data: whether the first samples are those of the first row, augmented alike. "
        "The command verify proves it in double precision over several steps (method §10)."
    )
    note += "".join(f" Gradients of {cell} were not compared: {why}." for why, cell in left_out.items())
    return table_of("same-training", "Same training", columns, rows, note)


def _data(cell: CellAnalysis, first: CellAnalysis | None) -> str | None:
    if not samples_of(cell):
        return None  # a workload of the user's own, whose samples nobody compares
    place = first_other_sample(cell, first) if first else None
    return "same" if place is None else f"differ from sample {place} on"


def _weights(row: _Checked) -> str | None:
    if row.found.apart is not None:
        return f"{row.found.apart} differs"
    placement = row.cell.record.placement if row.cell.record else None
    return "same" if placement and placement.processes > 1 else None
