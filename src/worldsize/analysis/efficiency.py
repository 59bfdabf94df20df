"""Statistical efficiency and time to accuracy: what a training takes to a target beside its baseline (method.md §10).

What is asked is what would come with another seed, so the seed is the unit: a cell is paired with its baseline seed by
seed. How fast it trains comes from steps that were timed in turn, never from the epochs of the trainings themselves.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.statistics import Ratio, includes, mean_estimate
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.training import Crossing, EpochAnalysis, common_target, crossing, epochs
from worldsize.results.beside import ACCURACY, THROUGHPUT, part_of_seed
from worldsize.results.records import Estimate

AFTERWARDS = "the target was chosen after the fact: no interval; give --target-accuracy"
ONE_SEED = "one seed: its spread is not known; give --seeds 3"
NOT_IN_TURN = "the epochs of trainings are not timed in turn: no throughput ratio"
ONE_BLOCK = "steps were timed in one block: the throughput ratio has no interval"


@dataclass(frozen=True)
class Efficiency:
    """What a cell takes to the target, against the baseline; None where `remark` says why."""

    cell: CellAnalysis
    """The cell of the first seed."""
    crossings: tuple[Crossing, ...]
    """Of each seed."""
    samples: float | None
    """Training samples to the target: geometric mean over the seeds; every seed reached it."""
    statistical: Estimate | None
    """Samples to the target at the baseline ÷ samples to it here."""
    verdict: str
    """`baseline`, `fewer samples`, `more samples`, `indistinguishable`, or `not known`."""
    throughput: Ratio | None
    """Samples/s here ÷ samples/s of the baseline, of steps that were timed in turn."""
    time_to_accuracy: Estimate | None
    """Speed-up of the time to the target: throughput ratio × statistical efficiency."""
    remark: str


@dataclass(frozen=True)
class Comparison:
    """All cells of a study of trainings, at one target."""

    target: float | None
    """Test accuracy, 0 to 1; None where nothing was evaluated."""
    beforehand: bool
    """Whether it was set before anything was trained; else it is the largest that every evaluated training reached."""
    seeds: tuple[int, ...]
    trainings: tuple[StudyAnalysis, ...]
    """The same cells, with one seed each."""
    histories: tuple[dict[str, list[EpochAnalysis]], ...]
    """Of each training, the epochs of each cell that was begun."""
    rows: tuple[Efficiency, ...]


def trainings(study: StudyAnalysis) -> tuple[StudyAnalysis, ...]:
    """The studies that train the same cells to an accuracy, each with a seed of its own."""
    name = ACCURACY if ACCURACY in study.parts else ""
    again = (part_of_seed(name, seed) for seed in study.record.asked.all_seeds[1:])
    return (study.parts.get(name, study), *(study.parts[each] for each in again if each in study.parts))


def lost_seeds(study: StudyAnalysis) -> tuple[int, ...]:
    """Seeds whose trainings were run, and whose part of the study cannot be read any more."""
    name = ACCURACY if ACCURACY in study.parts else ""
    further = study.record.asked.all_seeds[1:]
    return tuple(seed for seed in further if f"parts/{part_of_seed(name, seed)}" in study.run.unread)


def _seeds(study: StudyAnalysis, found: Sequence[StudyAnalysis]) -> list[int]:
    """Those of the trainings that were found, then the lost ones: no ratio is made of the others alone."""
    return [*(each.record.asked.seed for each in found), *lost_seeds(study)]


def compared(study: StudyAnalysis) -> Comparison:
    """Each cell against the first one of one worker; no rows without that, or without an evaluation."""
    found = trainings(study)
    histories = [{name: epochs(cell) for name, cell in each.run.cells.items()} for each in found]
    given = study.record.asked.target_accuracy
    target = common_target([history for each in histories for history in each.values()]) if given is None else given
    baseline = next((cell for cell in found[0].cells if cell.world_size == 1), None)
    evaluated = any(epoch.test_accuracy is not None for each in histories for line in each.values() for epoch in line)
    rows: Iterator[Efficiency] = iter(())
    if target is not None and baseline is not None and evaluated:
        rows = _rows(study, found, [*histories, *({} for _ in lost_seeds(study))], target, baseline)
    seeds = tuple(each.record.asked.seed for each in found)
    return Comparison(target if evaluated else None, given is not None, seeds, found, tuple(histories), tuple(rows))


def _rows(
    study: StudyAnalysis,
    found: Sequence[StudyAnalysis],
    histories: Sequence[dict[str, list[EpochAnalysis]]],
    target: float,
    baseline: CellAnalysis,
) -> Iterator[Efficiency]:
    for cell in found[0].cells:
        if cell is baseline:
            here = _crossings(cell, histories, target)
            one = Estimate(value=1.0, samples=len(here)) if _samples(here) else None
            seeds = _seeds(study, found)
            remark = "; ".join(filter(None, [_problem(here, seeds), cell.reason]))
            yield Efficiency(cell, here, _samples(here), one, "baseline", None, None, remark)
        else:
            yield _row(study, found, histories, target, (cell, baseline))


def _row(
    study: StudyAnalysis,
    found: Sequence[StudyAnalysis],
    histories: Sequence[dict[str, list[EpochAnalysis]]],
    target: float,
    pair: tuple[CellAnalysis, CellAnalysis],
) -> Efficiency:
    """What a cell takes to the target, against another of the same study."""
    cell, baseline = pair
    here, base = (_crossings(each, histories, target) for each in pair)
    seeds = _seeds(study, found)
    timed = [study, *filter(None, [study.parts.get(THROUGHPUT)])]
    statistical = _statistical(base, here, beforehand=study.record.asked.target_accuracy is not None)
    throughput, slow = throughput_ratio(cell, baseline, timed)
    product = None if throughput is None or statistical is None else to_accuracy(throughput, statistical)
    trouble = _problem(base, seeds)
    said = [_problem(here, seeds), f"the baseline: {trouble}" if trouble else "", cell.reason or ""]
    if statistical is not None and statistical.low is None:
        said.append(ONE_SEED if study.record.asked.target_accuracy is not None else AFTERWARDS)
    remark = "; ".join(filter(None, [*said, slow]))
    return Efficiency(cell, here, _samples(here), statistical, _verdict(statistical), throughput, product, remark)


def _crossings(
    cell: CellAnalysis, histories: Sequence[dict[str, list[EpochAnalysis]]], target: float
) -> tuple[Crossing, ...]:
    return tuple(crossing(each.get(cell.id, []), target) for each in histories)


def to_target(study: StudyAnalysis, pairs: Sequence[tuple[CellAnalysis, CellAnalysis]]) -> list[Efficiency]:
    """The first of each pair against the second, with any number of workers; none without a target set beforehand."""
    target = study.record.asked.target_accuracy
    if target is None or not pairs:
        return []
    found = trainings(study)
    histories = [{name: epochs(cell) for name, cell in each.run.cells.items()} for each in found]
    histories += [{} for _ in lost_seeds(study)]
    return [_row(study, found, histories, target, pair) for pair in pairs]


def _samples(crossings: Sequence[Crossing]) -> float | None:
    """The geometric mean, so that the ratio of two of them is the statistical efficiency."""
    logs = [math.log(each.samples) for each in crossings if each.samples is not None]
    return math.exp(sum(logs) / len(logs)) if len(logs) == len(crossings) else None


def _problem(crossings: Sequence[Crossing], seeds: Sequence[int]) -> str:
    """Why samples to the target are not known, with the seeds; empty where they are.

    The ratio of the seeds that came there would be that of the lucky ones.
    """
    whys = dict.fromkeys(each.why for each in crossings if each.why)
    said = []
    for why in whys:
        having = [str(seed) for seed, each in zip(seeds, crossings, strict=True) if each.why == why]
        everywhere = len(having) == len(crossings)
        said.append(why if everywhere else f"{why} with seed{'s' if len(having) > 1 else ''} {', '.join(having)}")
    return "; ".join(said)


def _statistical(base: Sequence[Crossing], here: Sequence[Crossing], *, beforehand: bool) -> Estimate | None:
    pairs = [(b.samples, h.samples) for b, h in zip(base, here, strict=True)]
    top, bottom = [b for b, _ in pairs if b is not None], [h for _, h in pairs if h is not None]
    if len(top) < len(pairs) or len(bottom) < len(pairs):
        return None
    found = student_ratio(top, bottom)
    return found if beforehand else Estimate(value=found.value, samples=found.samples)


def student_ratio(top: Sequence[float], bottom: Sequence[float]) -> Estimate:
    """Mean ratio of pairs of positive values: Student's 95 % interval of its logarithm; none with one pair."""
    logs = mean_estimate(np.log(np.array(top, dtype=np.float64) / np.array(bottom, dtype=np.float64)))
    with np.errstate(over="ignore"):
        low, high = (None if end is None else float(np.exp(end)) for end in (logs.low, logs.high))
    return Estimate(value=math.exp(logs.value), low=low, high=high, samples=logs.samples)


def _verdict(statistical: Estimate | None) -> str:
    if statistical is None or statistical.low is None:
        return "not known"
    if includes(statistical, 1.0):
        return "indistinguishable"
    return "fewer samples" if statistical.value > 1 else "more samples"


def throughput_ratio(
    cell: CellAnalysis, baseline: CellAnalysis, timed: Sequence[StudyAnalysis]
) -> tuple[Ratio | None, str]:
    """Samples/s of a cell ÷ those of its baseline, where a study has timed the steps of both in turn.

    Then why there is none, or no interval. The rule of the learning rate changes no step time (method.md §10).
    """
    for study in timed:
        here, there = _same_steps(cell, study), _same_steps(baseline, study)
        if here is None or there is None:
            continue
        crowded = here.oversubscribed or there.oversubscribed
        if crowded and not study.record.asked.allow_oversubscribed:
            return None, "more threads than cores: the throughput ratio is withheld"
        if here.threads_per_worker != there.threads_per_worker:
            return None, "not as many threads per worker as the baseline: the throughput ratio is withheld"
        found = there.step_ratio(here).scaled(here.global_batch / there.global_batch)
        if found.paired:
            return found, ONE_BLOCK if found.estimate.low is None else ""
    return None, NOT_IN_TURN


def _same_steps(cell: CellAnalysis, study: StudyAnalysis) -> CellAnalysis | None:
    """The cell of a study whose steps are those of `cell`, timed in turn with others."""
    if study.record.asked.epochs is not None or study.record.asked.sweep:
        return None
    same = (cell.strategy, cell.world_size, cell.batch_size)
    alike = [each for each in study.cells if (each.strategy, each.world_size, each.batch_size) == same and each.level]
    return next((each for each in alike if each.id == cell.id), next((e for e in alike if not e.label), None))


def to_accuracy(throughput: Ratio, statistical: Estimate) -> Estimate:
    """Throughput ratio × statistical efficiency, with an interval where both have one.

    From the two intervals by the method of variance estimates recovery, on logarithms: timing and training err
    independently (Zou and Donner, Construction of confidence limits about effect measures, 2008).
    """
    both = (throughput.estimate, statistical)
    value, samples = math.prod(each.value for each in both), min(each.samples for each in both)
    lows = [each.low / each.value for each in both if each.low is not None]
    highs = [each.high / each.value for each in both if each.high is not None]
    if len(lows) < len(both) or len(highs) < len(both):
        return Estimate(value=value, samples=samples)
    with np.errstate(divide="ignore", over="ignore"):  # an end may be 0 or beyond all floats: nothing is known there
        low, high = np.exp(-np.hypot(*np.log(lows))), np.exp(np.hypot(*np.log(highs)))
    return Estimate(value=value, low=value * float(low), high=value * float(high), samples=samples)
