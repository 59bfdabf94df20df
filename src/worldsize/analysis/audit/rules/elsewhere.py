"""Sentences beside a table that speak of something else: other work, a forecast, a part that it does not time."""

import re

from worldsize.analysis.audit.facts import Reading
from worldsize.analysis.audit.meaning import NODES, WORKERS

_OTHERS = re.compile(
    r"\[\d+\]|\bprevious(?:ly)?\b|\bprior\b|\bet al\b|\breported (?:by|in)\b|\bliterature\b|\bearlier\b|\brelated work\b"
    r"|\bpublished\b|\bnot shown\b|\bappendix\b|\bsupplement",
    re.IGNORECASE,
)
_NOT_MEASURED = re.compile(
    r"\bpredict\w*|\bexpect\w*|\bideal(?:ly)?\b|\btheor\w+|\bwould\b|\bcould\b|\bshould\b|\bat most\b|\bbounds?\b|\blimit\w*"
    r"|\bAmdahl|\bGustafson|\bproject(?:ed|ion)\b|\bextrapolat\w*|\bestimat\w*|\bgoal\b|\btarget\b|\bif\b",
    re.IGNORECASE,
)
_FURTHER = re.compile(
    r"\b(?:further|additional(?:ly)?|another|extra|second run|repeat(?:ed)?|run-to-run)\b", re.IGNORECASE
)
_PARTS = re.compile(
    r"data[ -]?load\w*|\bloading\b|\binference\b|\bcommunication\b|\ball-?reduce\b|\bcompil\w+|\bvalidation\b|\bevaluation\b"
    r"|pre-?process\w*|\bcheckpoint\w*|\bforward\b|\bbackward\b|\boptimi[sz]er\b|\bcompress\w+|\bquanti[sz]\w+|\bdecod\w+"
    r"|\bcach\w+|\bstart-?up\b|\bpower\b|\bcosts?\b|\bmemory\b|\bkernels?\b|\bchannels[_ -]?last\b|\bcudnn\b"
    r"|\b(?:larger|bigger|smaller) batch\w*|^\W*(?:en|dis)abling\b",
    re.IGNORECASE,
)
_RUNS = re.compile(r"\bfine-?tun\w+|\bpre-?train\w+|\bmixed precision\b|\bfp16\b|\bbf16\b|\bamp\b", re.IGNORECASE)
"""What runs differ in: of these ones if the other words say so as well."""
_MACHINES = re.compile(
    r"\b(?:[avphb]\d00s?|t4s?|l40s?|l4s?|k80s?|a10g?s?|rtx ?\d{4}|gtx ?\d{4}|mi\d{3}x?|tpus?|epyc|xeon)\b",
    re.IGNORECASE,
)
_NETWORKS = re.compile(
    r"\b(?:resnet|vgg|densenet|inception|efficientnet|mobilenet|bert|gpt|vit|llama|alexnet)[-_ ]?[\w.]*", re.IGNORECASE
)
_FRAMEWORKS = re.compile(
    r"\b(?:horovod|deepspeed|megatron\w*|tensorflow|mxnet|byteps|jax|pytorch|fsdp|colossal-?ai|ray)\b", re.IGNORECASE
)
_AGAINST = re.compile(
    r"\b(?:than|over|compared (?:to|with)|against|versus|vs\.?|relative to)\s+((?:[\w.,'’/-]+\s*){1,6})", re.IGNORECASE
)
_BASES = re.compile(
    rf"\b(?:one|single|base\w*|serial|sequential|linear|it|that|ones|first|other|{WORKERS}|{NODES}|n\s*=\s*\d+)\b|^\d+\b",
    re.IGNORECASE,
)


def of_something_else(sentence: str, reading: Reading) -> bool:
    """Whether a sentence claims nothing of the table that stands beside it."""
    if _OTHERS.search(sentence) or _NOT_MEASURED.search(sentence) or _FURTHER.search(sentence):
        return True
    own = _own_words(reading).replace(sentence.strip().lower(), " ")
    if any(found[0].lower() not in own for found in _PARTS.finditer(sentence)):
        return True
    others = reading.words.text.replace(sentence, " ").lower() + own
    if any(found[0].lower() not in others for found in _RUNS.finditer(sentence)):
        return True
    if _of_another(_MACHINES, sentence, others) or _of_another(_NETWORKS, sentence, others):
        return True
    if re.search(r"\bthe same\b", sentence) and any(
        name[0].lower() not in own for name in _FRAMEWORKS.finditer(sentence)
    ):
        return True
    return any(_is_foreign(found[1], own) for found in _AGAINST.finditer(sentence))


def _of_another(names: re.Pattern[str], sentence: str, others: str) -> bool:
    """Whether a sentence names something of a kind, and all other words only others of that kind."""
    here, there = ({_plain(found[0]) for found in names.finditer(text)} for text in (sentence, others))
    return bool(here and there) and here.isdisjoint(there)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower()).rstrip("s")


def _own_words(reading: Reading) -> str:
    """What the table itself says, without its numbers."""
    headings = " ".join(column.heading for column in reading.columns)
    labels = " ".join(row[0] for row in reading.table.rows[:200] if row)
    return f"{reading.words.caption} {headings} {labels}".lower()


def _is_foreign(base: str, own: str) -> bool:
    """Whether what is compared with is neither fewer workers nor named in the table: "than TensorFlow", "over CPU"."""
    phrase = re.split(r"[,;:]\s|\b(?:on|with|for|at|in|using|by|when|and|while|but)\b", base, maxsplit=1)[0].strip(
        " .,'"
    )
    if not phrase:
        return False
    if re.match(r"v?\d+\.\d", phrase):  # a version
        return phrase not in own
    if _BASES.search(phrase) and not re.search(r"\bcpus?\b", phrase, re.IGNORECASE):
        return False
    words = [
        word for word in re.findall(r"[\w-]+", phrase.lower()) if word not in ("the", "a", "an", "our", "its", "of")
    ]
    return bool(words) and not any(re.search(rf"\b{re.escape(word)}\b", own) for word in words)
