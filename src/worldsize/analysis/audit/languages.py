"""Words of headings in other languages than English, as English ones."""

import re

_WORDS = (
    (r"\banzahl(?: der)?\b|\bnombre (?:de |d['’])|\bn[úu]mero de\b|数量", " number of "),
    (r"节点\s?数?", " nodes "),
    (r"(?:显卡|进程|卡)\s?数?|gpu\s?数", " GPUs "),
    (r"\bknoten\b|\bn(?:œ|oe)uds?\b|\bnodos?\b", "nodes"),
    (r"\bprozesse?\b|\bprocessus\b|\bprocesos\b", "processes"),
    (r"加速比|\bbeschleunigung\b|\bacc[ée]l[ée]ration\b|\baceleraci[óo]n\b", " speedup "),
    (r"效率|\b\w*effizienz\b|\befficacit[ée]\b|\beficiencia\b", " efficiency "),
    (r"吞吐[量率]?|\bdurchsatz\b|\bd[ée]bit\b", " throughput "),
    (r"时间|\b(?:lauf)?zeit\b|\bdauer\b|\btemps\b|\bdur[ée]e\b|\btiempo\b", " time "),
    (r"\bepochen?\b|\b[ée]poques?\b|\b[ée]pocas?\b", "epoch"),
    (r"\bschritte?\b|\b[ée]tapes?\b|\bit[ée]rations?\b|\bpasos?\b", "step"),
    (r"\bsekunden?\b|\bsecondes?\b|\bsegundos?\b", "seconds"),
    (r"\bbilder\b|\bim[áa]genes\b", "images"),
    (r"\bstapelgr(?:ö|oe)(?:ß|ss)e\b|\btaille (?:de|du) (?:lot|batch)\b", "batch size"),
    (r"\bgenauigkeit\b", "accuracy"),
    (r"\b(?:pro|je|par|por)\s+(?=epoch|step|gpu|nodes?\b|worker|process|seconds)", "per "),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), english) for pattern, english in _WORDS)


def in_english(text: str) -> str:
    """The text with the words that a scaling table is headed with in Chinese, French, German and Spanish in English."""
    for pattern, english in _COMPILED:
        text = pattern.sub(english, text)
    return text
