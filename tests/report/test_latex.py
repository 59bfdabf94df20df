"""Tables for LaTeX: what is special there shows as it is, and the layout is that of the table."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from made_runs import make_run, messy_cells
from worldsize.analysis.study import analyse
from worldsize.report.contents import sections
from worldsize.report.latex import latex, to_latex
from worldsize.report.tables import Column, Table, estimate, integer, interval_keys, number, shown, text
from worldsize.results.folder import load_run
from worldsize.results.records import Estimate

TABLE = Table(
    "made",
    "100 % made & escaped",
    (
        Column("Cell", ("cell",), align="left"),
        Column("Step time", interval_keys("step_s"), "ms"),
        Column("Of all", ("share",), "%"),
        Column("State", ("state",), align="prose"),
    ),
    (
        (
            text("ddp_w2"),
            estimate(Estimate(value=0.51234, low=0.5, high=0.52, samples=4), 1e3),
            integer(1024),
            text("a & b"),
        ),
        (text("[5, *]"), estimate(None), integer(None), text(None)),
    ),
    "A note: 2(N−1)/N·S.",
)
ENGINES = ("pdflatex", "lualatex", "xelatex", "tectonic")


def test_booktabs_with_units_in_the_heading_and_numbers_to_the_right() -> None:
    assert to_latex(TABLE).splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        r"  \caption{100 \% made \& escaped}",
        r"  \label{tab:made}",
        r"  \begin{tabular}{lrrp{0.60\linewidth}}",
        r"    \toprule",
        r"    Cell & Step time (ms) & Of all (\%) & State \\",
        r"    \midrule",
        r"    ddp\_w2 & 512 {[}500, 520] & 1,024 & a \& b \\",
        r"    {[}5, {*}] & – & – & – \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"  \par\smallskip\raggedright\footnotesize A note: 2(N$-$1)/N·S.",
        r"\end{table}",
    ]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("a_b^c~d", r"a\_b\textasciicircum{}c\textasciitilde{}d"),
        ("50 % of #1 for $2 & more", r"50 \% of \#1 for \$2 \& more"),
        ("<script>|", r"\textless{}script\textgreater{}\textbar{}"),
        ("--resume ---x", "-{}-resume -{}-{}-x"),
        ('it\'s "quoted" `so`', r"it\textquotesingle{}s \char34{}quoted\char34{} \textasciigrave{}so\textasciigrave{}"),
        ("t₁(b) ≤ α − β", r"t$_1$(b) $\le$ $\alpha$ $-$ $\beta$"),
        ("red\x1b[0m\x00", "red {[}0m "),
        ("Zürich × 2", "Zürich × 2"),
    ],
)
def test_what_is_special_is_escaped(given: str, written: str) -> None:
    assert latex(given) == written


def test_no_text_is_left_that_latex_would_obey(tmp_path: Path) -> None:
    """Every special sign outside of the commands of the table itself is escaped, in the worst study there is."""
    for section in sections(analyse(load_run(make_run(tmp_path, messy_cells())))):
        for table in section.tables:
            rows = [line for line in to_latex(table).splitlines() if line.endswith(r"\\")]
            assert len(rows) == 1 + len(table.rows)
            for row in rows:
                cells = row.strip().removesuffix(r"\\").split(" & ")
                assert len(cells) == len(shown(table).columns)
                bare = re.sub(r"\$[^$]*\$|\\[a-zA-Z]+\d*\{\}|\\.|\{\[\}|\{\*\}|-\{\}", "", " ".join(cells))
                assert not set(bare) & set("\\{}$&#%_^~<>|\"'`*"), row


def test_columns_that_say_nothing_are_left_out() -> None:
    columns = (Column("Cell", ("cell",)), Column("busbw", ("busbw",), between_workers=True, note="busbw = …"))
    assert "busbw" not in to_latex(Table("made", "Made", columns, ((text("a"), number(None)),)))


def test_all_tables_of_a_messy_study_compile(tmp_path: Path) -> None:
    engine = next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        pytest.skip(f"none of {', '.join(ENGINES)} is here")
    contents = sections(analyse(load_run(make_run(tmp_path / "run", messy_cells()))))
    tables = "\\clearpage\n".join(to_latex(table) for section in contents for table in section.tables if table.rows)
    document = tmp_path / "tables.tex"
    head, end = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n", "\\end{document}\n"
    document.write_text(head + tables + end, encoding="utf-8")
    flags = () if engine == "tectonic" else ("-interaction=nonstopmode", "-halt-on-error")
    done = subprocess.run([engine, *flags, document.name], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
