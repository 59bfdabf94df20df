"""Numbers of the advice in words: the digits of numbers.py, the interval, the unit; and as evidence and gains."""

from worldsize.analysis import headline
from worldsize.analysis.advice.finding import Evidence, Gain
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import estimate_text, gib_text, number_text
from worldsize.results.records import Estimate


def cell_name(cell: CellAnalysis) -> str:
    """A cell as the verdict names it, with the label that tells its recipe apart."""
    return headline.cell_name(cell) + (f" ({cell.label})" if cell.label else "")


def named(cell: CellAnalysis) -> str:
    """Its strategy, with the label."""
    return f"{cell.strategy} ({cell.label})" if cell.label else cell.strategy


def ms(seconds: Estimate) -> str:
    """Seconds as milliseconds: `212 [205, 218] ms`."""
    return f"{estimate_text(seconds, 1e3)} ms"


def share(estimate: Estimate) -> str:
    """A share (1 is all): `39.4 [38.1, 40.7] %`."""
    return f"{estimate_text(estimate, 100)} %"


def megabytes(size: float) -> str:
    """Bytes in MB (1e6)."""
    return f"{number_text(size / 1e6)} MB"


def several(count: float, word: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def time_of(label: str, seconds: Estimate | float) -> Evidence:
    """Seconds as evidence, read in ms."""
    text = ms(seconds) if isinstance(seconds, Estimate) else f"{number_text(1e3 * seconds)} ms"
    return Evidence(label, text, seconds, "s")


def share_of(label: str, estimate: Estimate) -> Evidence:
    """A share (1 is all) as evidence, read in percent."""
    return Evidence(label, share(estimate), estimate, "share")


def ratio_of_two(label: str, estimate: Estimate) -> Evidence:
    """A ratio of two cells as evidence."""
    return Evidence(label, estimate_text(estimate), estimate, "ratio")


def rate_of_link(label: str, bytes_per_s: Estimate | float) -> Evidence:
    """Bytes per second as evidence, read in GB/s."""
    if isinstance(bytes_per_s, Estimate):
        text = estimate_text(bytes_per_s, 1e-9)
    else:
        text = number_text(bytes_per_s / 1e9)
    return Evidence(label, f"{text} GB/s", bytes_per_s, "bytes/s")


def memory_of(label: str, size_bytes: int) -> Evidence:
    """Bytes of memory as evidence, read in GiB."""
    return Evidence(label, gib_text(size_bytes), size_bytes, "bytes")


def count_of(label: str, count: float) -> Evidence:
    """A number of things as evidence."""
    return Evidence(label, f"{count:g}", count, "count")


def at_most(ratio: Estimate | None, basis: str, of: str = "") -> Gain | None:
    """An upper bound of what may be gained, as times the samples/s; None where that is not known."""
    if ratio is None:
        return None
    return Gain(f"at most {estimate_text(ratio)} times the samples/s{of}", basis, ratio, at_most=True)


def measured(ratio: Estimate | None, basis: str, of: str = "") -> Gain | None:
    """What was gained where it was tried, as times the samples/s; None where that is not known."""
    return None if ratio is None else Gain(f"{estimate_text(ratio)} times the samples/s{of}", basis, ratio)
