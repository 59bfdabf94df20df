"""From the settings of an audit to what its rules take, and to the table that was asked for."""

import difflib
import re
from dataclasses import replace

from worldsize.analysis.audit.answer import Audit, audit
from worldsize.analysis.audit.known import NETWORKS
from worldsize.analysis.audit.overrides import Overrides, names, stated
from worldsize.config import AuditSettings
from worldsize.documents.document import Document
from worldsize.errors import UnknownNameError, UsageError


def audit_as_asked(document: Document, settings: AuditSettings) -> Audit:
    """The audit of a document, of one table where one was asked for.

    Raises UsageError for an unknown network, quantity, unit or column, and for a missing table.
    """
    count = len(document.tables)
    if settings.table is not None and settings.table > count:
        there = "is 1 table" if count == 1 else f"are {count} tables"
        raise UsageError(f"--table {settings.table} was given; there {there} in {document.name}")
    overrides = overrides_of(settings)
    found = audit(document, overrides)
    _refuse_unused(found, overrides)
    return found if settings.table is None else only_table(found, settings.table - 1)


def overrides_of(settings: AuditSettings) -> Overrides:
    """What a person says; raises UsageError for an unknown network, quantity or unit."""
    for heading, said in settings.columns.items():
        stated(heading, said)
    network, classes = _network(settings.model) if settings.model else (None, None)
    return Overrides(
        columns=settings.columns,
        samples=settings.samples,
        network=network,
        classes=classes,
        batch_per={"local": "worker", "global": "total", None: None}[settings.batch],
        scaling=settings.scaling,
    )


def only_table(found: Audit, index: int) -> Audit:
    """What was found in one table, from 0, alone."""
    places = [place for place, reading in enumerate(found.readings) if reading.index == index]
    findings = [finding for finding in found.findings if finding.table == index]
    return replace(
        found,
        readings=tuple(found.readings[place] for place in places),
        findings=tuple(
            replace(finding, places=tuple(place for place in finding.places if place.table == index))
            for finding in findings
        ),
        passed=tuple(found.passed[place] for place in places),
    )


def _network(given: str) -> tuple[str, int | None]:
    """Name and classes of "resnet18:10"."""
    name, colon, classes = given.partition(":")
    plain = re.sub(r"[\s_-]", "", name.lower())
    if plain not in NETWORKS:
        raise UnknownNameError("model", name, NETWORKS, "Behind a colon stand its classes, as in resnet18:10.")
    if not colon:
        return plain, None
    if not (classes.isascii() and classes.isdecimal() and int(classes[:9]) > 0):
        raise UsageError(f"--model {given} was given; the classes are a whole number above 0, as in {plain}:10")
    return plain, int(classes)


def _refuse_unused(found: Audit, overrides: Overrides) -> None:
    """A heading that no table has is a slip of the pen."""
    headings = dict.fromkeys(
        column.heading for reading in found.readings for column in reading.columns if column.heading
    )
    for name in overrides.columns:
        used = any(
            names(name, reading.words.caption, column.heading.split(" · "))
            for reading in found.readings
            for column in reading.columns
        )
        if not used:
            near = difflib.get_close_matches(name, headings, n=1, cutoff=0.6)
            there = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(map(repr, headings))}."
            raise UsageError(f"--column {name}: no table has a column with this heading\n{there}")
