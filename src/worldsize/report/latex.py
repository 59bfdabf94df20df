"""A table for LaTeX: booktabs, units in the headings, numbers to the right, names that users gave show as they are."""

import re

from worldsize.report.tables import Column, Table, shown

PROSE_WIDTH = 0.6
"""Share of the line that all columns of prose have together."""

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    # At the start of a row these two would be an argument of the command that ended the row before.
    "[": "{[}",
    "*": "{*}",
    "\N{MINUS SIGN}": r"$-$",
    "→": r"$\rightarrow$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≈": r"$\approx$",
    "√": r"$\surd$",
    "‖": r"$\|$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "…": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
    **{sign: f"$_{number}$" for number, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}
"""Signs that mean something to LaTeX, and those that pdfLaTeX knows in mathematics only."""
_SPECIAL = re.compile("|".join(map(re.escape, _SIGNS)))
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""LaTeX stops at most of them."""


def to_latex(table: Table) -> str:
    """A `table` environment with caption, label and remarks; its document needs the package booktabs."""
    table = shown(table)
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex(table.title)}}}",
        rf"  \label{{tab:{table.id}}}",
        rf"  \begin{{tabular}}{{{_layout(table.columns)}}}",
        r"    \toprule",
        _row([column.heading for column in table.columns]),
        r"    \midrule",
        *(_row([entry.plain for entry in row]) for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        *([rf"  \par\smallskip\raggedright\footnotesize {latex(table.remarks)}"] if table.remarks else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex(text: str) -> str:
    """Text as LaTeX shows it; two hyphens of a flag stay two."""
    return re.sub("-(?=-)", "-{}", _SPECIAL.sub(lambda found: _SIGNS[found[0]], _CONTROL.sub(" ", text)))


def _row(cells: list[str]) -> str:
    return f"    {' & '.join(map(latex, cells))} \\\\"


def _layout(columns: tuple[Column, ...]) -> str:
    """`l`, `r`, and a column of broken lines for prose."""
    width = PROSE_WIDTH / max(1, sum(column.align == "prose" for column in columns))
    kinds = {"left": "l", "right": "r", "prose": rf"p{{{width:.2f}\linewidth}}"}
    return "".join(kinds[column.align] for column in columns)
