"""Two runs against each other: every ratio is B ÷ A, unpaired, with its interval (method.md §11)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from worldsize.analysis.breakdown import COMPUTE_PARTS
from worldsize.analysis.compare.across_runs import (
    blocks_of,
    common_baseline,
    relative_blocks,
    speedup,
    step_blocks,
    unpaired_ratio,
)
from worldsize.analysis.compare.differences import changes, other_work, same_machine
from worldsize.analysis.compare.gate import judge
from worldsize.analysis.compare.words import caveats, comparison_verdict
from worldsize.analysis.statistics import reciprocal
from worldsize.config import CompareSettings, JudgeBy
from worldsize.results.baseline_records import StoredBlock, StoredCell, StoredRun
from worldsize.results.comparison_records import (
    CellComparison,
    Change,
    ComparisonRecord,
    Direction,
    LoneCell,
    Quantity,
    Side,
    Verdict,
)
from worldsize.results.records import Estimate

PART_VALUES: dict[str, Callable[[StoredBlock], float | None]] = {
    "exposed_sync_s": lambda block: block.exposed_sync_s,
    "data_wait_s": lambda block: block.data_wait_s,
    "compute_s": lambda block: block.compute_s,
}


@dataclass(frozen=True)
class Pair:
    """The same study, or part of an experiment, in both runs."""

    part: str
    a: StoredRun
    b: StoredRun
    judge_by: JudgeBy

    def named(self, cell_id: str) -> str:
        """A cell with its part in front."""
        return f"{self.part}/{cell_id}" if self.part else cell_id


def compare_runs(a: StoredRun, b: StoredRun, settings: CompareSettings, paths: tuple[str, str]) -> ComparisonRecord:
    """Compare run B with run A; `paths` name them.

    Raises no errors: what cannot be compared is in the record, with its reason.
    """
    parts_a, parts_b = dict(_parts(a)), dict(_parts(b))
    pairs = [Pair(name, parts_a[name], parts_b[name], settings.judge_by) for name in parts_a if name in parts_b]
    record = ComparisonRecord(
        a=Side(path=paths[0], name=a.name, provenance=a.provenance),
        b=Side(path=paths[1], name=b.name, provenance=b.provenance),
        verdict="",
        caveats=[],
        same_machine=same_machine(a.provenance, b.provenance),
        changes=_changes(pairs),
        cells=[cell for pair in pairs for cell in _cells(pair)],
        lone_cells=[*_lone("A", parts_a, parts_b), *_lone("B", parts_b, parts_a)],
    )
    record.unread = [
        f"{letter}: {f'{part}/' if part else ''}{cell.id}"
        for letter, parts in (("A", parts_a), ("B", parts_b))
        for part, study in parts.items()
        for cell in study.cells
        if cell.state == "unreadable"
    ]
    record.verdict, record.caveats = comparison_verdict(record), caveats(record, settings)
    record.gate = judge(record, settings)
    return record


def _parts(run: StoredRun, name: str = "") -> Iterator[tuple[str, StoredRun]]:
    yield name, run
    for part, inner in run.parts.items():
        yield from _parts(inner, f"{name}/{part}" if name else part)


def _changes(pairs: list[Pair]) -> list[Change]:
    """What the parts of an experiment share with the whole is named once."""
    found = {pair.part: changes(pair.a, pair.b, pair.part) for pair in pairs}
    whole = {(change.area, change.what, change.old, change.new) for change in found[""]}
    inner = [change for part, each in found.items() if part for change in each]
    return found[""] + [each for each in inner if (each.area, each.what, each.old, each.new) not in whole]


def _cells(pair: Pair) -> Iterator[CellComparison]:
    others = {cell.id: cell for cell in pair.b.cells}
    work = other_work(pair.a, pair.b)
    for cell in pair.a.cells:
        if cell.id in others:
            yield _compared(pair, cell, others[cell.id], work)


def _lone(run: str, ours: dict[str, StoredRun], theirs: dict[str, StoredRun]) -> Iterator[LoneCell]:
    for part, study in ours.items():
        known = {cell.id for cell in theirs[part].cells} if part in theirs else set()
        for cell in study.cells:
            if cell.id not in known:
                yield LoneCell(
                    id=f"{part}/{cell.id}" if part else cell.id,
                    run="A" if run == "A" else "B",
                    state=cell.state,
                    measured=bool(cell.blocks),
                    sweep=study.settings.sweep,
                )


def _compared(pair: Pair, a: StoredCell, b: StoredCell, work: list[str]) -> CellComparison:
    measured = bool(a.blocks), bool(b.blocks)
    found = CellComparison(
        id=pair.named(a.id),
        verdict="no numbers",
        other_work=work,
        measured=measured,
        cut_short=a.state == "complete" != b.state,
        remark=_remark(a, b),
    )
    if not all(measured):
        found.quantities = [quantity for quantity in _single_numbers(a, b) if quantity.new is not None]
        return found
    found.plain = unpaired_ratio(step_blocks(b), step_blocks(a))
    name = common_baseline(a.id, pair.a, pair.b)
    bases = [next((cell for cell in run.cells if cell.id == name), None) for run in (pair.a, pair.b)]
    base_a, base_b = bases
    if base_a is not None and base_b is not None:
        found.baseline = pair.named(base_a.id)
        found.relative = unpaired_ratio(relative_blocks(b, base_b), relative_blocks(a, base_a))
    found.quantities = [*_rates(a, b, found.plain), *_parts_of_a_step(a, b), *_single_numbers(a, b)]
    if base_a is not None and base_b is not None and found.relative is not None:
        found.quantities += _scaling((a, base_a), (b, base_b), found.relative)
    if work:
        found.verdict = "not judged"
        return found
    for quantity in found.quantities:
        quantity.direction = _direction(quantity)
    if pair.judge_by == "plain" or (pair.judge_by == "auto" and found.relative is None):
        found.judged_by = "plain"
    elif found.relative is not None:
        found.judged_by = "relative"
    found.verdict = "not judged" if found.judged is None else _verdict(found.judged)
    return found


def _remark(a: StoredCell, b: StoredCell) -> str:
    return "; ".join(f"{run}: {' '.join(cell.reason.split())}" for run, cell in (("A", a), ("B", b)) if cell.reason)


def _verdict(step: Estimate) -> Verdict:
    """Of a ratio of step times, B ÷ A."""
    if step.low is None or step.high is None:
        return "no interval"
    if step.low > 1:
        return "slower"
    return "faster" if step.high < 1 else "not told apart"


def _direction(quantity: Quantity) -> Direction | None:
    ratio = quantity.ratio
    if ratio is None:
        return "same" if quantity.old == quantity.new is not None else None
    if ratio.low is None or ratio.high is None:
        return "same" if ratio.value == 1 else "no interval"
    if ratio.low > 1:
        return "larger"
    return "smaller" if ratio.high < 1 else "not told apart"


def _rates(a: StoredCell, b: StoredCell, step: Estimate) -> list[Quantity]:
    """A cell has the same global batch in both runs, so its throughput is as much smaller as its step is longer."""
    if a.summary is None or b.summary is None:
        return []
    step_s, rate = (a.summary.step_s, b.summary.step_s), (a.summary.samples_per_s, b.summary.samples_per_s)
    return [
        Quantity(name="step_s", old=step_s[0].value, new=step_s[1].value, ratio=step),
        Quantity(name="samples_per_s", old=rate[0].value, new=rate[1].value, ratio=reciprocal(step)),
    ]


def _parts_of_a_step(a: StoredCell, b: StoredCell) -> Iterator[Quantity]:
    """Means per step; their ratios are of the means of blocks."""
    for name, value in PART_VALUES.items():
        old, new = _mean(a, name), _mean(b, name)
        if old is None or new is None:
            continue
        blocks = blocks_of(b, value), blocks_of(a, value)
        yield Quantity(name=name, old=old, new=new, ratio=unpaired_ratio(*blocks) if all(blocks) else None)


def _mean(cell: StoredCell, name: str) -> float | None:
    if cell.summary is None or (name == "exposed_sync_s" and cell.summary.comm_s is None):
        return None
    parts = cell.summary.parts_s
    return sum(parts[part] for part in COMPUTE_PARTS) if name == "compute_s" else parts[name]


def _single_numbers(a: StoredCell, b: StoredCell) -> Iterator[Quantity]:
    """What is one number per run: its ratio has no interval."""
    for name in ("peak_memory_bytes", "test_accuracy", "test_loss"):
        old, new = getattr(a, name), getattr(b, name)
        if old is None and new is None:
            continue
        ratio = Estimate(value=new / old, samples=1) if old and new else None
        yield Quantity(name=name, old=old, new=new, ratio=ratio)


def _scaling(a: tuple[StoredCell, StoredCell], b: tuple[StoredCell, StoredCell], relative: Estimate) -> list[Quantity]:
    """Speed-up and efficiency over the baseline cell; the ratio of either is that of the relative step times."""
    old, new = (speedup(*pair).estimate.value for pair in (a, b))
    n, ratio = a[0].world_size, reciprocal(relative)
    weak = a[0].batch_size == a[1].batch_size
    found = [Quantity(name="scaled_speedup" if weak else "strong_speedup", old=old, new=new, ratio=ratio)]
    if n > 1:
        found.append(Quantity(name="efficiency", old=old / n, new=new / n, ratio=ratio))
    return found
