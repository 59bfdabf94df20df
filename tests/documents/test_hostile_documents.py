"""What is damaged, or made to hold a reader up, gives a document or an error that says what is wrong."""

import random
from pathlib import Path

import pytest
from document_forms import FORMS, PUBLISHED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worldsize.documents.document import FORMATS, Document
from worldsize.documents.grid import MAX_CELLS
from worldsize.documents.read import read
from worldsize.errors import UsageError

SEED = 20
MUTATED = 2_000
NCCL = """# nThread 1 nGpus 2 minBytes 8 maxBytes 16
#  Rank  0 Group  0 Pid  100 on host device  0 [0x07] NVIDIA H100
#                                                     out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    40.11   26.14   26.14      0    40.52   25.88   25.88      0
     2097152        524288     float     sum      -1    55.01   38.12   38.12      0    55.20   37.99   37.99      0
# Avg bus bandwidth    : 32.03
"""
LOG = "1 GPU: 100 images/s\n2 GPUs: 190 images/s\n4 GPUs(2 nodes): 350 images/s\n"


def sane(document: Document) -> None:
    """Every row is as long as every other one, and all that is bold is there."""
    assert document.format in FORMATS
    for table in document.tables:
        assert table.rows
        assert len({len(row) for row in (*table.header, *table.rows)}) == 1
        assert all(y < len(table.rows) and x < len(table.rows[0]) for y, x in table.bold)
        assert all(cell == " ".join(cell.split()) for row in (*table.header, *table.rows) for cell in row)


def try_it(path: str, text: str | None = None) -> None:
    said = ""
    try:
        sane(read(path, text=text))
    except UsageError as error:
        said = str(error)
    assert len(said.split("\n")) <= 2


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A file with some of its bytes lost, doubled, changed or cut off."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at, size = chance.randrange(len(found) + 1), chance.choice((1, 1, 2, 5, 20, 80))
        kind = chance.randrange(5)
        if kind == 0:
            del found[at : at + size]
        elif kind == 1:
            found[at:at] = found[at : at + size] * chance.choice((1, 3))
        elif kind == 2 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif kind == 3:
            found[at:at] = chance.choice(
                (b"|", b"{", b"}", b"\\", b"<td", b"\n\n", b"&", b'"', b",", b"\t", b"```", b"$")
            )
        else:
            del found[max(at, len(found) // 3) :]
    return bytes(found)


def test_damaged_files(tmp_path: Path) -> None:
    originals = [(path, form(table)) for path, form in FORMS.values() for table in list(PUBLISHED.values())[:3]]
    originals += [("a.txt", NCCL), ("a.log", LOG)]
    chance = random.Random(SEED)
    for turn in range(MUTATED):
        name, text = originals[turn % len(originals)]
        file = tmp_path / (name if turn % 3 else "a")
        file.write_bytes(mutated(text.encode(), chance))
        try_it(str(file))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["a.md", "a.html", "a.csv", "a.tex", "a.txt", "a.json", "-"]),
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "|",
                    "---",
                    "|-|-|",
                    "\n",
                    "\n\n",
                    "1.0",
                    "25",
                    "GPUs",
                    " ",
                    "  ",
                    "\t",
                    ",",
                    ";",
                    "<table>",
                    "<td>",
                    "**",
                ]
            ),
            st.sampled_from(
                ["\\begin{tabular}{l}", "\\\\", "&", "\\hline", "{", "}", "$", "^", "%", "#", '"', "[", "]"]
            ),
            st.text(max_size=8),
        ),
        max_size=60,
    ),
)
def test_any_text(path: str, pieces: list[str]) -> None:
    try_it(path, "".join(pieces))


MANY = 20_000
HELD_UP = {
    "md brackets": ("a.md", "[" * MANY),
    "md quotes": ("a.md", ">" * MANY),
    "md pipes": ("a.md", "|" * MANY + "\n" + "|-" * MANY),
    "md open tables": ("a.md", "<table>\n\n" * (MANY // 4)),
    "html deep": ("a.html", "<div>" * MANY),
    "html tables": ("a.html", "<table><tr><td>" * MANY),
    "html bold": ("a.html", "<table><tr><td>" + "<b>" * MANY),
    "html columns": ("a.html", "<table><tr>" + "<td colspan=1000000 rowspan=1000000>1" * MANY),
    "html rows": ("a.html", "<table>" + "<tr><td rowspan=1000>1" * MANY),
    "csv commas": ("a.csv", "," * MANY),
    "csv quotes": ("a.csv", 'a,b\n1,"2\n' * MANY),
    "tex braces": ("a.tex", "{" * MANY),
    "tex arguments": ("a.tex", "\\textbf{" * MANY),
    "tex captions": ("a.tex", "\\begin{table}" + "\\caption{" * MANY),
    "tex tables": ("a.tex", "\\begin{tabular}{" * MANY),
    "tex columns": ("a.tex", "\\begin{tabular}{l}" + "\\multicolumn{999}{c}{1}&" * MANY),
    "tex rows": ("a.tex", "\\begin{tabular}{l}" + "\\multirow{999}{*}{1}\\\\" * MANY),
    "tex macros": ("a.tex", "\\def\\a{" + "\\b" * 99 + "}\\def\\b{" + "\\a" * 99 + "}" + "\\a" * 99),
    "text blanks": ("a.txt", " " * MANY),
    "text bars": ("-", "|" * MANY + "\n|" * 99),
    "text strokes": ("-", "-" * MANY + "x"),
    "text ranks": ("-", "# size count " * MANY + "\nbusbw"),
    "json deep": ("a.json", "[" * MANY),
    "json keys": ("a.json", "[" + ",".join(f'{{"a{at}":1}}' for at in range(MANY)) + "]"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HELD_UP)
def test_nothing_holds_it_up(name: str) -> None:
    try_it(*HELD_UP[name])


@pytest.mark.parametrize("path", ["a.csv", "a.html", "a.json", "a.tex"])
def test_too_many_entries_are_said_to_be(path: str) -> None:
    count = 600
    row = [str(at) for at in range(count)]
    text = {
        "a.csv": "\n".join([",".join(row)] * count),
        "a.html": "<table>" + f"<tr><td>{'<td>'.join(row)}" * count,
        "a.json": "[" + ",".join(["[" + ",".join(row) + "]"] * count) + "]",
        "a.tex": "\\begin{tabular}{l}" + f"{'&'.join(row)}\\\\\n" * count,
    }[path]
    assert count * count > MAX_CELLS
    with pytest.raises(UsageError, match="200,000 entries"):
        read(path, text=text)
