"""What `worldsize audit` prints: how each table was read, what is wrong, and how much holds."""

from rich.console import Console
from rich.text import Text

from worldsize.analysis.audit.answer import Audit
from worldsize.analysis.audit.facts import Reading
from worldsize.analysis.audit.findings import Finding, Verdict
from worldsize.cli.console import lines, output
from worldsize.report.audit_reading import checks_text, not_understood, places_text, reading_sentence

COLOURS = {Verdict.FAIL: "bold red", Verdict.SUSPECT: "bold yellow", Verdict.EXPLAIN: "bold cyan"}
COLOURS[Verdict.MISSING] = "dim"
INDENT = "  "


def print_audit(found: Audit) -> None:
    """Print it to stdout."""
    console = output()
    for reading, checks in zip(found.readings, found.passed, strict=True):
        _say(console, reading_sentence(reading, checks))
        _ask_for_columns(console, reading)
    readings = {reading.index: reading for reading in found.readings}
    for finding in found.findings:
        if finding.verdict is not Verdict.MISSING:
            console.print()
            _print_finding(console, finding, readings)
    missing = [finding for finding in found.findings if finding.verdict is Verdict.MISSING]
    if missing:
        console.print()
    for finding in missing:
        where = "" if finding.table is None else f"table {finding.table + 1}: "
        said = " ".join(filter(None, [finding.says, finding.changes]))
        _say(console, f"{finding.verdict} {where}{said}", colour=finding.verdict)
    console.print()
    _say(console, summary(found), style="bold")


def summary(found: Audit) -> str:
    """The last line: how many findings of each kind, and how many checks hold."""
    counts = [(verdict, sum(each.verdict is verdict for each in found.findings)) for verdict in Verdict]
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    passed = sum(sum(checks.values()) for checks in found.passed)
    if found.holds and passed:
        held = f"All {passed} checks hold" if passed > 1 else "The one check holds"
        return f"{held}; {counted}." if counted else f"{held}."
    return f"{counted}; {checks_text(passed)}." if counted else f"{checks_text(passed).capitalize()}."


def _ask_for_columns(console: Console, reading: Reading) -> None:
    headings = not_understood(reading)
    if headings:
        named = ", ".join(f"“{heading}”" for heading in headings)
        flag = f'--column "{headings[0]}=QUANTITY:UNIT"'
        _say(console, f"{INDENT}Not understood: {named}. To say what it holds: {flag}", indent=INDENT * 2)


def _print_finding(console: Console, finding: Finding, readings: dict[int, Reading]) -> None:
    reading = None if finding.table is None else readings.get(finding.table)
    place = "" if finding.table is None else f", table {finding.table + 1}"
    cells = places_text(finding.places, reading) if reading is not None else ""
    _say(console, f"{finding.verdict} {finding.rule}{place}{f': {cells}' if cells else ''}", colour=finding.verdict)
    _say(console, f"{INDENT}{finding.says}", indent=INDENT)
    answers = {
        "printed": finding.printed,
        "recomputed": finding.recomputed,
        "fits": (finding.fits or "").removeprefix("fits "),
        "what it changes": finding.changes,
    }
    for name, said in answers.items():
        if said:
            _say(console, f"{INDENT}{name}: {said}", indent=INDENT * 2, dim=INDENT + name + ":")


def _say(
    console: Console, text: str, *, indent: str = INDENT, colour: Verdict | None = None, style: str = "", dim: str = ""
) -> None:
    """Text in lines that fit; the verdict that it begins with in its colour."""
    begins = text[: len(text) - len(text.lstrip())]
    broken = Text("\n".join(lines(text.lstrip(), console.width - len(begins), indent=indent[len(begins) :])), style)
    if begins:
        broken = Text(begins) + Text(f"\n{begins}").join(broken.split("\n"))
    if colour is not None:
        broken.stylize(COLOURS[colour], 0, len(colour))
    broken.stylize("dim", 0, len(dim))
    console.print(broken, soft_wrap=True)
