"""The table of rungs: what each strategy sends, how fast it is for that, and what it does to the training (§10)."""

from collections.abc import Iterator
from dataclasses import replace

from worldsize.analysis.headline import cell_name, rate
from worldsize.analysis.rung_words import POINTS, beside_text, lead_text, signed
from worldsize.analysis.rungs import Rung, TrainingCost, rungs
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import PERCENT, ColumnOf, estimates, integers, numbers, prose, table_of, texts
from worldsize.report.result_tables import samples_per_s, step_s
from worldsize.report.section import Section
from worldsize.report.tables import TERMINAL_WIDTH, Entry, Table, estimate, fitted, interval_keys
from worldsize.results.records import Estimate

TITLE = "Which strategy pays off"
OWN_WEIGHTS_MARK = "*"
NOTE = (
    "Each strategy beside the reference, the fastest exact one with the same N and b. Sent: bytes through the busiest"
    " rank per step, by formula; of fp32: ÷ an all-reduce of all gradients in fp32, 2(N−1)/N·S. Link's share: what "
    "these bytes need at the rate of the link ÷ the step. Of fp32's limit: the step ÷ what the bytes in fp32 need; "
    "below 100 % no exact strategy could be as fast. Loss difference: mean training loss over the last quarter of the"
    " samples that both have seen, less that of the reference; all begin with the same weights and see the same "
    "samples in the same order. Accuracy difference: after the last epoch that both have evaluated. In brackets: 95 %"
    " intervals; those of differences are Student's over the seeds, and with one seed there is none (method §4, §10, "
    "§12)."
)
WEIGHTS_NOTE = (
    f" {OWN_WEIGHTS_MARK} Ranks agree on their weights now and then, so a step's loss is of each rank's own weights: "
    "the unit of comparison is samples and accuracy, and the loss is not judged."
)


def rung_sections(analysis: StudyAnalysis) -> list[Section]:
    """A section of its own where a study holds a strategy that is not exact; else none."""
    if not rungs(analysis):
        return []
    said = tuple(_price_of(analysis, each) for each in _winners(rungs(analysis)))
    return [Section("rungs", TITLE, (), (rung_table(analysis),), said)]


def _winners(found: tuple[Rung, ...]) -> Iterator[Rung]:
    """Of each group its fastest rung, where that is significantly faster than the fastest exact strategy."""
    groups: dict[str, list[Rung]] = {}
    for each in found:
        if each.exact is not None and each.lossy and each.faster:
            groups.setdefault(each.exact.id, []).append(each)
    yield from (max(group, key=lambda each: rate(each.cell)) for group in groups.values())


def _price_of(analysis: StudyAnalysis, rung: Rung) -> str:
    """A price that is significant is said first."""
    fastest = f"{cell_name(rung.cell)} is the fastest of its N and b."
    return " ".join(filter(None, [lead_text(rung), fastest, beside_text(analysis, rung)]))


def rung_table(analysis: StudyAnalysis) -> Table:
    """A row for each strategy in a group (N, b) that has a lossy one."""
    found = rungs(analysis)
    columns: list[ColumnOf[Rung]] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        numbers("Sent", "bytes_per_step", lambda row: row.bytes_sent, "MB"),
        numbers("Of fp32", "share_of_fp32_bytes", lambda row: row.of_fp32, "%"),
        estimates("Step time", "step_s", lambda row: step_s(row.cell), "ms"),
        estimates("Throughput", "samples_per_s", lambda row: samples_per_s(row.cell), "samples/s"),
        estimates("÷ the reference", "speed_ratio", lambda row: row.speed),
        _where_known(estimates("Link's share of the step", "link_share", lambda row: row.link_share, "%")),
        _where_known(estimates("Of fp32's limit", "share_of_fp32_limit", lambda row: row.of_fp32_limit, "%")),
        ColumnOf("Loss difference", interval_keys("loss_difference"), value=_loss),
        integers("After samples", "loss_samples", lambda row: _loss_samples(row.cost)),
        _where_known(ColumnOf("Accuracy difference", interval_keys("accuracy_difference"), "points", value=_accuracy)),
        _where_known(integers("Seeds", "seeds", lambda row: row.cost.seeds if row.cost else None)),
        _where_known(
            estimates(
                "Statistical efficiency",
                "statistical_efficiency",
                lambda row: row.to_target.statistical if row.to_target else None,
            )
        ),
        _where_known(
            estimates(
                "Time-to-target speed-up",
                "time_to_target_speedup",
                lambda row: row.to_target.time_to_accuracy if row.to_target else None,
            )
        ),
        ColumnOf("Training", ("training", "loss_is", "accuracy_is", "reference"), align="prose", value=_training),
        _where_known(prose("Remark", "remark", remark)),
    ]
    weights = any(each.cost is not None and each.cost.own_weights for each in found)
    return table_of("rungs", TITLE, columns, found, f"{NOTE}{WEIGHTS_NOTE if weights else ''}")


def _where_known(column: ColumnOf[Rung]) -> ColumnOf[Rung]:
    """Not shown to people where no row has a value."""
    return replace(column, between_workers=True)


def remark(rung: Rung) -> str | None:
    """Why a number of it is missing."""
    of_target = rung.to_target.remark if rung.to_target else ""
    return "; ".join(filter(None, [rung.remark, of_target])) or None


def _loss_samples(cost: TrainingCost | None) -> int | None:
    return cost.loss.samples if cost and cost.loss else None


def _loss(rung: Rung) -> Entry:
    if rung.cost is None or rung.cost.loss is None:
        return estimate(None)
    if rung.cost.loss.estimate is None:
        return Entry("not finite", (None, None, None))
    mark = OWN_WEIGHTS_MARK if rung.cost.own_weights else ""
    return _difference(rung.cost.loss.estimate, 1.0, mark)


def _accuracy(rung: Rung) -> Entry:
    found = rung.cost.accuracy if rung.cost else None
    return estimate(None) if found is None else _difference(found.estimate, POINTS)


def _difference(found: Estimate, factor: float, mark: str = "") -> Entry:
    return replace(estimate(found, factor), text=f"{signed(found.value, factor)}{mark}")


def _training(rung: Rung) -> Entry:
    """What is known of the training, in a few words."""
    cost, reference = rung.cost, rung.exact.id if rung.exact else None
    costs = (cost.loss_is, cost.accuracy_is) if cost else (None, None)
    words = _words(rung)
    return Entry(words, (words, *costs, reference))


def _words(rung: Rung) -> str:
    if not rung.lossy:
        return "exact, the reference" if rung.exact is rung.cell else "exact"
    cost = rung.cost
    if cost is None:
        return "not known"
    if cost.loss is not None and cost.loss.not_finite:
        return "loss no longer finite"
    known = [("loss", cost.loss_is), ("accuracy", cost.accuracy_is)]
    said = [f"{what} {found}" for what, found in known if found in ("higher", "lower", "indistinguishable")]
    if said:
        return ", ".join(said)
    return "one seed" if "one seed" in (cost.loss_is, cost.accuracy_is) else "not known"


SHORT_NOTE = (
    "Bytes: sent, of an all-reduce in fp32. Ratio: samples/s ÷ those of the fastest exact strategy. Δ loss: training "
    "loss after equal samples less that of it"
)


def rung_summary(analysis: StudyAnalysis, width: int = TERMINAL_WIDTH) -> Table:
    """The same for a terminal of `width` columns: a line for each strategy."""
    columns: list[ColumnOf[Rung]] = [
        texts("Strategy", "strategy", lambda row: row.cell.strategy),
        ColumnOf("N", ("world_size",), value=lambda row: _plain(row.cell.world_size)),
        ColumnOf("b", ("local_batch",), value=lambda row: _plain(row.cell.batch_size)),
        numbers("Bytes %", "share_of_fp32_bytes", lambda row: row.of_fp32, factor=PERCENT),
        ColumnOf("Ratio", interval_keys("speed_ratio"), value=_ratio),
        ColumnOf("Δ loss", interval_keys("loss_difference"), value=_loss),
    ]
    found = rungs(analysis)
    made = table_of("rungs-summary", TITLE, columns, found)
    samples = {count for each in found if (count := _loss_samples(each.cost)) is not None}
    after = f" ({min(samples):,} to {max(samples):,} samples)" if len(samples) > 1 else ""
    after = f" ({min(samples):,} samples)" if len(samples) == 1 else after
    one = any(each.cost is not None and each.cost.seeds == 1 for each in found)
    weights = WEIGHTS_NOTE if any(each.cost is not None and each.cost.own_weights for each in found) else ""
    note = f"{SHORT_NOTE}{after}{'; one seed, so it has no interval' if one else ''}.{weights}"
    return fitted(replace(made, note=note), width, lambda name, room: f"{name[: room - 1]}…")


def _plain(number: int) -> Entry:
    return Entry(str(number), (number,))


def _ratio(rung: Rung) -> Entry:
    if rung.exact is rung.cell:
        return Entry("reference", (None, None, None))
    return estimate(rung.speed.estimate if rung.speed else None)
