"""Units as people print them, and what they are in seconds, bytes and parts of one."""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["time", "rate", "step_rate", "bytes", "bandwidth", "percent", "ratio", "count"]


@dataclass(frozen=True)
class Unit:
    """What is measured, and how many seconds, samples a second, bytes, bytes a second or parts of one it is."""

    kind: Kind
    factor: float
    name: str
    per: str | None = None
    """What a time is of, as far as the unit says: "epoch" or "step"."""


_TIMES = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "ms": 1e-3, "msec": 1e-3, "msecs": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "usec": 1e-6, "microseconds": 1e-6, "ns": 1e-9,
    "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_BYTES = {
    "b": 1.0, "byte": 1.0, "bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_SAMPLES = (
    "img|imgs|image|images|im|ims|sample|samples|seq|seqs|sequence|sequences|sentence|sentences|token|tokens|tok|toks|"
    "word|words|wps|example|examples|ex|frame|frames|record|records|item|items|queries|pairs|rays|atoms|points|mels"
)
_STEPS = "it|its|iter|iters|iteration|iterations|step|steps|batch|batches|updates"
_PER = r"\s*(?:/|per|p)\s*"
_SECOND = r"(?:s|sec|secs|second|seconds)"
_RATE = re.compile(rf"(?P<scale>[km])?\s?(?P<what>{_SAMPLES}){_PER}{_SECOND}")
_STEP_RATE = re.compile(rf"(?:{_STEPS}){_PER}{_SECOND}")
_TIME_OF = re.compile(rf"(?P<unit>[a-zµμ]+){_PER}(?P<of>epochs?|{_STEPS})")
_BYTE_RATE = re.compile(rf"(?P<unit>[kmgt]?i?b|bytes){_PER}{_SECOND}")
_BIT_RATE = re.compile(rf"(?P<unit>[kmgt]?(?:bit|b))(?:its?)?(?:{_PER}{_SECOND}|ps)")
_UNDERLINED = re.compile(rf"(?:{_SAMPLES})[ _](?:s|sec)")
"""As in img_s, the name of a column in a file."""
_ANY_RATE = re.compile(
    rf"(?P<scale>[km])?\s?(?P<what>(?!\w*(?:flop|bit|byte|epoch|meter|ops\b|cycle))[a-z]{{4,}}s){_PER}{_SECOND}"
)
"""Other things that are counted, in plural: slices, graphs, requests."""
_SHORT_RATES = ("ips", "fps", "wps", "tps", "sps")


def unit_of(text: str) -> Unit | None:
    """The unit that a word or two name; None where they name none."""
    words = re.sub(r"\s+", " ", text.strip().strip("()[]").strip())
    small = words.lower()
    if small in ("%", "percent", "pct", "per cent"):
        return Unit("percent", 0.01, "%")
    if small in ("×", "x", "times"):
        return Unit("ratio", 1.0, "×")
    if small in _TIMES:
        return Unit("time", _TIMES[small], small)
    size = Unit("bytes", _BYTES[small], words) if small in _BYTES and small != "b" else None
    return _per_something(words, small) or _of_bytes(words, small) or size


def _per_something(words: str, small: str) -> Unit | None:
    """Seconds per step, samples per second, steps per second."""
    if (found := _TIME_OF.fullmatch(small)) is not None and found["unit"] in _TIMES:
        return Unit("time", _TIMES[found["unit"]], words, "epoch" if found["of"].startswith("epoch") else "step")
    if (found := _RATE.fullmatch(small)) is not None:
        return Unit("rate", {"k": 1e3, "m": 1e6}.get(found["scale"] or "", 1.0), words)
    if small in _SHORT_RATES or _UNDERLINED.fullmatch(small):
        return Unit("rate", 1.0, words)
    if _STEP_RATE.fullmatch(small) is not None:
        return Unit("step_rate", 1.0, words)
    found = _ANY_RATE.fullmatch(small)
    return Unit("rate", {"k": 1e3, "m": 1e6}.get(found["scale"] or "", 1.0), words) if found is not None else None


def _of_bytes(words: str, small: str) -> Unit | None:
    """Bytes or bits a second: "GB/s" is bytes, "Gb/s" and "Gbps" are bits, and only the letter tells."""
    if (found := _BIT_RATE.fullmatch(small)) is not None and ("bit" in small or re.search(r"[kKMGT]b", words)):
        return Unit("bandwidth", _BITS[found["unit"]] / 8, words) if found["unit"] in _BITS else None
    found = _BYTE_RATE.fullmatch(small) or re.fullmatch(r"(?P<unit>[kmgt]i?b)ps", small)
    return Unit("bandwidth", _BYTES[found["unit"]], words) if found is not None else None


_IN_WORDS = re.compile(r"[(\[]([^()\[\]]*)[)\]]|\bin ([a-zA-Zµμ/]+(?: per second)?)(?![\w-])")


def units_said(caption: str) -> list[Unit]:
    """The units of a caption, in brackets or after "in": of all numbers whose heading has none."""
    found = []
    for match in _IN_WORDS.finditer(caption):
        units = map(unit_of, re.split(r"[,;]", match[1] or match[2]))
        found += [unit for unit in units if unit is not None and unit.kind in ("time", "bytes", "bandwidth", "rate")]
    return found


def unit_in(heading: str) -> Unit | None:
    """The unit of a column: in brackets, after a comma or at the end, as in "Time (sec)", "time, s", "images/s"."""
    for inside in re.findall(r"[(\[]([^()\[\]]*)[)\]]", heading):
        for part in re.split(r"[,;]", inside):
            if (unit := unit_of(part)) is not None:
                return unit
    bare = re.sub(r"[(\[][^()\[\]]*[)\]]", " ", heading).strip()
    pieces = [bare, *re.split(r"[,;:|]", bare)[1:], *re.findall(r"\bin ([\w/ ]+)$", bare)]
    words = re.sub(r"\b(?:p\d\d|mean|avg|median)$", "", bare.replace("_", " ").strip()).split()
    pieces += [" ".join(words[-count:]) for count in (3, 2, 1) if len(words) >= count]
    for piece in pieces:
        if len(bare) == 1 and bare != heading.strip():
            break  # S(p) is no time in seconds
        unit = unit_of(piece)
        if unit is not None and not (unit.name in ("x", "s", "h") and piece is not bare and len(words) == 1):
            return unit
    found = re.search(rf"\b(?:{_SAMPLES}|{_STEPS})\s?(?:/|per)\s?{_SECOND}\b", bare.lower())
    return unit_of(found.group(0)) if found else None
