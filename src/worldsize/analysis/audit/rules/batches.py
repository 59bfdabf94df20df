"""Counts: global batch, steps of an epoch, and an epoch as its steps."""

import math

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import (
    Checked,
    Finding,
    Page,
    Rule,
    Verdict,
    one_finding,
    places,
    shown,
    together,
)
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.series import beside, is_typical, only, samples_of

ABOUT = Span(0.98, 1.02)
"""A smaller last batch, and averages of steps, make this much of an epoch."""


_Asked = tuple[Fact, Fact | None, float, float]
"""A global batch, the batch of a worker beside it, that as a number, and the steps that are accumulated."""


def check_global(reading: Reading, page: Page) -> Checked:
    """The global batch is that of a worker × N × accumulation."""
    asked: list[_Asked] = []
    for whole in reading.of(Quantity.BATCH):
        if whole.per != "total" or whole.sharing is None or _batch(reading, whole, "total") is not None:
            continue  # in samples and in tokens: nothing says which is which
        local = _batch(reading, whole, "worker")
        given = local.span.mid if local else (whole.batch if whole.batch_per == "worker" else None)
        if given:
            counted = only(beside(reading, whole, Quantity.ACCUMULATION))
            asked.append((whole, local, given, counted.span.mid if counted else (reading.words.accumulation or 1)))
    said = "accum" in reading.words.text.lower()
    ratios = {whole.span.mid / (given * (whole.sharing or 1)) for whole, _, given, _ in asked}
    if len(asked) > 1 and _is_filled(reading, asked, ratios):
        return Checked()
    steps = ratios.pop() if len(ratios) == 1 else 1.0
    if steps >= 2 and steps.is_integer() and all(accumulation == 1 for *_, accumulation in asked):
        return Checked() if said else _accumulated(asked[0][0], asked[0][2], steps)
    return together(_global(*each, said) for each in asked)


def _is_filled(reading: Reading, asked: list[_Asked], ratios: set[float]) -> bool:
    """Whether micro-batches make one global batch for all N, or are of several sizes: the rest is accumulated."""
    micro = (
        local is not None and "micro" in reading.columns[local.place.column].heading.lower() for _, local, *_ in asked
    )
    one = len({whole.span.mid for whole, *_ in asked}) == 1 and len(ratios) == len(asked)
    chosen = len({given for _, _, given, _ in asked}) > 1
    return (one or chosen) and all(micro) and all(ratio >= 1 and ratio.is_integer() for ratio in ratios)


def _batch(reading: Reading, fact: Fact, per: str) -> Fact | None:
    """The batch of the same row that is of a worker, or of all."""
    found = [
        each
        for each in reading.of(Quantity.BATCH)
        if each.place.row == fact.place.row and each.per == per and each is not fact
    ]
    return only(found)


def _accumulated(whole: Fact, given: float, steps: float) -> Checked:
    """Every global batch is the same number of times what N workers have."""
    value = given * (whole.sharing or 1)
    text = f"{given:g} × {whole.sharing} workers are {value:g}; {whole.text} is printed as the global batch."
    fits = f"fits with {steps:.0f} steps accumulated"
    changes = "Accumulation must be said: it changes the communication of a sample."
    finding = Finding(
        "global-batch",
        Verdict.EXPLAIN,
        text,
        (whole.place,),
        whole.place.table,
        whole.text,
        f"{value:g}",
        fits,
        changes,
    )
    return Checked(0, (finding,))


def _global(whole: Fact, local: Fact | None, given: float, accumulation: float, said: bool) -> Checked:
    n = whole.sharing or 1
    value = given * n * accumulation
    if whole.span.around(value):
        return Checked(1)
    fits = None
    for other, says in (
        (given * n, "fits without the accumulation"),
        (given * accumulation, "fits if N is left out"),
        (given, "fits if it is the batch of a worker"),
        (given * n * n * accumulation, "fits if N was multiplied twice"),
    ):
        if whole.span.around(other) and other != value:
            fits = fits or says
    if said and accumulation == 1 and (whole.span.mid / value).is_integer():
        return Checked()
    if accumulation != 1 and not local and fits == "fits without the accumulation":
        return Checked(1)
    steps = f" × {accumulation:g} accumulated" if accumulation != 1 else ""
    return Checked(
        0,
        (
            Finding(
                "global-batch",
                Verdict.FAIL,
                f"{given:g} × {n} workers{steps} are {value:g}; {whole.text} is printed as the global batch.",
                places([whole, local] if local else [whole]),
                whole.place.table,
                whole.text,
                f"{value:g}",
                fits,
                "The runs have another global batch than is said: learning rate and accuracy belong to that one.",
            ),
        ),
    )


def check_steps(reading: Reading, page: Page) -> Checked:
    """Steps of an epoch are samples ÷ global batch, rounded up or down."""
    found = []
    for steps in reading.of(Quantity.STEPS):
        batch, samples = _batch_of(reading, steps), reading.words.samples
        if "epoch" in reading.columns[steps.place.column].heading.lower():
            samples = samples_of(reading, steps, page.overrides.samples)
        if samples is None or batch is None or steps.sharing is None:
            continue
        found.append(_steps(steps, samples, *batch, reading.words.accumulation or 1))
    return together(found)


def _batch_of(reading: Reading, fact: Fact) -> tuple[float, str] | None:
    """The batch beside a number, and whether it is of a worker or of all; None where it is not said which."""
    for per in ("total", "worker"):
        near = _batch(reading, fact, per)
        if near is not None:
            return near.span.mid, per
    if fact.batch is None or fact.batch_per is None:
        return None
    return fact.batch, fact.batch_per


def _steps(steps: Fact, samples: int, batch: float, per: str, accumulation: int) -> Checked:
    n = steps.sharing or 1
    whole = batch * n if per == "worker" else batch

    def fit(size: float) -> bool:
        return size > 0 and Span(math.floor(samples / size), math.ceil(samples / size)).meets(steps.span)

    # Distributed samplers give each rank ceil(samples ÷ N) first; that can be one step more.
    if fit(whole) or fit(whole * accumulation) or steps.span.around(math.ceil(math.ceil(samples / n) / (whole / n))):
        return Checked(1)
    says = [
        (batch, "fits if the batch of one worker is taken for that of all")
        if per == "worker"
        else (batch / n, "fits if the batch is taken for that of one worker")
    ]
    says += [(whole * n, "fits if N was multiplied twice"), (1.0, "fits if samples are taken for steps")]
    fits = next((text for size, text in says if size != whole and fit(size)), None)
    value = math.ceil(samples / whole)
    verdict = Verdict.FAIL if fits or steps.span.mid <= 4 * samples / whole else Verdict.SUSPECT
    return one_finding(
        "steps-per-epoch",
        verdict,
        f"{samples} samples in batches of {whole:g} are {value} steps; {steps.text} is printed.",
        [steps],
        f"{value}",
        fits,
        "What is computed per step (bytes, communication) is off by the same factor.",
    )


def check_epoch(reading: Reading, page: Page) -> Checked:
    """An epoch takes at least its steps."""
    found = []
    for epoch in reading.of(Quantity.EPOCH_TIME):
        step = only([each for each in beside(reading, epoch, Quantity.STEP_TIME) if is_typical(reading, each)])
        if step is None:
            continue
        steps = only(beside(reading, epoch, Quantity.STEPS))
        count = steps.span if steps else _counted(reading, epoch, page)
        if count is not None:
            found.append((epoch, step, count))
    fitting = sum((step.span * count * ABOUT).meets(epoch.span) for epoch, step, count in found)
    return together(_epoch(*each, 2 * fitting > len(found)) for each in found)


def _counted(reading: Reading, fact: Fact, page: Page) -> Span | None:
    samples, batch = samples_of(reading, fact, page.overrides.samples), _batch_of(reading, fact)
    if samples is None or batch is None or fact.sharing is None:
        return None
    whole = batch[0] * fact.sharing if batch[1] == "worker" else batch[0]
    return Span(math.floor(samples / whole), math.ceil(samples / whole) + 1)


def _epoch(epoch: Fact, step: Fact, count: Span, others_fit: bool) -> Checked:
    value = step.span * count
    if (value * ABOUT).meets(epoch.span):
        return Checked(1)
    above = epoch.span.mid > value.mid
    n, fits = epoch.n or 1, None
    if n > 1 and (value * (1 / n)).meets(epoch.span):
        fits = "fits if N divides the steps once more"
    if n > 1 and (value * n).meets(epoch.span):
        fits = "fits with the steps of one worker"
    off = epoch.span.mid / value.mid if value.mid else 1
    # More than its steps: evaluation, start and loader come on top. Fewer cannot be.
    if above and off < 1.3 and not fits and not others_fit:
        return Checked(1)
    return one_finding(
        "epoch-steps",
        Verdict.FAIL if fits or others_fit or not above or off > 2 else Verdict.EXPLAIN,
        f"{shown(count, 5)} steps of {step.text} take {shown(value)} s; {epoch.text} is printed for the epoch.",
        [epoch, step],
        f"{shown(value)} s",
        fits,
        "Time of a step and time of an epoch cannot both be right."
        if not above
        else "The rest of the epoch is not said: evaluation, start, waiting for data.",
    )


def check_workers(reading: Reading, page: Page) -> Checked:
    """N is the nodes × the workers of each, in most rows; in some tables one of the three is of another kind."""
    asked = []
    for whole in reading.of(Quantity.N):
        row = [fact for fact in reading.of(Quantity.NODES, Quantity.PER_NODE) if fact.place.row == whole.place.row]
        nodes = only([fact for fact in row if fact.quantity is Quantity.NODES])
        each = only([fact for fact in row if fact.quantity is Quantity.PER_NODE])
        if nodes is not None and each is not None:
            asked.append((whole, nodes, each, nodes.span.mid * each.span.mid))
    held = sum(whole.span.around(value) for whole, _, _, value in asked)
    if 2 * held <= len(asked):
        return Checked()
    found = [
        one_finding(
            "workers",
            Verdict.FAIL,
            f"{nodes.text} nodes of {each.text} have {value:g} workers; {whole.text} is printed.",
            [whole, nodes, each],
            f"{value:g}",
            None,
            f"All that is divided by N is off by {abs(whole.span.mid / value - 1):.0%} in this row.",
        )
        for whole, nodes, each, value in asked
        if value and not whole.span.around(value)
    ]
    return together([Checked(held), *found])


RULES = (
    Rule("workers", "N = nodes × workers of each", check_workers, "arithmetic"),
    Rule("global-batch", "Global batch = batch of a worker × N × accumulation", check_global, "arithmetic"),
    Rule("steps-per-epoch", "Steps of an epoch = samples ÷ global batch", check_steps, "method.md §1"),
    Rule("epoch-steps", "An epoch = steps × step", check_epoch, "arithmetic"),
)
