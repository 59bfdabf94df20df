from pathlib import Path

import pytest

from made_audits import MADE_UP, SOUND, audited, hostile
from made_hostile import ATTEMPTS
from reading import Page
from worldsize.analysis.audit.asked import only_table
from worldsize.errors import OutputError
from worldsize.report.audit_page import MAX_LINKS, render_audit_page, write_audit_page
from worldsize.report.audit_parts import FIRST_ROWS, MAX_ROWS, headline
from worldsize.report.audit_text import audit_markdown


def page_of(text: str) -> Page:
    page = Page(render_audit_page(audited(text)))
    assert page.open == [], "every tag is closed"
    return page


def test_a_finding_and_its_cells_lead_to_each_other() -> None:
    page = page_of(MADE_UP)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {attributes["href"] for attributes in page.all("a")}
    assert {f"#{each}" for each in ids if each and each.startswith(("finding-1", "t1-"))} <= links
    assert {link.removeprefix("#") for link in links if link} <= ids
    marked = [attributes for attributes in page.all("td") if attributes.get("id")]
    assert [(each["id"], each["class"]) for each in marked] == [("t1-r3-c3", "right fail"), ("t1-r3-c4", "right fail")]


def test_a_mark_has_a_sign_and_a_name_beside_its_colour() -> None:
    page = page_of(MADE_UP)
    names = [attributes["aria-label"] for attributes in page.all("a") if attributes.get("class") == "mark"]
    assert names == ["FAIL, finding 1"] * 2
    assert "87 % ✗1" in page.text


def test_the_page_says_how_each_column_was_read_and_what_is_missing() -> None:
    text = page_of(MADE_UP).text
    assert "Time (s) epoch time s" in text
    assert "50,000 samples; 10,000 test samples; 10 classes; resnet18" in text
    assert "Not said: device and network." in text
    assert "speedup Speed-ups follow from times or rates 3 0" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MADE_UP, "1 check fails; "),
        (MADE_UP.replace("4.44", "5.44"), "2 checks fail; "),
        (SOUND, "All "),
        ("| Fruit | Colour |\n|---|---|\n| apple | red |\n", "No number could be checked."),
    ],
)
def test_the_headline_counts(text: str, said: str) -> None:
    audit = audited(text)
    assert headline(audit).startswith(said)
    assert headline(audit) in page_of(text).text
    assert headline(audit) in audit_markdown(audit)


def test_a_group_of_columns_is_one_heading() -> None:
    html = (
        "<table><tr><th rowspan=2>GPUs</th><th colspan=2>Batch 32</th></tr><tr><th>Time (s)</th><th>Speedup</th></tr>"
        "<tr><td>1</td><td>8.0</td><td>1.0</td></tr><tr><td>2</td><td>4.0</td><td>2.0</td></tr></table>"
    )
    page = Page(render_audit_page(audited(html, format="html")))
    groups = [each for each in page.all("th") if each.get("scope") == "colgroup"]
    assert [each["colspan"] for each in groups] == ["2"]


def test_a_long_table_shows_its_first_rows_and_those_with_findings() -> None:
    rows = "\n".join(f"| {n} | {1000 / n:.3f} | {n}.00 |" for n in range(1, MAX_ROWS + 50))
    text = f"| GPUs | Time (s) | Speedup |\n|---|---|---|\n{rows}\n".replace("| 150.00 |", "| 105.00 |")
    audit = audited(text)
    page = Page(render_audit_page(audit))
    assert f"{FIRST_ROWS + 1} of {MAX_ROWS + 49} rows" in page.text
    assert "t1-r150-c3" in {each.get("id") for each in page.all("td")}
    assert "105.00 **FAIL 1**" in audit_markdown(audit)


def test_a_finding_of_many_cells_links_to_some() -> None:
    rows = "\n".join(f"| 1 | {2**k} | 9.00 |" for k in range(MAX_LINKS + 4))
    text = f"CIFAR-10, one GPU\n\n| GPUs | Batch size | Epoch time (s) |\n|---|---|---|\n{rows}\n"
    [finding] = [each for each in audited(text).findings if each.rule == "flat-over-batch"]
    assert len(finding.places) > MAX_LINKS
    assert f"and {len(finding.places) - MAX_LINKS} more" in page_of(text).text


def test_what_a_stranger_wrote_stays_text() -> None:
    audit = hostile()
    page = Page(render_audit_page(audit))
    assert page.open == []
    assert not {"script", "img", "iframe", "svg", "object"} & {tag for tag, _ in page.tags}
    assert [name for _, attributes in page.tags for name in attributes if name.startswith("on")] == []
    assert all((attributes["href"] or "").startswith("#") for attributes in page.all("a"))
    for attempt in ATTEMPTS[:-1]:
        assert " ".join(attempt.split()) in page.text, "nothing is cut out of what was written"
    assert {"speedup", "claim"} <= {finding.rule for finding in audit.findings}, "findings quote it"


def test_one_table_alone_can_be_shown() -> None:
    both = audited(f"{MADE_UP}\nTable 2: the same again\n\n{MADE_UP[MADE_UP.index('|') :]}")
    second = only_table(both, 1)
    page = Page(render_audit_page(second))
    assert "table-1" not in {attributes.get("id") for _, attributes in page.tags}
    assert "t2-r3-c4" in {attributes.get("id") for _, attributes in page.tags}
    assert "- Table 2, Efficiency: 87 %" in audit_markdown(second)


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        write_audit_page(audited(SOUND), tmp_path / "file" / "audit.html")
    write_audit_page(audited(SOUND), tmp_path / "audit.html")
    assert (tmp_path / "audit.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_markdown_has_findings_tables_and_what_is_missing() -> None:
    text = audit_markdown(audited(MADE_UP))
    assert "### ✗ FAIL 1. The efficiency of N = 4 is printed as 87 %" in text
    assert "- Table 1, Efficiency: 87 %" in text
    assert "| 4 | 12.9 | 3.10 **FAIL 1** | 87 % **FAIL 1** |" in text
    assert "MISSING" in text
    assert "| Time (s) | epoch time | s | – |" in text
