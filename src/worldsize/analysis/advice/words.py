"""Numbers of the advice in words: the digits of numbers.py, the interval, the unit."""

from worldsize.analysis import headline
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import estimate_text, number_text
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


def gb_per_s(rate: Estimate) -> str:
    """Bytes per second in GB/s, with its interval."""
    return f"{estimate_text(rate, 1e-9)} GB/s"


def megabytes(size: float) -> str:
    """Bytes in MB (1e6)."""
    return f"{number_text(size / 1e6)} MB"


def gibibytes(size: float) -> str:
    """Bytes in GiB (2^30)."""
    return f"{number_text(size / 2**30)} GiB"


def at_most(gain: Estimate) -> str:
    """What may be gained, as times the throughput."""
    return f"at most {estimate_text(gain)} times the samples/s"


def several(count: float, word: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
