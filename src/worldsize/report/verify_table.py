"""Tables of the proofs that training is the same: of `worldsize verify`, and of each cell of a study."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import number_text
from worldsize.analysis.sameness import data_reader, fault_texts, first_other_sample, samples_of
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, Row, integers, numbers, prose, table_of, texts
from worldsize.report.tables import Table
from worldsize.results.check_records import Difference, Losses, VerifyRecord
from worldsize.results.verify_records import ProofRecord, VerifyRow

WAYS = {
    "fp64": "in double precision",
    "fp32": "in single precision, which only the first step is sharp in",
    "bf16": "in bf16, which only the first step is sharp in",
}
LOSSY_NOTE = (
    "Lossy: held against the mean of the ranks' own gradients at the same weights, norms over all parameters. Step "
    "error: of the worst step; allowed is what the strategy says of itself (none: no bound for one step). Sum error: "
    "of the sum over the steps. Not held back: what of that sum error feedback does not hold back for later steps, of "
    "the worst parameter."
)


def verify_table(record: ProofRecord) -> Table:
    """A row for each strategy at each world size: the same, lossy as its strategy says, or what is wrong."""
    lossy = _lossy_columns(_losses, record.rows)
    ranks = [texts("Ranks", "ranks", _ranks)]
    note = f"{_note(record)} {LOSSY_NOTE}" if lossy else _note(record)
    return _table(record, lambda row: "; ".join(findings(row)) or _holds(row), [*lossy, *ranks], note)


def verify_summary(record: ProofRecord) -> Table:
    """The same for 80 columns; what differs is told below it, by `findings`, and what is lost by `lossy_summary`."""
    result = _short(record)
    return _table(record, result, [], _note(record))


def lossy_summary(record: ProofRecord) -> Table | None:
    """What lossy strategies lose, for 80 columns; None where all are exact."""
    rows = [row for row in record.rows if _losses(row)]
    columns = [*_first_columns(_short(record)), *_lossy_columns(_losses, rows), texts("Ranks", "ranks", _ranks)]
    return table_of("lossy", "What lossy strategies lose", columns, rows, LOSSY_NOTE) if rows else None


def _short(record: ProofRecord) -> Callable[[VerifyRow], str]:
    return lambda row: _holds(row) if row.same else "failed" if row.error else "differs"


def _holds(row: VerifyRow) -> str:
    return "lossy" if _losses(row) else "same"


def _losses(row: VerifyRow) -> Losses | None:
    return row.proof.losses if row.proof else None


def _lossy_columns(of: Callable[[Row], Losses | None], rows: Sequence[Row]) -> list[ColumnOf[Row]]:
    """What lossy strategies lose; no columns where all are exact."""
    if not any(map(of, rows)):
        return []

    def share(label: str, key: str, value: Callable[[Losses], float | None]) -> ColumnOf[Row]:
        return numbers(label, key, lambda row: value(found) if (found := of(row)) else None)

    return [
        share("Step error", "step_error", lambda found: found.step_error),
        share("Allowed", "step_allowed", lambda found: found.step_allowed),
        share("Sum error", "sum_error", lambda found: found.sum_error),
        share("Not held back", "feedback_error", lambda found: found.feedback_error),
    ]


def _first_columns(result: Callable[[VerifyRow], str]) -> list[ColumnOf[VerifyRow]]:
    return [
        texts("Strategy", "strategy", lambda row: row.strategy),
        integers("N", "world_size", lambda row: row.world_size),
        prose("Result", "result", result),
    ]


def _table(
    record: ProofRecord, result: Callable[[VerifyRow], str], further: list[ColumnOf[VerifyRow]], note: str
) -> Table:
    columns: list[ColumnOf[VerifyRow]] = [
        *_first_columns(result),
        numbers(
            "Largest gradient difference",
            "largest_gradient",
            lambda row: row.proof.largest_gradient if row.proof else None,
        ),
        numbers("Weights", "largest_weight", lambda row: row.proof.largest_weight if row.proof else None),
        *further,
        integers("Samples", "samples", lambda row: row.samples if row.proof else None),
        prose("Buffers", "buffers", _buffers),
    ]
    return table_of("verify", "Same training as the reference", columns, record.rows, note)


def findings(row: VerifyRow) -> list[str]:
    """What differs, causes first, or why there is no proof; empty where all is the same."""
    if row.error is not None:
        return [f"failed: {row.error.message.splitlines()[0]}"]
    proof = row.proof
    assert proof is not None, "a row has a proof or an error"
    faults = []
    if row.data is not None:
        faults.append(f"sample {row.data.position} of epoch {row.data.epoch} is not that of {row.data.other}")
    if proof.gradients is not None:
        faults.append(f"the gradient of {_difference_text(proof.gradients, proof.tolerance)}")
    elif proof.weights is not None:  # other gradients make other weights: that would tell nothing new
        faults.append(f"the weight {_difference_text(proof.weights, proof.tolerance)}")
    if proof.ranks is not None:
        faults.append(f"{proof.ranks.parameter} is not the same on all ranks after step {proof.ranks.step}")
    return [*faults, *fault_texts(proof.losses)]


def _ranks(row: VerifyRow) -> str | None:
    """Whether all ranks hold the same bits, where they must."""
    proof = row.proof
    if proof is None or row.processes == 1:
        return None
    unlike = {"gradients-apart", "weights-apart", "no-exchange"}
    if proof.ranks or (proof.losses and unlike & {fault.kind for fault in proof.losses.faults}):
        return "differ"
    met = proof.losses.exchanges if proof.losses else None
    return "alike" if met is None else f"alike {met} ×"


def _difference_text(found: Difference, tolerance: float) -> str:
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
    steps = min(proof.compared_steps for proof in proofs)
    batches = "N" if times == 1 else f"N·{times} (--accumulate {times}: B = N·b·{times})"
    note = (
        f"Compared {WAYS[first.arithmetic]} over {steps} step(s), with one process that averages the "
        f"gradients of {batches} micro-batches of b. Gradients, weights: the largest ‖difference‖ ÷ ‖reference‖ of a "
        f"parameter (allowed: {first.tolerance:.0e}). Parameters are compared bit for bit between ranks. Samples: so "
        "many were the same in order and augmentation at every world size. Buffers (BatchNorm statistics) at the start "
        "of a forward: ddp gives every rank those of rank 0, with others each rank averages over its own samples. "
        "Steps are counted from 0 (method §10)."
    )
    if any(proof.losses for proof in proofs):
        note += " Weights of lossy strategies are those of the end, and are not judged."
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
    verified = ((cell, cell.record.verified) for cell in analysis.cells if cell.record)
    rows = [_Checked(cell, found) for cell, found in verified if found is not None]
    columns: list[ColumnOf[_Checked] | None] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        numbers("Largest gradient difference", "largest_gradient", lambda row: row.found.largest),
        texts(
            "First differing parameter",
            "parameter",
            lambda row: other.parameter if (other := row.found.gradients) else None,
        ),
        *_lossy_columns(lambda row: row.found.losses, rows),
        prose("Lossy synchronisation", "lossy", _kept) if any(row.found.losses for row in rows) else None,
        texts("Weights on all ranks", "weights", _weights),
        integers("Samples read", "samples", lambda row: len(samples_of(row.cell))),
        texts("Data", "data", lambda row: _data(row.cell, first)),
    ]
    left_out = {row.found.left_out: row.cell.id for row in rows if row.found.left_out}
    note = (
        "Before it is timed, each cell takes one batch twice from the same weights. Gradients: the largest "
        "‖difference‖ ÷ ‖gradient‖ of a parameter, between the average that the strategy makes and a plain mean over "
        "the workers. Samples read: how many of the first epoch were seen. Data: whether they are those of the first "
        "row, augmented alike. "
        "The command verify proves it in double precision over several steps (method §10)."
    )
    if any(row.found.losses for row in rows):
        note += f" {LOSSY_NOTE}"
    note += "".join(f" Gradients of {cell} were not compared: {why}." for why, cell in left_out.items())
    return table_of("same-training", "Same training", columns, rows, note)


def _data(cell: CellAnalysis, first: CellAnalysis | None) -> str | None:
    if not samples_of(cell):
        return None  # a workload of the user's own, whose samples are not compared
    place = first_other_sample(cell, first) if first else None
    return "same" if place is None else f"differ from sample {place} on"


def _kept(row: _Checked) -> str | None:
    return None if row.found.losses is None else "; ".join(fault_texts(row.found.losses)) or "keeps what it says"


def _weights(row: _Checked) -> str | None:
    if row.found.apart is not None:
        return f"{row.found.apart} differs"
    placement = row.cell.record.placement if row.cell.record else None
    return "same" if placement and placement.processes > 1 else None
