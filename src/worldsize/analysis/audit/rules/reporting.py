"""What a reader needs beside the numbers; never wrong, only missing."""

import re

from worldsize.analysis.audit.facts import Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict
from worldsize.analysis.audit.quantities import TIMES, Quantity

SOUGHT = (
    ("repeats", r"±|\+/-|\bstd|deviation|confidence|interval|\bruns?\b|repeat|trials|median|percentile|seeds", "how often it was measured, and the spread", "A difference may be noise."),
    ("hardware", r"\b[avphtlk]\d{1,3}s?\b|\bgtx|\brtx|titan|tesla|geforce|xeon|epyc|tpu|gaudi|\bmi\d|dgx|p3\.|p4|g4dn|\bcpu model|nvlink|ethernet|infiniband|gbit|gbe\b", "device and network", "Readers cannot compare it with their own."),
    ("precision", r"fp32|fp16|bf16|tf32|float|precision|\bamp\b", "the precision", "Half precision halves the bytes and more than halves the computing."),
    ("batch", r"batch|\bbs\b|\bbsz\b", "the batch size", "Without it a reader cannot tell weak scaling from strong."),
    ("loader", r"loader|num_workers|synthetic|input pipeline|data ?loading|dali|in memory|cached", "how data are loaded", "A loop that waits for its loader says nothing of the network."),
    ("software", r"pytorch|torch|tensorflow|mxnet|jax|keras|caffe|nccl|gloo|horovod|cuda|version", "framework and version", "Defaults differ between versions."),
)  # fmt: skip
"""What is sought, the words that would say it, what is missing, and why it matters."""


def check(reading: Reading, page: Page) -> Checked:
    """What the whole document never says; told once, with its first table of times or rates."""
    measured = [
        table for table in page.readings if table.of(*TIMES, Quantity.RATE, Quantity.STEP_RATE, Quantity.SPEEDUP)
    ]
    if not measured or measured[0] is not reading:
        return Checked()
    text = f"{page.text}\n{_tables(page)}".lower()
    spread = any(fact.number.spread is not None for table in page.readings for fact in table.facts)
    found = [
        Finding(f"missing-{name}", Verdict.MISSING, f"Not said: {what}.", (), None, None, None, None, why)
        for name, words, what, why in SOUGHT
        if not re.search(words, text)
        and not (name == "repeats" and spread)
        and not (name == "batch" and _batches(page))
    ]
    if not any(table.of(Quantity.ACCURACY, Quantity.LOSS) for table in page.readings) and not re.search(
        r"accura|loss|converge", text
    ):
        found.append(
            Finding(
                "missing-accuracy",
                Verdict.MISSING,
                "Not said: accuracy or loss beside the speed.",
                (),
                None,
                None,
                None,
                None,
                "A larger global batch may train worse.",
            )
        )
    return Checked(len(SOUGHT) + 1 - len(found), tuple(found))


def _tables(page: Page) -> str:
    return "\n".join(
        " ".join(cell for row in (*table.table.header, *table.table.rows) for cell in row) for table in page.readings
    )


def _batches(page: Page) -> bool:
    return any(fact.batch is not None for table in page.readings for fact in table.facts)


RULES = (Rule("missing", "What a reader needs is said", check, "Hoefler & Belli, SC'15"),)
