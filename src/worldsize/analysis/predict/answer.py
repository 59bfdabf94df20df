"""The whole answer: which rows can be predicted and which cannot, and what would make them surer (method.md §14)."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import log

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.headline import headline
from worldsize.analysis.predict.assumed import assumptions
from worldsize.analysis.predict.baselines import Formulas
from worldsize.analysis.predict.bounds import check_asked, settings_apply, strategies_of, why_not
from worldsize.analysis.predict.doubts import doubt_of, of_speedup, of_step
from worldsize.analysis.predict.forecast import Predicted, Target, predicted
from worldsize.analysis.predict.held_out import held_out
from worldsize.analysis.predict.model import Model
from worldsize.analysis.predict.narrow import narrowing
from worldsize.analysis.scaling import Kind
from worldsize.analysis.study import StudyAnalysis
from worldsize.config import Hosts, PredictSettings
from worldsize.errors import UsageError
from worldsize.results.forecast_records import Band, Forecast, ForecastReport, Knee, Limit
from worldsize.results.records import Estimate
from worldsize.traits import BASELINE_STRATEGY

MULTIPLES = (2, 4, 8, 16)
"""Of the largest measured world size, where none was asked for."""
LIMITING = 0.05
"""Share of a step from which on something is what limits it."""
NEAR_BEST = 0.95
"""Share of the best samples/s that the knee has at least (as in §9)."""


def answer(analysis: StudyAnalysis, settings: PredictSettings) -> ForecastReport:
    """Forecasts for all that was asked for.

    Raises UsageError for what the run does not tell, with the run that would.
    """
    model = Model(analysis)
    hosts, formulas = check_asked(model, settings), Formulas(model)
    held, largest_measured = held_out(analysis), max((cell.world_size for cell in model.several), default=1)
    rows, targets, refused = [], [], {}
    for strategy in strategies_of(model, settings):
        wanted = [_target(model, settings, strategy, size, hosts) for size in _sizes(model, settings)]
        for target in wanted:
            found = predicted(model, target) if settings_apply(model, strategy, settings) else None
            if found is None:
                refused[strategy] = why_not(model, strategy, settings)
            else:
                beyond = hosts is not None or target.world_size > largest_measured
                share = found.latency_share if beyond else 0.0
                errors = [each.error for each in held]
                doubt = partial(doubt_of, errors, other_link=hosts is not None, latency_share=share)
                rows.append(_row(model, formulas, target, found, doubt))
                targets.append(target)
    if not rows:
        raise UsageError(next(iter(refused.values())))
    _, largest = max(
        zip(rows, targets, strict=True), key=lambda each: (each[0].world_size, each[0].samples_per_s.value)
    )
    own = hosts or (model.wire.hosts if model.wire else None)
    return ForecastReport(
        run=str(analysis.run.folder),
        link_bits_per_s=own.rate_bits_per_s if own else None,
        link_latency_s=own.latency_s if own else None,
        bucket_mb=settings.bucket_mb if any(model.traits(row.strategy).buckets for row in rows) else None,
        measured={cell.id: cell.summary.step_s.value for cell in model.cells if cell.summary},
        assumes=list(assumptions(model, settings, targets)),
        other_links=hosts is not None,
        rows=rows,
        knees=list(_knees(rows)),
        held_out=held,
        not_predicted=refused,
        narrow=narrowing(model, largest),
    )


def _sizes(model: Model, settings: PredictSettings) -> tuple[int, ...]:
    """As asked for; else multiples of what was measured, as far as they share the global batch of the run."""
    if settings.world_sizes is not None:
        return settings.world_sizes
    largest = max(cell.world_size for cell in model.several)
    whole = None if settings.batch_size else model.analysis.record.asked.global_batch
    found = tuple(largest * times for times in MULTIPLES)
    return tuple(size for size in found if whole is None or not whole % size) or (largest,)


def _target(model: Model, settings: PredictSettings, strategy: str, world_size: int, hosts: Hosts | None) -> Target:
    return Target(
        strategy, world_size, _batch(model, settings, world_size), _bucket_mb(model, settings, strategy), hosts
    )


def _batch(model: Model, settings: PredictSettings, world_size: int) -> int:
    """As asked for; else that of the verdict, or the share of the global batch in a study that keeps that."""
    if settings.batch_size is not None:
        return settings.batch_size
    whole = model.analysis.record.asked.global_batch
    if whole is not None:
        if whole % world_size:
            raise UsageError(
                f"the run keeps a global batch of {whole}, which {world_size} workers cannot share\n"
                "Give --world-sizes that divide it, or --batch-size."
            )
        return whole // world_size
    first = headline(model.analysis)
    return (first.fastest if first else max(model.several, key=lambda cell: cell.world_size)).batch_size


def _bucket_mb(model: Model, settings: PredictSettings, strategy: str) -> float | str | None:
    if not model.traits(strategy).buckets or not model.analysis.record.trains:
        return None
    return settings.bucket_mb if settings.bucket_mb is not None else model.analysis.record.asked.bucket_mb


def _row(model: Model, formulas: Formulas, target: Target, found: Predicted, doubt: Callable[..., float]) -> Forecast:
    step_s, samples = found.step_s, target.world_size * target.batch_size
    low, high = found.band_s(doubt(source=of_step(model, target)))
    speedup, kind = _speedup(model, target, found, doubt)
    return Forecast(
        strategy=target.strategy,
        world_size=target.world_size,
        batch_size=target.batch_size,
        step_s=Band(value=step_s, low=low, high=high),
        samples_per_s=Band(value=samples / step_s, low=samples / high, high=samples / low),
        speedup=speedup,
        efficiency=None
        if speedup is None
        else Band(
            value=speedup.value / target.world_size,
            low=speedup.low / target.world_size,
            high=speedup.high / target.world_size,
        ),
        scaling=kind,
        limit=_limit(found),
        parts_s=_parts(found),
        amdahl_step_s=None if target.hosts else formulas.amdahl_s(target),
        power_step_s=formulas.power_s(target),
        measured_step_s=_measured(model, target),
    )


def _speedup(model: Model, target: Target, found: Predicted, doubt: Callable[..., float]) -> tuple[Band | None, Kind]:
    """Over one worker; its band knows how well the speed-up was measured, in place of the step."""
    strong = model.analysis.record.asked.global_batch is not None
    kind: Kind = "strong" if strong else "weak"
    batch = target.batch_size * (target.world_size if strong else 1)
    names = (BASELINE_STRATEGY, target.strategy)  # the better baseline first (§6)
    alone = min(
        (cell for cell in model.cells if cell.world_size == 1 and cell.strategy in names and cell.summary),
        key=lambda cell: (abs(log(cell.batch_size / batch)), names.index(cell.strategy)),
        default=None,
    )
    alone_s = _alone_s(model, target, alone, batch)
    if alone_s is None:
        return None, kind
    # Of the same samples: one worker takes N steps for those of one step of N workers, or one for the global batch.
    whole_s = alone_s * (1 if strong else target.world_size)
    low, high = found.band_s(doubt(source=of_speedup(model, target, alone, kind)))
    return Band(value=whole_s / found.step_s, low=whole_s / high, high=whole_s / low), kind


def _alone_s(model: Model, target: Target, alone: CellAnalysis | None, batch: int) -> float | None:
    """The step of the one worker it is compared with, which has so large a batch.

    At a batch that was not measured: its forecast × measured ÷ forecast at the nearest batch that was.
    """
    measured_s = alone.summary.step_s.value if alone and alone.summary else None
    if alone and alone.batch_size == batch:
        return measured_s
    if batch != target.batch_size or not model.known(target.strategy).alone:
        return None
    found = predicted(model, target._replace(world_size=1))
    there = predicted(model, target._replace(world_size=1, batch_size=alone.batch_size)) if alone else None
    off = measured_s / there.step_s if measured_s and there else 1.0
    return found.step_s * off if found else None


def _parts(found: Predicted) -> dict[str, float]:
    parts = {
        "compute_s": found.compute_s,
        "slowed_s": found.slowed_s,
        "late_s": found.late_s,
        "exposed_bytes_s": found.bytes_s,
        "exposed_latency_s": found.latency_s,
    }
    return {**parts, "rest_s": found.step_s - sum(parts.values())}


def _limit(found: Predicted) -> Limit:
    losses: dict[Limit, float] = {
        "bytes": found.bytes_s,
        "latency": found.latency_s,
        "slowdown": found.slowed_s,
        "stragglers": found.late_s,
    }
    most = max(losses, key=lambda name: losses[name])
    return most if losses[most] > LIMITING * found.step_s else "computing"


def _measured(model: Model, target: Target) -> Estimate | None:
    own = model.wire.hosts if model.wire else None
    if target.hosts is not None and target.hosts != own:
        return None
    for cell in model.cells:
        alike = not cell.traits.buckets or Target.of(cell).bucket_mb == target.bucket_mb
        if cell.summary and alike and Target.of(cell)[:3] == target[:3]:
            return cell.summary.step_s
    return None


def _knees(rows: Sequence[Forecast]) -> Iterator[Knee]:
    for strategy in dict.fromkeys(row.strategy for row in rows):
        own = sorted((row for row in rows if row.strategy == strategy), key=lambda row: row.world_size)
        best = max(row.samples_per_s.value for row in own)
        first = next(row for row in own if row.samples_per_s.value >= NEAR_BEST * best)
        last = own[-1].world_size
        yield Knee(strategy=strategy, world_size=None if first.world_size == last else first.world_size)
