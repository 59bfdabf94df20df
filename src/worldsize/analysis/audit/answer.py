"""A whole document audited: every rule over every table, the worst first."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from worldsize.analysis.audit.facts import Reading, read_table
from worldsize.analysis.audit.findings import Checked, Finding, Page, Verdict
from worldsize.analysis.audit.overrides import Overrides
from worldsize.analysis.audit.replicas import with_replicas
from worldsize.analysis.audit.rules import RULES
from worldsize.analysis.audit.words import Words, words_of
from worldsize.documents.document import Document


@dataclass(frozen=True)
class Audit:
    """What was read, what was found, and how many checks held."""

    document: Document
    readings: tuple[Reading, ...]
    findings: tuple[Finding, ...]
    """The worst first; of equal ones in the order of the rules."""
    passed: tuple[dict[str, int], ...]
    """For each table: rule to the checks that held."""

    @property
    def worst(self) -> Verdict | None:
        """The verdict of the first finding; None where all holds."""
        return self.findings[0].verdict if self.findings else None

    @property
    def holds(self) -> bool:
        """No number is wrong, and none is suspect or unexplained; what is only missing does not count."""
        return all(finding.verdict is Verdict.MISSING for finding in self.findings)

    def of_table(self, table: int) -> Reading:
        """How a table, from 0, was read; of an audit of one table there is no other."""
        return next(reading for reading in self.readings if reading.index == table)


def audit(document: Document, overrides: Overrides | None = None) -> Audit:
    """Check all tables of a document (method.md §16)."""
    given = overrides or Overrides()
    words = [_said(each, given) for each in words_of(document)]
    readings = tuple(
        with_replicas(read_table(index, table, words[index], given)) for index, table in enumerate(document.tables)
    )
    page = Page(readings, document.text, given)
    findings: list[Finding] = []
    passed: list[dict[str, int]] = []
    for reading in readings:
        held: dict[str, int] = {}
        for rule, checked in _checked(reading, page):
            if checked.passed:
                held[rule] = checked.passed
            findings += checked.findings
        passed.append(held)
    order = list(Verdict)
    ranks = {rule.id: place for place, rule in enumerate(RULES)}
    unique = dict.fromkeys(_told_once(findings))
    found = sorted(
        unique, key=lambda each: (order.index(each.verdict), ranks.get(each.rule, len(ranks)), each.table or 0)
    )
    return Audit(document, readings, tuple(found), tuple(passed))


def _checked(reading: Reading, page: Page) -> Iterator[tuple[str, Checked]]:
    for rule in RULES:
        yield rule.id, rule.check(reading, page)


def _told_once(findings: list[Finding]) -> Iterator[Finding]:
    """Without what a ratio that is wrong would mean if it were right."""
    failed = [each for each in findings if each.rule in ("speedup", "efficiency") and each.verdict is Verdict.FAIL]
    wrong = {place for each in failed for place in each.places}
    for finding in findings:
        if finding.rule != "superlinear" or not wrong.issuperset(finding.places):
            yield finding


def _said(words: Words, given: Overrides) -> Words:
    """What a person says comes before what the document says."""
    return replace(
        words,
        samples=given.samples or words.samples,
        network=given.network or words.network,
        classes=given.classes or words.classes,
        batch_per=given.batch_per or words.batch_per,
        scaling=given.scaling or words.scaling,
        grows=words.grows or given.scaling == "weak",
    )
