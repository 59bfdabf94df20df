"""docs/audit.md has a row for each rule, its examples fire, and its first example is what comes out."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from made_audits import audited, rules, table
from worldsize.analysis.audit import rules as package
from worldsize.analysis.audit.overrides import quantities
from worldsize.analysis.audit.rules import RULES, reporting

PAGE = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `(?P<id>[a-z-]+)` \| (?P<title>[^|]+) \| (?:“(?P<words>[^”]*)” )?`(?P<table>[^`]*)` \| (?P<source>[^|]+) \|$",
    re.MULTILINE,
)


class Row(NamedTuple):
    id: str
    title: str
    words: str
    table: str
    source: str


ROWS = [Row(**{name: text or "" for name, text in found.groupdict().items()}) for found in ROW.finditer(PAGE)]


def test_each_rule_has_its_row_in_its_order() -> None:
    ids = [rule.id for rule in RULES if rule.id != "missing"]
    missing = [f"missing-{name}" for name, *_ in reporting.SOUGHT]
    assert [row.id for row in ROWS] == [*ids, *missing, "missing-accuracy"]


def test_rows_say_what_rules_say() -> None:
    said = {row.id: (row.title, row.source) for row in ROWS}
    assert {rule.id: (rule.title, rule.source) for rule in RULES if rule.id != "missing"}.items() <= said.items()


def test_findings_carry_no_other_ids() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(package.__file__).parent.glob("*.py")]
    carried = {
        name for source in sources for name in re.findall(r'(?:Finding|_finding|_wrong)\(\s*"([a-z-]+)"', source)
    }
    assert len(carried) > 10
    assert carried <= {row.id for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_the_example_of_a_row_fires_its_rule(row: Row) -> None:
    assert row.id in rules(table(row.table, row.words))


def test_the_example_prints_what_the_page_says() -> None:
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, re.MULTILINE)
    [paper] = [re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks if "| GPUs |" in block]
    printed = " ".join(PAGE.split())
    findings = audited(paper).findings
    assert findings
    for finding in findings:
        for text in (finding.says, finding.printed, finding.recomputed, finding.changes):
            assert not text or " ".join(text.split()) in printed


def test_all_quantities_are_named() -> None:
    assert all(f"`{name}`" in PAGE for name in quantities().split(", "))
