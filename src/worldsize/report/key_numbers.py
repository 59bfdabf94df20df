"""The three numbers of the first screen."""

from dataclasses import dataclass

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.headline import Headline, cell_name, fastest_worker, headline
from worldsize.analysis.numbers import ABSENT, estimate_text, interval_text, number_text, percent_text
from worldsize.analysis.scaling import ScalingRow
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.sweep import BatchSweep
from worldsize.results.records import Estimate

ONE_WORKER_LABELS = ("Throughput", "Step time", "Waiting for data")


@dataclass(frozen=True)
class KeyNumber:
    """One of the three numbers of the first screen."""

    label: str
    value: str
    unit: str
    detail: str
    """What it refers to."""
    interval: str = ""
    """`[low, high]`, 95 %; empty without one."""


Three = tuple[KeyNumber, KeyNumber, KeyNumber]


def key_numbers(analysis: StudyAnalysis) -> Three:
    """Speed-up, throughput and exposed communication of the fastest multi-worker configuration.

    Where no configuration with several workers has numbers: throughput, step and data wait of the fastest worker.
    """
    if analysis.sweeps:
        return _of_a_sweep(analysis.sweeps[0])
    found = headline(analysis)
    if found is None or found.fastest.summary is None or found.fastest.breakdown is None:
        return _of_one_worker(analysis)
    return (
        _against_all_cores(found) or _speedup(analysis.speedup_name, found.scaling),
        _throughput(found.fastest, found.fastest.summary.samples_per_s, _margin(found)),
        _exposed(found.fastest),
    )


def _against_all_cores(found: Headline) -> KeyNumber | None:
    """What several workers gain over one with all cores; None where that is the baseline of the speed-up anyway."""
    gain, row = found.pay.fastest if found.pay else None, found.scaling
    if gain is None or gain.baseline is row.baseline:
        return None
    detail = f"samples/s over {gain.baseline.id}, one worker with all cores"
    if row.speedup is not None and row.baseline is not None:
        detail += f"; {estimate_text(row.speedup.estimate)} over {row.baseline.id}, one with as many as each has"
    return KeyNumber("On this machine", number_text(gain.ratio.value), "times", detail, interval_text(gain.ratio))


def _throughput(cell: CellAnalysis, samples_per_s: Estimate, further: str = "") -> KeyNumber:
    lossy = "" if cell.traits.exact else ", lossy: its price is in the verdict"
    detail = f"{cell_name(cell)}{lossy}{further}"
    return KeyNumber("Throughput", number_text(samples_per_s.value), "samples/s", detail, interval_text(samples_per_s))


def _margin(found: Headline) -> str:
    """By how much the fastest beats the next."""
    if found.runner_up is None or found.margin is None:
        return ""
    return f"; {estimate_text(found.margin.estimate)} times the next one, {found.runner_up.id}, block by block"


def _exposed(cell: CellAnalysis) -> KeyNumber:
    assert cell.breakdown is not None, "only cells with numbers are the fastest"
    if cell.summary is None or cell.exposed_share is None:
        return KeyNumber("Exposed communication", ABSENT, "", "its copies between devices are not seen")
    hidden = cell.breakdown.overlapped_share
    further = "" if hidden is None else f"; {percent_text(hidden)} of all communication is hidden behind compute"
    if cell.exposed is not None and cell.exposed.disagree:
        paired = cell.exposed.pairing.value / sum(cell.summary.parts_s.values())
        further += f"; by steps with − without synchronisation {percent_text(paired)} of a step"
    share = percent_text(cell.exposed_share).removesuffix(" %")
    detail = f"wait and transfer that no compute hides{further}"
    return KeyNumber("Exposed communication", share, "% of a step", detail)


def _of_a_sweep(sweep: BatchSweep) -> Three:
    rates = {row.cell.batch_size: row.cell.summary.samples_per_s for row in sweep.rows if row.cell.summary}
    best = rates.get(sweep.knee or 0)
    name = f"{sweep.strategy}, N = {sweep.world_size}"
    largest, knee = (ABSENT if b is None else f"{b:,}" for b in (sweep.largest, sweep.knee))
    too_large = "" if sweep.too_large is None else f"; {sweep.too_large:,} did not fit"
    return (
        KeyNumber("Largest local batch", largest, "samples", f"seen to fit{too_large}; {name}"),
        KeyNumber("Knee", knee, "samples", "smallest b within 5 % of the best throughput"),
        KeyNumber(
            "Throughput at the knee",
            number_text(best.value if best else None),
            "samples/s",
            name,
            interval_text(best) if best else "",
        ),
    )


def _of_one_worker(analysis: StudyAnalysis) -> Three:
    fastest = fastest_worker(analysis)
    if fastest is None or fastest.summary is None or fastest.breakdown is None:
        rate, step, wait = (KeyNumber(label, ABSENT, "", "nothing was measured") for label in ONE_WORKER_LABELS)
        return rate, step, wait
    samples_per_s, step_s = fastest.summary.samples_per_s, fastest.summary.step_s
    share = fastest.breakdown.shares.get("data_wait_s")  # absent of a loop whose loader was not seen
    waiting = ABSENT if share is None else percent_text(share).removesuffix(" %")
    step_ms = number_text(step_s.value * 1e3)
    return (
        _throughput(fastest, samples_per_s),
        KeyNumber(ONE_WORKER_LABELS[1], step_ms, "ms", "elapsed time ÷ timed steps", interval_text(step_s, 1e3)),
        KeyNumber(
            ONE_WORKER_LABELS[2], waiting, "" if share is None else "% of a step", "the worker waits for its next batch"
        ),
    )


def _speedup(label: str, row: ScalingRow) -> KeyNumber:
    if row.speedup is None or row.baseline is None or row.efficiency is None:
        return KeyNumber(label, ABSENT, "", row.withheld or "")
    speedup, efficiency = row.speedup.estimate, percent_text(row.efficiency.estimate.value)
    interval = interval_text(speedup)
    detail = f"over {row.baseline.id}; efficiency {efficiency}{'; in brackets: 95 % interval' if interval else ''}"
    return KeyNumber(label, number_text(speedup.value), f"of {row.cell.world_size}", detail, interval)
