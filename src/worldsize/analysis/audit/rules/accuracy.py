"""Accuracy: a whole number of test images."""

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Page, Rule, Verdict, one_finding, together
from worldsize.analysis.audit.quantities import Quantity

MOST_RUNS = 10
"""An average of this many runs or fewer may be what is printed."""


def check_images(reading: Reading, page: Page) -> Checked:
    """An accuracy is a count of images ÷ all of them, where enough digits are printed to tell."""
    images = reading.words.test_samples
    if images is None or any(
        word in reading.words.text.lower() for word in ("mean of", "average of", "averaged", "seeds")
    ):
        return Checked()
    found = [
        _images(fact, images)
        for fact in reading.of(Quantity.ACCURACY)
        if fact.number.spread is None and "train" not in reading.columns[fact.place.column].heading.lower()
    ]
    return together(found)


def _images(fact: Fact, images: int) -> Checked:
    low, high = fact.span.low * images, fact.span.high * images
    if high - low >= 1:
        return Checked()
    if fact.span.high > 1 + 1e-9:
        return Checked()
    if _between(low, high):
        return Checked(1)
    runs = next((count for count in range(2, MOST_RUNS + 1) if _between(low * count, high * count)), None)
    fits = f"fits if it is the average of {runs} runs" if runs else None
    text = f"{fact.text} of {images} test images is {fact.span.mid * images:.2f} of them, which is no whole number."
    changes = "It was not measured on this test set in one run; how it came about must be said."
    return one_finding("accuracy-images", Verdict.SUSPECT, text, [fact], None, fits, changes)


def _between(low: float, high: float) -> bool:
    nearest = round((low + high) / 2)
    return low - 1e-6 <= nearest <= high + 1e-6


RULES = (
    Rule(
        "accuracy-images", "An accuracy is a whole number of images", check_images, "GRIM test (Brown & Heathers, 2017)"
    ),
)
