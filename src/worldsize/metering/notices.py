"""What a reader of metered numbers must know: how samples were counted, and which collectives were not seen."""

from worldsize.metering.watch import Watch
from worldsize.results.records import WarningRecord


def notices(watch: Watch, *, setting: str, given: int | None, unseen_because: str) -> list[WarningRecord]:
    """Warnings of a watch; `setting` is where the samples of a step can be `given`."""
    found = []
    if given is None:
        unknown = f"How many samples a step has is unknown: each counts as one. Give {setting}."
        text = f"Samples were counted by {watch.samples_from}." if watch.samples_from else unknown
        found.append(WarningRecord(code="samples-counted", message=text))
    seen, unseen = watch.collectives.seen, watch.collectives.unseen
    if unseen:
        text = f"{seen:,} of {seen + unseen:,} collectives were seen, so no step is taken apart. {unseen_because}"
        found.append(WarningRecord(code="messages-not-seen", message=text))
    return found
