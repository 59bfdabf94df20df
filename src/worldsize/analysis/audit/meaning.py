"""What the heading of a column, or the label of a row, says: the quantity, its unit, N and batch."""

import re
from dataclasses import dataclass, replace
from typing import Any

from worldsize.analysis.audit.languages import in_english
from worldsize.analysis.audit.quantities import AXES, PARTS, TIMES, Quantity
from worldsize.analysis.audit.units import Unit, unit_in, unit_of


@dataclass(frozen=True)
class Meaning:
    """What a heading or a label says; what it does not say is None."""

    quantity: Quantity | None = None
    unit: Unit | None = None
    per: str | None = None
    """Of a rate or batch: "worker" or "total"."""
    n: int | None = None
    nodes: int | None = None
    batch: int | None = None
    batch_per: str | None = None
    """Of the batch named: "worker" or "total"."""
    rest: str = ""
    """What else it says, in lower case: a model, a strategy, a column's own name."""

    def under(self, outer: "Meaning") -> "Meaning":
        """With what an outer heading, the label of the row or the caption adds; the inner says more."""
        rest = f"{outer.rest} {self.rest}".strip() if outer.rest != self.rest else self.rest
        quantity, unit = self.quantity, self.unit or outer.unit
        if outer.quantity is not None and outer.quantity not in AXES and (quantity is None or _vaguer(quantity, outer)):
            quantity = outer.quantity
        return Meaning(
            quantity,
            unit,
            self.per or outer.per,
            self.n if self.n is not None else outer.n,
            self.nodes if self.nodes is not None else outer.nodes,
            self.batch if self.batch is not None else outer.batch,
            self.batch_per or outer.batch_per,
            rest,
        )


def _vaguer(inner: Quantity, outer: Meaning) -> bool:
    """So "Time (s)" under "Communication" is time of communication."""
    return inner is Quantity.TIME and outer.quantity in (*PARTS, *TIMES)


PRODUCTS = r"[avphtlkb]\d{1,4}s?|g[bh]\d{3}|gaudi ?\d?|mi\d+\w?|titan ?\w*|gtx ?\d+\w*|rtx ?\w?\d+\w*|ascend ?\d*\w?|tpu ?v\d\w?"
"""Names of accelerators, which stand for their number as often as for one of several compared."""
WORKERS = (
    r"(?:gpu|gcd|tpu|hpu|ipu|npu|xpu|worker|process(?:or)?|proc|rank|device|accelerator|card|chip|core|thread|cpu|"
    r"trainer|learner|replica|" + PRODUCTS + r")(?:e?s)?"
)
NODES = r"(?:node|machine|host|server|instance|box|vm)(?:e?s)?"
_MONEY = re.compile(r"[(\[/][$€£]|[$€£][)\]/]|€|£")
_COUNT = r"(\d{1,3}(?:,\d{3})+|\d+)"
_EACH = r"(?:per|/|each|a)\s*(?:" + WORKERS + r")\b"
_PER_WORKER = re.compile(rf"(?:\bper|/|\beach|\bon each)[ -]*{WORKERS}(?![a-z])|\blocal\b|\bmicro\b|per-{WORKERS}")
_TOTAL = re.compile(r"\b(?:global|total|effective|aggregate|overall|combined|all gpus)\b")
_BATCH_WORD = r"(?:batch[ -]?(?:size)?s?|bs|bsz|mbs|gbs|minibatch(?: size)?|mini-batch(?: size)?)"

# Each takes its words out of the heading; the order is from the narrow to the wide.
_TAKE = (
    ("nodes_by", re.compile(rf"\b{_COUNT}\s*(?:{NODES})?\s*[x×*]\s*{_COUNT}\s*[x×]?\s*{WORKERS}\b")),
    ("batch_each", re.compile(rf"\b{_COUNT}\s*(?:samples?|images?|imgs?|examples?|seqs?|sequences?)?\s*{_EACH}")),
    ("batch", re.compile(rf"\b{_BATCH_WORD}\s*(?:of|=|:|-)?\s*{_COUNT}\b(?!\s*(?:%|x\b|×))")),
    ("batch", re.compile(rf"\bb\s*=\s*{_COUNT}\b")),
    ("batch", re.compile(rf"\b{_COUNT}\s*(?:{_BATCH_WORD})\b")),
    ("nodes", re.compile(rf"\b{_COUNT}[\s-]*{NODES}\b")),
    ("nodes", re.compile(rf"\b{NODES}\s*[=:]\s*{_COUNT}\b")),
    ("n", re.compile(rf"(?<![a-z]-)\b{_COUNT}[\s-]*x?\s*{WORKERS}\b")),
    ("n", re.compile(rf"\b(?:{WORKERS}|np?|p|k|world[ -]?size|w)\s*[=:]\s*{_COUNT}\b")),
    ("n", re.compile(rf"\b(?:gpus|workers|processes|ranks|devices|gpu|x)\s+{_COUNT}\b")),
    ("n", re.compile(r"(?<![\w.])[x×]\s?(\d+)\b")),
)
_WORDED = {"single": 1, "one": 1, "two": 2, "four": 4, "eight": 8, "sixteen": 16}

_NOISE = frozenset(
    re.findall(
        r"\S+",
        "min mins minutes hours seconds "
        "the a an of in for on to and or with by at vs number num no nr count ratio rate value values total overall "
        "global local average avg mean measured observed approx about per each gpu gpus worker workers node nodes "
        "peak max best configuration config setup system training train model's time times sec s ms x up relative "
        "scaling parallel per-process per-device per-gpu per-worker ",
    )
)
"""Words of a heading that tell no series from another."""
_Q = Quantity
_QUANTITIES: tuple[tuple[Quantity, str], ...] = (
    (_Q.PER_NODE, rf"\b{WORKERS} ?(?:per|/) ?{NODES}\b"),
    (_Q.UTILIZATION, r"^(?:link|network|nic|wire) utili[sz]ation|^utili[sz]ation of (?:the )?(?:link|network|nic|bandwidth)|(?:%|percent|share|fraction) of (?:the )?(?:link|line rate|network|peak bandwidth)"),
    (_Q.OTHER, r"(?<!bandwidth )\butil|\bmemory\b|\bmem\b|\bpower\b|\bwatts?\b|\busd\b|\bprice|\btemp|\b[kmgtpe]?flop/?s?\b|\bmfu\b|\blearning rate\b|^lr$|\bseq(?:uence)? ?len"),
    (_Q.SPLIT, r"^(?:tensor|pipeline|context|sequence|model)[ -]?(?:model[ -]?)?parallel(?:ism)?(?: (?:size|degree))?$|^(?:tp|pp|cp) (?:size|degree)$"),
    (_Q.REPLICAS, r"^data[ -]?parallel(?:ism)? (?:size|degree)$|^dp (?:size|degree)$|^(?:number of )?(?:model |data-parallel )?replicas$"),
    (_Q.WORKER_TIME, r"\b(?:node|gpu|core|cpu|device|chip|card|worker|machine|accelerator)s?\s?[-×x*·]\s?(?:hours?|h|hrs?|minutes?|mins?|seconds?|secs?|days?)\b"
                     r"|\b(?:node|gpu|core|cpu|device|tpu)s? ?(?:hours|hrs|days)\b"),
    (_Q.ACCURACY, r"\bacc(?:uracy|uracies)?\b|\btop-?[15]\b|\bprecision@|\bbleu\b|\bmap\b|\bf1\b"),
    (_Q.LOSS, r"\bloss(?:es)?\b|perplexity|\bppl\b"),
    (_Q.EFFICIENCY, r"efficien\w*|^e ?\([npk]\)|^e ?[np]$|\bscaling factor\b|\beff\b|(?:%|pct|percent) of (?:linear|ideal)|\butili[sz]ation of linear"),
    (_Q.SERIAL, r"serial (?:fraction|part|share)|karp"),
    (_Q.BYTES, r"^(?:[a-z]+ )?bytes\b(?! ?/)|\bpayload\b|\bdata (?:sent|transferred|exchanged|moved|volume)|\b(?:message|gradient|buffer|tensor|transfer) size"
               r"|\btraffic\b|\bcomm\w* volume"),
    (_Q.ALGBW, r"\balg(?:o|orithm)?[ -]?(?:bw|bandwidth)\b"),
    (_Q.BUSBW, r"\bbus[ -]?(?:bw|bandwidth)\b"),
    (_Q.BANDWIDTH, r"bandwidth|\bbw\b|\b[kmgt]i?b(?:it)?(?:/s|ps)\b|transfer rate"),
    (_Q.SPEEDUP, r"speed[ -]{0,2}ups?\b|^s ?\([npk]\)|^s ?[np]$|relative (?:speed|perf)|\b(?:weak|strong) scaling\b|\bscal(?:ing|e)(?: ratio)?$"
                 r"|\bacceleration\b|times faster|\bx faster\b|^scaling\b"),
    (_Q.GAIN, r"\bimprove(?:ment|d)?\b|\breduction\b|\bgains?\b|\bsavings?\b|\bslow-?down\b|^relative$"),
    (_Q.RATE, r"through-?put|^(?:training )?speed$|\b(?:img|imgs|images?|samples?|tokens?|tok|seqs?|sequences?|sentences?|examples?|words|records|frames)"
              r"[ a-z]*\s?(?:/|per|p)\s?(?:s|sec|second)s?\b|\b(?:ips|fps|wps|tps)\b|training speed|"
              r"\btraining performance\b|\b(?:images?|samples?|tokens?) per sec"),
    (_Q.STEP_RATE, r"\b(?:it|its|iters?|iterations?|steps?|batches)\s?(?:/|per)\s?(?:s|sec|second)\b"),
    (_Q.SHARE, r"\b(?:share|fraction|percentage|portion)\b|\boverhead\b"),
    (_Q.COMMUNICATION, r"\bcomm(?:s|unication|unications)?\b|all-?\s?reduce|synchroni[sz]|\bsync\b|gradient exchange"),
    (_Q.COMPUTE, r"\bcomput(?:e|ation|ing|ational)\b|\bcomp\b|forward|backward|\bfwd\b|\bbwd\b|^optimi[sz]er(?: step| update| time)?$"),
    (_Q.DATA, r"\b(?:data ?load(?:ing|er)?|data wait|loading|load|i/o|input pipeline|data time)\b"),
    (_Q.EPOCH_TIME, r"\b(?:time|s|sec|secs|seconds|min|minutes|h|hours|duration)\b\s?(?:\)|\])?\s?(?:/|per|of an|of one|for one|one|an|each)\s*(?:training )?epoch"
                    r"|\bepoch (?:time|duration|latency|sec|s)\b|^t ?epoch|\btime epoch|\bepoch\s*[(\[,]|\bavg epoch"),
    (_Q.STEP_TIME, r"\b(?:time|s|ms|us|sec|secs|seconds|duration|latency)\b\s?(?:\)|\])?\s?(?:/|per|of a|of one|for one)\s*(?:training |mini-?)?(?:step|iter|iteration|batch|update)"
                   r"|\b(?:step|iter|iteration|mini-?batch|batch) (?:time|duration|latency|ms|s)\b|\blatency\b|^t ?step|\b(?:step|iter|iteration)s?\s*[(\[,]\s*(?:m?s|sec)"),
    (_Q.ACCUMULATION, r"accum"),
    (_Q.BATCH, rf"\b{_BATCH_WORD}\b|\bbatch"),
    (_Q.TIME, r"\b(?:time|duration|seconds|minutes|hours) (?:for|of) (?:all )?\d+ epochs\b"),
    (_Q.EPOCHS, r"^(?:number of |num |no\.? of )?epochs?$|\bepochs\b"),
    (_Q.STEPS, r"^(?:number of |num |total )?(?:steps?|iterations?|iters?|updates)\b|\b(?:steps|iterations|iters|batches)\b"),
    (_Q.TIME, r"\btimes?\b|\bseconds?\b|\bsecs?\b|duration|\bwall\b|elapsed|run ?time|\bminutes\b|\bhours\b|\bt ?\((?:n|p|s)\)|^t$|^t ?[np]$"),
    (_Q.TIME, r"^total$|^iteration$|^overall$"),
    (_Q.PARAMETERS, r"\bparam(?:s|eters?)?\b(?! server)|\bweights\b|model size"),
    (_Q.ELEMENTS, r"\bcount(?: \(elements\))?\b|\belements\b"),
    (_Q.BYTES, r"\bbytes\b|\bpayload\b|message size|\btraffic\b|\bvolume\b|\bsize \(b|\bgradient size|(?<!world )\bsize\b|\bcost\b"),
    (_Q.SAMPLES, r"\bsamples\b|\bimages\b|data ?set size|training set"),
    (_Q.NODES, rf"(?<!parameter )\b(?:{NODES})\b"),
    (_Q.RANK, r"^(?:local |global )?rank(?: id)?$|^(?:gpu|worker|node|process) (?:id|index|rank)$"),
    (_Q.N, rf"\b{WORKERS}\b|world[ -]?size|^n$|^p$|^np$|^#$|\bnproc\b|\bnum proc"),
)  # fmt: skip
_LETTERS = {"e": _Q.SERIAL, "E": _Q.EFFICIENCY, "S": _Q.SPEEDUP, "TP": _Q.SPLIT, "PP": _Q.SPLIT, "CP": _Q.SPLIT}
"""Letters whose case tells them apart: e of Karp and Flatt, E of efficiency, TP no time on p workers."""
_COMPILED = tuple((quantity, re.compile(pattern)) for quantity, pattern in _QUANTITIES)
_BY_UNIT = {
    "time": Quantity.TIME, "rate": Quantity.RATE, "step_rate": Quantity.STEP_RATE, "bandwidth": Quantity.BANDWIDTH,
    "bytes": Quantity.BYTES,
}  # fmt: skip


def meaning(text: str) -> Meaning:
    """What a heading or a label says."""
    words = _normal(text)
    taken, rest = _take(words)
    letter = _LETTERS.get(text.strip("*_$ "))
    named = letter or quantity_of(_without_brackets(rest)) or quantity_of(rest)
    if (named is Quantity.N and not _counted(rest)) or _MONEY.search(rest) or _spread(rest):
        named = Quantity.OTHER
    unit = (
        None
        if letter
        else unit_in(_spelled(text))
        or (unit_of(re.split(r"[\s-]", rest)[-1]) if named is Quantity.WORKER_TIME else None)
    )
    quantity = _with_unit(named, unit, rest)
    per = "worker" if _PER_WORKER.search(rest) else None
    per = per or ("total" if _TOTAL.search(words) else None)
    found = Meaning(quantity, unit, per, rest=_leftover(rest, quantity, unit))
    if "batch" in taken:
        taken.setdefault("batch_per", per)
    return replace(found, **taken)


def _spread(words: str) -> bool:
    """Of a standard deviation alone, which is no time; "mean ± std" is."""
    found = re.search(r"\b(?:std|stddev|stdev|std\. dev\.?|standard deviation|variance)\b", words)
    return found is not None and re.search(r"mean|avg|average|median|±|\+", words) is None


def _counted(words: str) -> bool:
    """Whether words count workers; "TFLOPS/GPU" does not, "per GPU" alone says again what stands left of it."""
    found = _PER_WORKER.search(words)
    return (
        found is None
        or not words[: found.start()].strip(" (")
        or re.search(WORKERS, _PER_WORKER.sub(" ", words)) is not None
    )


def quantity_of(words: str) -> Quantity | None:
    """The quantity that words name, the narrowest first; None for none."""
    for quantity, pattern in _COMPILED:
        if pattern.search(words):
            return quantity
    return None


def _with_unit(named: Quantity | None, unit: Unit | None, words: str) -> Quantity | None:
    """What a name and a unit mean together: "comm (%)" is a share, "ms/step" a step time, "GPU (s)" a time."""
    if unit is None:
        return named
    if unit.kind == "time":
        return _with_time(named, unit, words)
    if unit.kind == "percent":
        if named is Quantity.BANDWIDTH:
            return Quantity.UTILIZATION
        return Quantity.SHARE if named in (*PARTS, *TIMES) else named
    replaced: tuple[Quantity | None, ...] = (None, *AXES, Quantity.SAMPLES, Quantity.STEPS, Quantity.BYTES)
    if unit.kind in ("bytes", "bandwidth"):
        replaced = (*replaced, *PARTS, *TIMES, Quantity.SHARE, Quantity.UTILIZATION, Quantity.SPEEDUP)
    if unit.kind == "rate":
        replaced = (*replaced, *TIMES)
    return _BY_UNIT.get(unit.kind, named) if named in replaced else named


def _with_time(named: Quantity | None, unit: Unit, words: str) -> Quantity:
    if named in (Quantity.WORKER_TIME, Quantity.OTHER):
        return named
    if named is not None and named in (*PARTS, Quantity.STEP_TIME, Quantity.EPOCH_TIME):
        return named
    if unit.per == "epoch" or (unit.per is None and named is Quantity.EPOCHS):
        return Quantity.EPOCH_TIME
    one = named is Quantity.STEPS and re.search(r"\b(?:step|iter|iteration)\b", words) is not None
    step = unit.per is not None or one or (named in (Quantity.STEPS, Quantity.BATCH) and "time" in words)
    return Quantity.STEP_TIME if step else Quantity.TIME


def _normal(text: str) -> str:
    """Lower case; names of variables as words; the signs that people use for a count spelled out."""
    text = _spelled(text)
    return re.sub(r"\s+", " ", text).strip().lower()


def _spelled(text: str) -> str:
    text = in_english(text.replace("_", " "))
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text)
    text = text.replace("#", " number of ").replace("–", "-").replace("→", " ")
    return re.sub(r"\s+", " ", text).strip()


def _take(words: str) -> tuple[dict[str, Any], str]:
    """Counts of workers, nodes and batch that the words name, and the words without them."""
    taken: dict[str, Any] = {}
    words, against = _against(words)
    words = re.sub(r"\bsingle-?\s?thread(?:ed)?\b", "1 thread", words)
    words = re.sub(
        rf"\b({'|'.join(_WORDED)})[ -](?={WORKERS}\b|{NODES}\b)", lambda found: f"{_WORDED[found[1]]} ", words
    )
    for name, pattern in _TAKE:
        match = pattern.search(words)
        if match is None or name in taken or (name == "n" and "n" in taken):
            continue
        counts = [int(each.replace(",", "")) for each in match.groups()]
        if name == "nodes_by":
            taken |= {"nodes": counts[0], "n": counts[0] * counts[1]}
        elif name == "batch_each":
            taken |= {"batch": counts[0], "batch_per": "worker"}
        else:
            taken[name] = counts[0]
        words = f"{words[: match.start()]} {words[match.end() :]}"
    return taken, re.sub(r"\s+", " ", f"{words} {against}").strip(" :-,")


def _against(words: str) -> tuple[str, str]:
    """Of "Speedup vs 1 GPU": what it is compared with is not what it is of."""
    match = re.search(r"\b(?:vs\.?|versus|relative to|compared (?:to|with)|against|over|w\.?r\.?t\.?)\s.*", words)
    return (words[: match.start()], match.group(0)) if match else (words, "")


def _without_brackets(words: str) -> str:
    return re.sub(r"[(\[][^()\[\]]*[)\]]", " ", words).strip()


def _says_unit(inside: str) -> bool:
    return unit_of(inside) is not None or quantity_of(inside) is not None


def _leftover(words: str, quantity: Quantity | None, unit: Unit | None) -> str:
    """What the words say besides the quantity and its unit."""
    named = [inside for inside in re.findall(r"[(\[]([a-z][\w+-]*)[)\]]", words) if not _says_unit(inside)]
    words = _without_brackets(words)
    if unit is not None and unit.kind == "rate":
        words = words.replace(unit.name.lower(), " ")
    for each, pattern in _COMPILED:
        if each is quantity:
            words = pattern.sub(" ", words)
    words = " ".join([words, *named])  # "Speed-up (DDP)" is that of the column "DDP"
    return " ".join(word for word in re.split(r"[^\w.+-]+", words) if word.strip("-.") and word not in _NOISE)
