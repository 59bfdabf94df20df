"""What a rung brings and costs, in sentences: for the verdict, the advice and the report."""

from worldsize.analysis.equal_samples import AccuracyDifference, LossDifference
from worldsize.analysis.numbers import estimate_text, interval_text, number_text
from worldsize.analysis.rungs import Judged, Rung, TrainingCost
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.records import Estimate

POINTS = 100
"""From a share to points of percent."""
OWN_WEIGHTS = (
    "what it does to the training is not known: a step's loss is of each rank's own weights, so compare accuracies "
    "after whole epochs (--epochs)"
)


def signed(value: float, factor: float = 1.0) -> str:
    """A difference, with its sign."""
    return f"{'+' if value > 0 else ''}{number_text(value * factor)}"


def lead_text(rung: Rung) -> str:
    """What must be said before anything else of a rung whose training is significantly worse; else empty."""
    if rung.cost is None or rung.exact is None or not rung.cost.significant:
        return ""
    return f"At a price: with {rung.cell.strategy} {cost_text(rung.cost, rung.exact.strategy)}."


def beside_text(study: StudyAnalysis, rung: Rung) -> str:
    """In a sentence, a lossy rung beside the fastest exact strategy of its group: its speed, then its price."""
    if rung.exact is None:
        return f"{rung.cell.strategy} is lossy, and {rung.remark}: its price is not known."
    name = rung.cell.strategy
    said = [_speed_text(study, rung) if rung.speed else f"{name} has no ratio of speeds ({rung.remark})"]
    if rung.cost is None:
        said.append(f"what it does to the training is not known ({rung.remark})")
    elif not rung.cost.significant:  # else it was said first
        said.append(cost_text(rung.cost, rung.exact.strategy))
    return f"Against {rung.exact.strategy}, the fastest exact strategy with the same N and b, {'; '.join(said)}."


def _speed_text(study: StudyAnalysis, rung: Rung) -> str:
    """`ddp-bf16 has 1.70 [1.60, 1.80] times the samples/s over links of 100mbit`."""
    assert rung.speed is not None, "only with a ratio there is one to tell"
    found, asked = rung.speed.estimate, study.record.asked
    over = f" over links of {asked.link}" if asked.link and asked.emulated else ""
    unsure = ", not significantly more" if found.value >= 1 and not rung.faster else ""
    unsure = " (one block; no interval)" if found.low is None else unsure
    return f"{rung.cell.strategy} has {estimate_text(found)} times the samples/s{over}{unsure}"


def cost_text(cost: TrainingCost, exact: str) -> str:
    """What is known of the training beside that of an exact strategy: loss, then accuracy."""
    said = []
    if cost.loss is not None and (cost.loss.not_finite or not cost.own_weights):
        said.append(_loss_text(cost.loss, cost.loss_is, cost.seeds, exact))
    if cost.accuracy is not None:
        said.append(_accuracy_text(cost.accuracy, cost.accuracy_is, cost.seeds, exact))
    return " and ".join(said) or OWN_WEIGHTS


def _loss_text(loss: LossDifference, found: Judged, seeds: int, exact: str) -> str:
    if loss.estimate is None:
        return f"the training loss within {loss.samples:,} samples is no longer finite, and that of {exact} is"
    what = f"the training loss after {loss.samples:,} samples"
    return f"{what} {_difference_text(loss.estimate, found, seeds, exact)}"


def _accuracy_text(accuracy: AccuracyDifference, found: Judged, seeds: int, exact: str) -> str:
    what = f"the test accuracy after {accuracy.epochs} epoch{'s'[: accuracy.epochs - 1]}"
    return f"{what} {_difference_text(accuracy.estimate, found, seeds, exact, POINTS, ' points')}"


def _difference_text(
    difference: Estimate, found: Judged, seeds: int, exact: str, factor: float = 1.0, unit: str = ""
) -> str:
    """`differs by +0.004 from that of ddp (one seed; no interval)`, or higher, lower, indistinguishable."""
    size, interval = signed(difference.value, factor), interval_text(difference, factor)
    if found == "indistinguishable":
        return f"is indistinguishable from that of {exact} ({size} {interval}{unit}, {seeds} seeds)"
    if found in ("higher", "lower"):
        ends = Estimate(**{**difference.model_dump(), **_absolute(difference)})
        return f"is {found} by {estimate_text(ends, factor)}{unit} than that of {exact} ({seeds} seeds)"
    return f"differs by {size}{unit} from that of {exact} (one seed; no interval)"


def _absolute(difference: Estimate) -> dict[str, float]:
    """Without the sign, for an interval that does not hold 0."""
    assert difference.low is not None, "only with an interval it is higher or lower"
    assert difference.high is not None, "it has two ends"
    low, high = sorted((abs(difference.low), abs(difference.high)))
    return {"value": abs(difference.value), "low": low, "high": high}
