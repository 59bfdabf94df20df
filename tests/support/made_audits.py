"""Documents as people publish them, audited: a line of words and a table of Markdown make one."""

from made_hostile import ATTEMPTS
from worldsize.analysis.audit.answer import Audit, audit
from worldsize.analysis.audit.overrides import Overrides
from worldsize.documents.read import read

MADE_UP = """# Scaling of a small network on our cluster

ResNet-18 on CIFAR-10 in fp32, batch size 128 per GPU.

Table 1: time of an epoch

| GPUs | Time (s) | Speedup | Efficiency |
|---|---|---|---|
| 1 | 40.0 | 1.00 | 100 % |
| 2 | 22.2 | 1.80 | 90 % |
| 4 | 12.9 | 3.10 | 87 % |
| 8 | 9.0 | 4.44 | 56 % |
"""
"""One wrong number: 3.10 ÷ 4 is 78 %."""
SOUND = MADE_UP.replace("87 %", "78 %")


def audited(text: str, overrides: Overrides | None = None, *, format: str | None = "markdown") -> Audit:
    """The audit of a text."""
    return audit(read("-", text=text, format=format), overrides)


def table(rows: str, words: str = "") -> str:
    """A document from "GPUs, Time (s) / 1, 40 / 2, 25": words, then a table of Markdown, or several between " // "."""
    if " // " in rows:
        return "\n\n".join(table(each, words if place == 0 else "") for place, each in enumerate(rows.split(" // ")))
    cells = [[cell.strip() for cell in row.split(",")] for row in rows.split(" / ")]
    cells.insert(1, ["---"] * len(cells[0]))
    return f"{words}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in cells)


def found(text: str, overrides: Overrides | None = None) -> list[tuple[str, str]]:
    """Rule and verdict of each finding that is more than missing."""
    return [
        (finding.rule, str(finding.verdict))
        for finding in audited(text, overrides).findings
        if finding.verdict != "MISSING"
    ]


def rules(text: str, overrides: Overrides | None = None) -> set[str]:
    """The rules of all findings."""
    return {finding.rule for finding in audited(text, overrides).findings}


def hostile() -> Audit:
    """A document in which every text is an attempt to break out, and numbers are wrong so that findings quote it."""
    attempts = [_escaped(attempt) for attempt in _ATTEMPTS]
    header = "".join(f"<th>{each}</th>" for each in ("GPUs", "Time (s)", "Speedup", *attempts))
    rows = "".join(
        f"<tr>{''.join(f'<td>{each}</td>' for each in (n, time, speedup, *attempts))}</tr>"
        for n, time, speedup in (("1", "40.0", "1.00"), ("2", "20.0", "2.00"), ("4", "10.0", "3.20"))
    )
    said = "".join(f"<p>It is 5.6 times faster on 4 GPUs {each}</p>" for each in attempts)
    caption = f"Table 1 {''.join(attempts)}"
    return audited(f"<table><caption>{caption}</caption><tr>{header}</tr>{rows}</table>{said}", format="html")


_ATTEMPTS = ATTEMPTS[:-1]
"""Without the one of terminal commands, which the readers take off."""


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
