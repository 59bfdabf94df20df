"""Speed-up and efficiency, weak and strong, each against a named baseline (method.md §6)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from worldsize.analysis.baseline import baselines, with_numbers
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.levels import Level, selection_widening
from worldsize.analysis.statistics import Ratio
from worldsize.config.script import PYTHON_ALONE, TUNED
from worldsize.results.records import Estimate

Kind = Literal["weak", "strong"]
MIN_WORLD_SIZES = 3
"""World sizes, the baseline's included, behind a serial fraction: a line through one point fits anything."""


@dataclass(frozen=True)
class ScalingRow:
    """How one cell scales against its baseline; numbers are None where `withheld` says why."""

    kind: Kind
    """`weak`: the same local batch b as the baseline; `strong`: the same global batch B."""
    cell: CellAnalysis
    baseline: CellAnalysis | None
    speedup: Ratio | None = None
    """Weak: the *scaled* speed-up N·t_1(b)/t_N(b), a ratio of samples/s. Strong: t_1(B)/t_N(B/N)."""
    efficiency: Ratio | None = None
    """Speed-up ÷ N; weak scaling's t_1(b)/t_N(b)."""
    epoch_time_ratio: float | None = None
    """T_1/T_N over the same D samples; equals the scaled speed-up (method.md §6)."""
    karp_flatt: Estimate | None = None
    """Karp and Flatt's experimentally determined serial fraction; strong scaling only, None at world size 1."""
    withheld: str | None = None
    rivals: int = 0
    """Of the fastest cell of several workers: how many others are not significantly slower. Its interval is corrected
    for having picked the best of them (method.md §8)."""


@dataclass(frozen=True)
class SerialFraction:
    """The serial fraction that fits all world sizes of a strategy best."""

    kind: Kind
    strategy: str
    batch: int
    """Weak: the local batch b that is fixed; strong: the global batch B."""
    world_sizes: tuple[int, ...]
    value: float

    @property
    def law(self) -> str:
        """The law that was fitted."""
        return "Gustafson" if self.kind == "weak" else "Amdahl"


def scaling_rows(cells: Sequence[CellAnalysis], *, allow_oversubscribed: bool) -> list[ScalingRow]:
    """One weak row per cell that is not a baseline itself, then the strong rows of the pairs in the grid.

    A cell whose speed-up may not be printed keeps its row, with the reason (method.md §8).
    """
    weak = [_row("weak", cell, cells, allow_oversubscribed) for cell in cells if not is_baseline(cell, cells)]
    strong = [_row("strong", cell, cells, allow_oversubscribed) for cell in cells if cell.world_size > 1]
    strong = [row for row in strong if row.baseline is not None]
    weak, strong = _chosen(weak), _chosen(strong)
    with_strong = {row.cell.id for row in strong}
    # A study of one global batch has nothing to compare with at the same local batch.
    return [row for row in weak if row.baseline is not None or row.cell.id not in with_strong] + strong


def rows_on_machine(cells: Sequence[CellAnalysis], *, allow_oversubscribed: bool) -> list[ScalingRow]:
    """Each cell of several workers against one worker with all cores, of the same script; empty without one (§6).

    Of several such cells, of unlike batches, it is the one with the most samples/s.
    """
    rows = []
    for cell in (each for each in cells if each.world_size > 1 and each.summary is not None):
        alone = [one for one in cells if one.alone and one.summary is not None and _of_the_same(one, cell)]
        if not alone:
            continue
        best = min(alone, key=lambda one: _level(one).value_s / one.samples_per_step)
        kind: Kind = "strong" if cell.global_batch == best.global_batch else "weak"
        if cell.oversubscribed and not allow_oversubscribed:
            rows.append(ScalingRow(kind, cell, best, withheld=f"withheld: more threads than cores in {cell.id}"))
        else:
            steps = best.step_ratio(cell)
            rows.append(ScalingRow(kind, cell, best, steps.scaled(cell.samples_per_step / best.samples_per_step)))
    return _chosen(rows)


def _of_the_same(one: CellAnalysis, cell: CellAnalysis) -> bool:
    """Whether a cell of one worker with all cores runs what another cell does."""
    return cell.program is None or one.strategy == f"{cell.strategy.removesuffix(TUNED)}{PYTHON_ALONE}"


def find_baseline(kind: Kind, cell: CellAnalysis, cells: Iterable[CellAnalysis]) -> CellAnalysis | None:
    """The cell of one worker with the same b (weak) or the same B (strong) to compare with (method.md §6).

    It is the one without a wrapper; if that has no numbers, the same strategy around one worker. None if
    neither was planned; one that has no numbers only if there is no other.
    """
    batch = cell.global_batch // cell.world_size if kind == "weak" else cell.global_batch
    return with_numbers(cell, baselines(cell, cells, batch), lambda other: other.summary is not None)


def is_baseline(cell: CellAnalysis, cells: Iterable[CellAnalysis]) -> bool:
    """Whether a cell of one worker has nothing with numbers to compare with, and so is what others compare with."""
    return cell.world_size == 1 and find_baseline("weak", cell, cells) is None


def karp_flatt(speedup: float, world_size: int) -> float:
    """Serial fraction e = (1/s − 1/N) / (1 − 1/N) of one point, N > 1 (method.md §6; Karp and Flatt 1990)."""
    return (1 / speedup - 1 / world_size) / (1 - 1 / world_size)


def karp_flatt_estimate(speedup: Estimate, world_size: int) -> Estimate:
    """Serial fraction of one point with its interval: the speed-up's, its ends swapped, for e falls as s rises (§6)."""
    low, high = (None if end is None else karp_flatt(end, world_size) for end in (speedup.high, speedup.low))
    value = karp_flatt(speedup.value, world_size)
    return Estimate(value=value, low=low, high=high, samples=speedup.samples)


def epoch_time_ratio(step_ratio: float, baseline_batch: float, global_batch: float) -> float:
    """T_1/T_N over the same D samples (method.md §6), with T = D / batch · t and `step_ratio` = t_1/t_N.

    D cancels: the ratio of the step counts, D / `baseline_batch` to D / `global_batch`, times that of the steps.
    """
    return step_ratio * global_batch / baseline_batch


def amdahl_fraction(points: Iterable[tuple[int, float]]) -> float:
    """Serial fraction f of 1/s = f + (1 − f)/N over points (N > 1, s) by least squares (Amdahl 1967)."""
    # Through the origin: one worker has speed-up 1 by definition.
    pairs = [(1 - 1 / n, 1 / s - 1 / n) for n, s in points]
    return sum(x * y for x, y in pairs) / sum(x * x for x, _ in pairs)


def gustafson_fraction(points: Iterable[tuple[int, float]]) -> float:
    """Serial fraction f of s = N − f·(N − 1) over points (N > 1, s) by least squares (Gustafson 1988)."""
    pairs = [(n - 1, n - s) for n, s in points]
    return sum(x * y for x, y in pairs) / sum(x * x for x, _ in pairs)


def serial_fractions(rows: Iterable[ScalingRow]) -> list[SerialFraction]:
    """A fit per strategy and batch for which at least three world sizes, 1 included, have a speed-up."""
    groups: dict[tuple[Kind, str, int], dict[int, float]] = {}
    for row in rows:
        if row.speedup is not None and row.cell.world_size > 1:
            batch = row.cell.batch_size if row.kind == "weak" else row.cell.global_batch
            points = groups.setdefault((row.kind, row.cell.strategy, batch), {})
            points[row.cell.world_size] = row.speedup.estimate.value
    fits = []
    for (kind, strategy, batch), points in groups.items():
        if len(points) + 1 >= MIN_WORLD_SIZES:
            fit = gustafson_fraction if kind == "weak" else amdahl_fraction
            world_sizes = (1, *sorted(points))
            fits.append(SerialFraction(kind, strategy, batch, world_sizes, fit(points.items())))
    return fits


def _chosen(rows: list[ScalingRow]) -> list[ScalingRow]:
    """The rows; the interval of the fastest of several workers is corrected for its selection (method.md §8)."""
    racing = [row for row in rows if row.cell.world_size > 1 and row.speedup is not None and row.baseline is not None]
    if not racing:
        return rows
    best = min(racing, key=_seconds_per_sample)
    # What is significantly slower could hardly have been picked.
    others = [row for row in racing if row is not best and not _significantly_slower(row.cell, best.cell)]
    speedup, pairs = best.speedup, [_pair(row) for row in (best, *others)]
    if not others or speedup is None or speedup.estimate.low is None or not speedup.paired:
        return rows
    further = selection_widening(pairs[0], pairs[1:])
    value, low = speedup.estimate.value, speedup.estimate.low
    # Only downwards: the best of several looks too good, never too bad (the winner's curse).
    lower = speedup.estimate.model_copy(update={"low": value * (low / value) ** further})
    corrected = _with_speedup(replace(best, rivals=len(others)), replace(speedup, estimate=lower))
    return [corrected if row is best else row for row in rows]


def _seconds_per_sample(row: ScalingRow) -> float:
    return _level(row.cell).value_s / row.cell.samples_per_step


def _significantly_slower(cell: CellAnalysis, best: CellAnalysis) -> bool:
    margin = cell.step_ratio(best).scaled(best.samples_per_step / cell.samples_per_step).estimate
    return margin.low is not None and margin.low > 1


def _pair(row: ScalingRow) -> tuple[Level, Level]:
    assert row.baseline is not None, "a speed-up has one"
    return _level(row.baseline), _level(row.cell)


def _level(cell: CellAnalysis) -> Level:
    assert cell.level is not None, "a cell with a speed-up has one"
    return cell.level


def _row(kind: Kind, cell: CellAnalysis, cells: Sequence[CellAnalysis], allow_oversubscribed: bool) -> ScalingRow:
    baseline = find_baseline(kind, cell, cells)
    withheld = _why_withheld(cell, baseline, allow_oversubscribed)
    if baseline is None or withheld is not None:
        return ScalingRow(kind, cell, baseline, withheld=withheld)
    steps = baseline.step_ratio(cell)
    ratio = epoch_time_ratio(steps.estimate.value, baseline.samples_per_step, cell.samples_per_step)
    row = ScalingRow(kind, cell, baseline, epoch_time_ratio=ratio)
    return _with_speedup(row, steps.scaled(cell.samples_per_step / baseline.samples_per_step))


def _with_speedup(row: ScalingRow, speedup: Ratio) -> ScalingRow:
    """A row with its speed-up, and with what is made of that."""
    n = row.cell.world_size
    serial = karp_flatt_estimate(speedup.estimate, n) if row.kind == "strong" and n > 1 else None
    return replace(row, speedup=speedup, efficiency=speedup.scaled(1 / n), karp_flatt=serial)


def _why_withheld(cell: CellAnalysis, baseline: CellAnalysis | None, allow_oversubscribed: bool) -> str | None:
    """Why a speed-up must not be printed; None if it may be."""
    if cell.summary is None:
        return cell.reason
    if baseline is None:
        return "no baseline: no cell of one worker with the same batch in this study"
    if baseline.summary is None:
        return f"no baseline: {baseline.id} has no numbers ({baseline.reason})"
    crowded = [each.id for each in (cell, baseline) if each.oversubscribed]
    if crowded and not allow_oversubscribed:
        return f"withheld: more threads than cores in {' and '.join(crowded)}"
    threads, baseline_threads = cell.threads_per_worker, baseline.threads_per_worker
    if threads is not None and baseline_threads is not None and threads != baseline_threads:
        return f"withheld: {threads} threads per worker, but {baseline_threads} in {baseline.id}"
    return None
