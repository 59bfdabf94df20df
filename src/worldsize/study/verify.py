"""Prove that every strategy trains as the reference does: one job after the other, then what they read is compared."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from worldsize.analysis.sameness import first_unlike, in_epoch_order
from worldsize.config import VerifySettings
from worldsize.errors import OutputError
from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import JobFailed, LocalJob
from worldsize.launch.warm import WARM
from worldsize.measure.cores import usable_cores
from worldsize.measure.machine import allowed_cores, provenance, snapshot_host
from worldsize.ranks.turns import read_replies
from worldsize.report.tables import to_csv, to_markdown
from worldsize.report.verify_table import verify_table
from worldsize.results.files import cell_folder, write_whole
from worldsize.results.verify_records import DataDifference, ProofRecord, RankProof, Samples, VerifyRow
from worldsize.study.plan import PlannedCell, make_plan
from worldsize.study.probe import probe

ENTRY = "worldsize.training.verify:enter"

Sequences = dict[int, list[str]]
"""Digests of the samples of each epoch, in the order in which the global batches hold them."""


def run_verify(
    settings: VerifySettings,
    folder: Path,
    command: Sequence[str],
    *,
    starting: Callable[[str], None] = lambda name: None,
    idle: Callable[[], None] | None = None,
) -> ProofRecord:
    """Prove all cells; `folder` takes job files and logs. A cell that fails is a row with its reason.

    `starting` is told the name of each cell before it is started. Raises UsageError for what cannot be run,
    OutputError for a folder that cannot be made.
    """
    with WARM.held():
        return _prove_all(settings, folder, command, starting, idle)


def _prove_all(
    settings: VerifySettings,
    folder: Path,
    command: Sequence[str],
    starting: Callable[[str], None],
    idle: Callable[[], None] | None,
) -> ProofRecord:
    findings = probe(settings.study)
    plan = make_plan(settings.study, findings, usable_cores(allowed_cores()))
    _make(folder)
    rows, read = [], {}
    for cell in plan:
        starting(cell.id)
        row, ranks = _prove(cell, settings, folder, idle)
        rows.append(row)
        if ranks:
            read[cell.id] = _as_read(ranks)
            _compare(row, read[cell.id], "reference", _joined([ranks[0].expected]))
    first = next(iter(read), None)
    for row in rows:
        if first is not None and row.id in read and row.id != first and row.data is None:
            _compare(row, read[row.id], first, read[first])
    host = snapshot_host(with_gpus=False).model_copy(update={"gpus": findings.gpus})
    origin = provenance(command, host=host, worker_environment=worker_environment(), code=findings.user_code)
    return ProofRecord(provenance=origin, settings=settings, rows=rows)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot write in {folder}: {error.strerror}\nGive a folder you may write to with --out."
        ) from None


def _prove(
    cell: PlannedCell, settings: VerifySettings, folder: Path, idle: Callable[[], None] | None
) -> tuple[VerifyRow, list[RankProof]]:
    """The row of one cell, and what its ranks found; no worker is left when this returns."""
    s = cell.settings
    row = VerifyRow(id=cell.id, strategy=s.strategy, world_size=s.world_size, processes=cell.placement.processes)
    payload: dict[str, Any] = {
        "settings": s.model_dump(mode="json"),
        "placement": cell.placement.model_dump(mode="json"),
        "arithmetic": settings.arithmetic,
        "steps": settings.steps,
    }
    job = Job(
        entry=ENTRY,
        payload=payload,
        processes=cell.placement.processes,
        folder=cell_folder(folder, cell.id) / "job",
        environment=worker_environment(),
        hang_timeout_s=settings.hang_timeout_s,
    )
    try:
        with closing(LocalJob(job)) as running:
            ranks = [reply.proof for reply in read_replies(running.receive(idle)) if reply.proof]
    except JobFailed as failed:
        row.error = failed.error
        return row, []
    row.proof = ranks[0].proof
    return row, ranks


def _as_read(ranks: Sequence[RankProof]) -> Sequences:
    """What a cell read."""
    return _joined([rank.samples for rank in ranks])


def _joined(columns: Sequence[Sequence[Samples]]) -> Sequences:
    found: Sequences = {}
    for samples in in_epoch_order(columns):
        found.setdefault(samples.epoch, []).extend(samples.digests)
    return found


def _compare(row: VerifyRow, mine: Sequences, name: str, others: Sequences) -> None:
    """Note the first sample that is not the other's, as far as both have read; the order is that of the epoch."""
    compared = 0
    for epoch in sorted(mine.keys() & others.keys()):
        position = first_unlike(mine[epoch], others[epoch])
        if position is not None:
            row.data = DataDifference(other=name, epoch=epoch, position=position)
            return
        compared += min(len(mine[epoch]), len(others[epoch]))
    row.samples = max(row.samples, compared)


def write_proof(folder: Path, record: ProofRecord) -> None:
    """Write verify.json and its table, each whole."""
    table = verify_table(record)
    write_whole(folder / "verify.md", to_markdown(table))
    write_whole(folder / "verify.csv", to_csv(table))
    write_whole(folder / "verify.json", record.model_dump_json(indent=2) + "\n")
