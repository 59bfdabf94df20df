"""An audit as one JSON object (docs/json.md): tables, rows and columns are counted from 1; row 0 is the heading."""

from pathlib import Path
from typing import Any

from worldsize.analysis.audit.answer import Audit
from worldsize.analysis.audit.facts import Place, Reading
from worldsize.analysis.audit.findings import Finding
from worldsize.report.audit_parts import entry
from worldsize.report.audit_reading import heard


def content(found: Audit, page: Path | None = None) -> dict[str, Any]:
    """All that was read and found."""
    readings = {reading.index: reading for reading in found.readings}
    return {
        "document": {"name": found.document.name, "format": found.document.format},
        "page": str(page) if page else None,
        "holds": found.holds,
        "tables": [_table(reading, checks) for reading, checks in zip(found.readings, found.passed, strict=True)],
        "findings": [_finding(finding, readings) for finding in found.findings],
    }


def _table(reading: Reading, checks: dict[str, int]) -> dict[str, Any]:
    columns = [
        {
            "heading": each.heading,
            "quantity": each.quantity.value if each.quantity else None,
            "unit": each.unit,
            "per": each.per,
        }
        for each in heard(reading)
    ]
    caption, line = reading.words.caption, reading.table.line
    return {
        "table": reading.index + 1,
        "caption": caption or None,
        "line": line or None,
        "columns": columns,
        "checks": checks,
    }


def _finding(finding: Finding, readings: dict[int, Reading]) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "verdict": finding.verdict.value,
        "table": None if finding.table is None else finding.table + 1,
        "cells": [_cell(place, readings) for place in finding.places if place.table in readings],
        "says": finding.says,
        "printed": finding.printed,
        "recomputed": finding.recomputed,
        "fits": finding.fits,
        "changes": finding.changes,
    }


def _cell(place: Place, readings: dict[int, Reading]) -> dict[str, Any]:
    return {
        "table": place.table + 1,
        "row": place.row + 1,
        "column": place.column + 1,
        "text": entry(readings[place.table], place),
    }
