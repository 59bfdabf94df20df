"""What the words around a table say: samples, model, precision, what a time is of, how a ratio is defined."""

import re
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from worldsize.analysis.audit.around import Around, around
from worldsize.analysis.audit.known import DATA_SETS, DataSet, network_in
from worldsize.analysis.audit.languages import in_english
from worldsize.analysis.audit.numbers import Printed, printed, whole_number
from worldsize.documents.document import Document, Table

Ratio = Literal["ratio", "times_n"]


@dataclass(frozen=True)
class Words:
    """What is said of a table; None where nothing is."""

    text: str = ""
    """All words that count for it, its own first."""
    own: str = ""
    """Its caption, and what stands between it and the next."""
    caption: str = ""
    samples: int | None = None
    test_samples: int | None = None
    classes: int | None = None
    data_set: str | None = None
    network: str | None = None
    parameters: Printed | None = None
    element_bytes: int | None = None
    accumulation: int | None = None
    time_of: Literal["epoch", "step", "total"] | None = None
    batch_per: Literal["worker", "total"] | None = None
    scaling: Literal["weak", "strong"] | None = None
    batch: int | None = None
    """Of all runs; of a worker or of all of them as `batch_per` says."""
    sequence: int | None = None
    """Tokens of a sample."""
    epochs: int | None = None
    """How many a run has."""
    grows: bool = False
    """The data grow with the workers, as each has as many samples as one had."""
    speedup: Ratio | None = None
    """The definition that is printed."""
    workers: int | None = None
    """Of a table of one N."""
    overlap: bool = False


_ANY_WORKERS = r"(?:gpus?|workers?|devices?|process(?:es)?|nodes?)"
_UNCHANGED, _SIZE = "(?:constant|fixed)", "(?:work|workload|problem(?: size)?|mesh|grid)"
_FORMULA = re.compile(
    r"(?P<name>speed-?\s?up|scaling|[sS])\s*(?:\([^)=]*\))?\s*(?:=|:=|≈|is defined as|defined as|computed as|calculated as)\s*(?P<right>[^\n;.]*(?:\.\d[^\n;.]*)*)",
    re.IGNORECASE,
)
_N = r"(?:n|p|k|number of (?:gpus|workers|devices|processes)|#\s?gpus?|gpus|num_?gpus|world_?size)"
_TIMES_N = re.compile(
    rf"(?:^|[(\s=]){_N}\s*[×x*·⋅]\s*|\\times|[×x*·⋅]\s*{_N}\s*(?:$|[),/])|\b{_N}\s*t\s*[(_]?1", re.IGNORECASE
)


def words_of(document: Document) -> list[Words]:
    """For each table of a document, in their order."""
    return [
        _of_table(table, near, alone=len(document.tables) == 1)
        for table, near in zip(document.tables, around(document), strict=True)
    ]


def _of_table(table: Table, near: Around, *, alone: bool) -> Words:
    """What is nearer comes first; `alone`: it is the only table."""
    said = reduce(lambda general, text: _over(_said(text), general), reversed(near.pieces[:-1]), _said(near.outer))
    own = "\n".join(filter(None, (near.caption, near.section if near.leads else "", near.after)))
    rest = "\n".join(filter(None, ("" if near.leads else near.section, near.outer)))
    headings = " ".join(cell for row in table.header for cell in row)
    return replace(
        said,
        text=f"{own}\n{rest}",
        own=own,
        caption=near.caption,
        time_of=said.time_of or _time_of(headings),
        workers=_workers_alone(near.caption) or (_workers_alone(f"{near.section}\n{near.outer}") if alone else None),
    )


def _over(own: Words, general: Words) -> Words:
    """What is said of a table itself comes before what is said of all."""
    filled = {
        name: getattr(own, name) if getattr(own, name) is not None else getattr(general, name)
        for name in Words.__dataclass_fields__
    }
    filled |= {"grows": own.grows or general.grows, "overlap": own.overlap or general.overlap}
    if own.time_of == "total":  # "training time" is any time; what all tables are said to time is narrower
        filled["time_of"] = general.time_of or "total"
    return Words(**filled)


def _said(text: str) -> Words:
    low = text.lower()
    data_name, data = _data_set(low)
    samples = _count(
        low,
        rf"{_MANY}\s*(?:training |train )?(?:images|samples|examples|sequences)(?! ?(?:/|per|(?:in )?(?:a|one|each|every) s))",
        training=True,
    )
    return Words(
        samples=samples or (data.train if data else None),
        test_samples=_count(low, rf"{_MANY}\s*(?:test|validation|val) (?:images|samples|examples)")
        or _count(low, r"test set (?:has|of|with) ([\d,']+)")
        or (data.test if data else None),
        classes=_count(low, r"([\d,]+)[ -]class(?:es)?\b") or (data.classes if data else None),
        data_set=data_name,
        network=network_in(text),
        parameters=_parameters(text),
        element_bytes=_element_bytes(low),
        accumulation=_count(low, r"accumulat\w*\D{0,30}?(\d+)(?: steps)?"),
        time_of=_time_of(low),
        batch_per=_batch_per(low),
        batch=_batch(low),
        sequence=_count(
            low,
            r"(?:sequences? (?:has|have|of|length(?: is| of| =|:)?)|seq(?:_|uence )?len(?:gth)?\s*[=:]?)\s*([\d,]+)",
        ),
        epochs=_one_count(r"(\d[\d,]*) (?:training )?epochs\b", low),
        scaling=_scaling(low),
        grows=_grows(low),
        speedup=_speedup(text),
        overlap="overlap" in low,
    )


_MANY = r"(?<![\d.,'])(\d[\d,']*(?:\.\d+)?\s?(?:k|m|thousand|million)?)"
LARGE_SET = 999
"""Fewer images than these are a batch, not what is trained on."""
LARGE = 10_000
"""Samples of a worker above this are its data, not its batch."""


def _grows(low: str) -> bool:
    """Whether each worker has as many samples as one had."""
    if re.search(
        r"(?:data|data ?set|samples|problem size)[^.\n]{0,30}\b(?:grows?|scales?|scaled|increas\w+|proportional)", low
    ):
        return True
    if re.search(rf"(?:each|every|per) {_ANY_WORKERS}[^.\n]{{0,40}}(?:own data|whole data|full data|entire data)", low):
        return True
    each = re.findall(rf"(\d[\d,]*) (?:images|samples) (?:per|on each|for each|/) ?{_ANY_WORKERS}", low)
    each += re.findall(rf"(?:each|every) {_ANY_WORKERS}[^.\n]{{0,40}}?(\d[\d,]*) (?:images|samples)", low)
    return any((whole_number(count) or 0) >= LARGE for count in each)


def _data_set(low: str) -> tuple[str | None, DataSet | None]:
    for pattern, data in DATA_SETS.items():
        if (found := re.search(pattern, low)) is not None:
            return found.group(0), data
    return None, None


def _count(low: str, pattern: str, *, training: bool = False) -> int | None:
    for found in re.finditer(pattern, low):
        before = re.split(r"[.;\n]", low[: found.start()])[-1]
        if training and re.search(r"\b(?:test|validation|val|eval\w*|batch\w*|step|steps)\b", before):
            continue
        count = _many(found.group(1))
        if count is not None and count > (LARGE_SET if training else 0):
            return count
    return None


def _many(words: str) -> int | None:
    """A count in lower case: "50,000", "1.28m", "1.28 million"."""
    spelled = re.sub(r"\s?(?:m|million)$", "M", re.sub(r"\s?(?:k|thousand)$", "k", words))
    return whole_number(spelled)


def _parameters(text: str) -> Printed | None:
    found = re.search(
        r"([\d.,]+\s?(?:[KMB]\b|million|billion)?)\s*(?:trainable |model )?param|param\w*\s*(?::|=|of|\()\s*([\d.,]+\s?[KMB]?)",
        text,
        re.IGNORECASE,
    )
    if found is None:
        return None
    words = (found.group(1) or found.group(2)).rstrip(".,")
    words = re.sub(r"\s?million", "M", re.sub(r"\s?billion", "B", words, flags=re.IGNORECASE), flags=re.IGNORECASE)
    return printed(words)


def _element_bytes(low: str) -> int | None:
    if re.search(r"\b(?:fp32|float32|single precision|tf32)\b", low):
        return 4
    return 2 if re.search(r"\b(?:fp16|bf16|float16|bfloat16|half precision)\b", low) else None


def _time_of(low: str) -> Literal["epoch", "step", "total"] | None:
    low = in_english(low).lower().replace("_", " ")
    if re.search(
        r"(?:time|seconds|sec|duration|cost|s)\b[^.\n]{0,25}\b(?:per|/|an|one|of an|each|for an) ?(?:training )?epoch"
        r"|\bone epoch\b|\bepoch(?:'s)? (?:time|duration)|\bof an epoch\b|time/epoch|s/epoch|epoch in seconds",
        low,
    ):
        return "epoch"
    if re.search(
        r"(?:time|seconds|sec|duration|latency|ms|s)\b[^.\n]{0,25}\b(?:per|/|a|one|of a|each) ?(?:training )?(?:step|iteration|mini-?batch|batch)\b"
        r"|\b(?:step|iteration|iter) (?:time|duration)",
        low,
    ):
        return "step"
    if re.search(
        r"(?:total|whole|end-to-end|overall) (?:training )?time|training time|time to (?:train|accuracy)|\b\d+ epochs\b",
        low,
    ):
        return "total"
    return None


def _batch_per(low: str) -> Literal["worker", "total"] | None:
    worker = r"(?:gpu|worker|device|process|rank|core|node|card)"
    if re.search(
        rf"batch(?:[ -]?sizes?)?[^.\n]{{0,30}}(?:(?:per|/|each|on each) ?{worker}|per-{worker})|(?:local|micro|per-{worker}|per {worker}) (?:mini-?)?batch"
        rf"|\d+ per {worker}",
        low,
    ):
        return "worker"
    return (
        "total"
        if re.search(
            r"(?:global|total|effective|overall|aggregate) (?:mini-?)?batch|batch[^.\n]{0,20}(?:in total|globally)", low
        )
        else None
    )


def _batch(low: str) -> int | None:
    """The one batch size that words name."""
    found = re.findall(
        r"batch(?:[ -]?size)?s?\s*(?:\([^)]*\)\s*)?(?:is|was|of|=|:|fixed (?:at|to))?\s*(\d[\d,]*)(?![\d.]*\s*(?:%|[x×]))",
        low,
    )
    found += re.findall(
        r"(\d[\d,]*) (?:samples|images|sequences) (?:per|on each) (?:gpu|worker|process|device|rank)", low
    )
    return _only(found)


def _one_count(pattern: str, low: str) -> int | None:
    """The one count that words name in this way."""
    return _only(re.findall(pattern, low))


def _only(counts: list[str]) -> int | None:
    different = {int(each.replace(",", "")) for each in counts}
    return different.pop() if len(different) == 1 else None


def _scaling(low: str) -> Literal["weak", "strong"] | None:
    weak = re.search(rf"weak[ -]scaling|{_UNCHANGED} {_SIZE} (?:per|on each|for each|of each) {_ANY_WORKERS}", low)
    strong = re.search(
        rf"strong[ -]scaling|{_UNCHANGED}(?: total| global)? {_SIZE}(?! (?:per|on each|for each|of each))"
        rf"|{_SIZE} (?:is|stays|remains|kept|held) {_UNCHANGED}(?! (?:per|on each|for each))",
        low,
    )
    if bool(weak) == bool(strong):
        return None
    return "weak" if weak else "strong"


def _speedup(text: str) -> Ratio | None:
    """Whether a printed definition multiplies by N."""
    for found in _FORMULA.finditer(text):
        right = found["right"]
        if "/" in right or "÷" in right or "over" in right or "frac" in right:
            return "times_n" if _TIMES_N.search(right) else "ratio"
    return None


def _workers_alone(text: str) -> int | None:
    """N where words name one and no other: "one GPU", "on 8 GPUs"."""
    low = re.sub(r"\b(?:one|single|a single)[ -](?=gpu|worker|device|process)", "1 ", text.lower())
    counts = {
        int(each) for each in re.findall(r"(?<![\w.,-])(\d{1,5})[ -](?:gpus?|workers?|devices?|process(?:es)?)\b", low)
    }
    several = re.search(r"\bup to\b|\bto \d+|,\s*\d+ and|\band \d+", low)
    return counts.pop() if len(counts) == 1 and not several else None
