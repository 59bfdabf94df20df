"""The words of a heading line put over the columns below it."""

import re
from collections.abc import Iterator, Sequence

from worldsize.documents.columns import Field, Span, fields
from worldsize.documents.numbers import COUNTED, is_number

_TIES = frozenset(
    ("per", "of", "in", "for", "/", "&", "and", "+", "=", "vs", "vs.", "by", "with", "w/", "w/o", "÷", "·")
)
"""Words that tie the word before to the word after."""
_OPENERS = frozenset(("#", "no.", "num", "num.", "number", "nr.", "avg", "avg.", "mean", "max", "min", "total", "peak"))
"""Words that begin a name."""
_SHORTENED = frozenset(
    [
        "comp.",
        "comm.",
        "comms.",
        "accum.",
        "effic.",
        "optim.",
        "param.",
        "util.",
        "sync.",
        "iter.",
        "exec.",
        "thrpt.",
        "thput.",
        "perf.",
    ]
)
"""Names cut short, whose point ends no sentence."""
_PAIRS = {
    "size": ("batch", "minibatch", "mini-batch", "message", "model", "world", "cluster"),
    "up": ("speed",),
    "time": (
        *("epoch", "step", "training", "train", "compute", "comm", "comm.", "communication", "wall", "iteration"),
        *("run", "elapsed", "execution", "all-reduce", "allreduce", "forward", "backward", "computation", "wall-clock"),
    ),
    "efficiency": ("scaling", "parallel", "weak", "strong"),
    "utilization": ("bandwidth", "gpu", "memory"),
    "utilisation": ("bandwidth", "gpu", "memory"),
    "bandwidth": ("bus", "alg", "algorithm", "network", "all-reduce", "allreduce"),
    "batch": ("global", "local", "mini", "micro", "effective"),
    "scaling": ("weak", "strong"),
    "memory": ("gpu",),
    "accuracy": ("top-1", "top-5", "test", "val", "validation", "final"),
    "factor": ("scaling", "speedup"),
    "cost": ("communication", "comm"),
}
"""Second words of names, with the first ones."""
_CAPTION = re.compile(r"(?:table|tab\.|figure|fig\.|listing|appendix)\s*[\divxa-f]+\b", re.IGNORECASE)


def may_be_heading(line: str) -> bool:
    """Whether a line is neither a caption nor prose."""
    words = line.split()
    if not words or len(words) > 60 or _CAPTION.match(line.strip()):
        return False
    if any("." in word and is_number(word) for word in words):  # measured values
        return False
    if len(re.findall(r"\S {2,}(?=\S)", line)) >= 2:  # set in columns: "Comm. time" is no end of a sentence
        return not words[-1].endswith(":")
    known = _OPENERS | _TIES | _SHORTENED
    ends = [word for word in words if word[-1] in ".,;!?" and word.lower() not in known and len(word) > 4]
    return not ends and not words[-1].endswith(":")


def names(line: str, count: int, spans: Sequence[Span] | None, corner: bool) -> list[str] | None:
    """One name for each of `count` columns; None where the line names others.

    With `corner` the first column may be without a name: it holds the names of the rows.
    """
    parts = fields(line)
    texts = [part.text for part in parts]
    over_first = spans is None or not parts or parts[0].start < spans[0][1]
    if len(parts) == count:
        return texts
    if len(parts) == count - 1 and count > 1 and spans and not over_first:
        return ["", *texts]
    ways = list(_ways(line, count))
    for words in ways:
        if len(words) == count:
            return words
    if corner and count > 2:
        for words in (*ways, *_ways(line, count - 1)):
            if len(words) == count - 1:
                return ["", *words]
    return _over(parts, spans) if spans and len(parts) > 1 else None


def groups(line: str, count: int, spans: Sequence[Span] | None) -> list[str] | None:
    """The name of the group that each of `count` columns is in; None where the line names none."""
    parts = fields(line)
    if spans and len(parts) > 0 and (len(parts) > 1 or parts[0].start >= spans[0][1]):
        return _shared([part.text for part in parts], count, parts[0].start < spans[0][1]) or _nearest(parts, spans)
    for words in _ways(line, count):
        if not all(word[0].isupper() or any(letter.isdigit() for letter in word) for word in words):
            continue
        for over_first in (False, True):
            if len(words) > 1 + over_first and (found := _shared(words, count, over_first)):
                return found
    return None


def _shared(words: Sequence[str], count: int, over_first: bool) -> list[str] | None:
    """Names that each stand over equally many columns, the first column apart."""
    first, rest = ([words[0]], words[1:]) if over_first else ([""], words)
    if not rest or (count - 1) % len(rest) or len(rest) == count - 1:
        return None
    return [*first, *(word for word in rest for _ in range((count - 1) // len(rest)))]


def _nearest(parts: Sequence[Field], spans: Sequence[Span]) -> list[str]:
    """For each column the name whose middle is nearest to its own; none for a first column left of all names."""
    found = []
    for at, (start, end) in enumerate(spans):
        if at == 0 and parts[0].start >= end:
            found.append("")
        else:
            found.append(min(parts, key=lambda part: abs(part.start + part.end - start - end)).text)
    return found


def _over(parts: Sequence[Field], spans: Sequence[Span]) -> list[str] | None:
    """For each column the names that stand over it; None where a name stands over none or several."""
    found = [""] * len(spans)
    for part in parts:
        hit = [at for at, (start, end) in enumerate(spans) if part.start < end and part.end > start]
        if len(hit) != 1:
            return None
        found[hit[0]] = f"{found[hit[0]]} {part.text}".strip()
    return found if sum(map(bool, found)) * 2 > len(found) else None


def _ways(line: str, count: int) -> Iterator[list[str]]:
    """Ways to take the words of a line as names, the likelier first."""
    words = line.split()
    yield _tied(words, loose=False)
    yield words
    for first in (0, 1):
        if repeated := _repeated(words[first:], count - first):
            yield [*words[:first], *repeated]
    yield _tied(words, loose=True)


def _repeated(words: Sequence[str], count: int) -> list[str] | None:
    """Words as equally many for each name, if one word is in all of them: batch 32 batch 128."""
    size, over = divmod(len(words), count) if count > 1 else (0, 0)
    if size < 2 or over:
        return None
    parts = [words[at : at + size] for at in range(0, len(words), size)]
    return (
        [" ".join(part) for part in parts]
        if any(len(set(column)) == 1 for column in zip(*parts, strict=True))
        else None
    )


def _tied(words: Sequence[str], loose: bool) -> list[str]:
    """Words joined to names; `loose` joins also a small letter to the word before, if names begin with a capital."""
    capitals = loose and any(word[0].isupper() for word in words)
    found: list[str] = []
    before = ""
    is_open = False
    for word in words:
        small = capitals and word[0].islower()
        if found and (is_open or small or _is_tied(before, word)):
            found[-1] += f" {word}"
        else:
            found.append(word)
        is_open = _opens(found[-1])
        before = word
    return found


def _is_tied(before: str, word: str) -> bool:
    small, old = word.lower(), before.lower()
    return (
        word[0] in "(["
        or small in _TIES
        or old in _TIES
        or old in _OPENERS
        or before[-1] in ":/"
        or word[0] == "/"
        or (is_number(before) and COUNTED.match(small) is not None)
        or old in _PAIRS.get(small.rstrip(":"), ())
    )


def _opens(text: str) -> bool:
    return text.count("(") > text.count(")") or text.count("[") > text.count("]")
