"""A generated study as text: Markdown, HTML, CSV, LaTeX, or columns under each other."""

import csv
import html
import io
import random
from collections.abc import Callable
from itertools import groupby

from audit_truth import Grid, Study

BOLD_FORMATS = ("markdown", "html", "latex")
_SPECIAL = {"\\": r"\textbackslash{}", "%": r"\%", "#": r"\#", "_": r"\_", "&": r"\&", "$": r"\$", "^": r"\^{}"}
_SPECIAL |= {"×": r"$\times$", "±": r"$\pm$", "−": r"$-$"}


def printed(study: Study, kind: str, rng: random.Random) -> str:
    """The whole study: its words, its tables, and the words below."""
    make: Callable[[Study, random.Random], str] = FORMATS[kind]
    return make(study, rng)


def _markdown(study: Study, rng: random.Random) -> str:
    blocks = [f"## {rng.choice(('Results', 'Scaling', 'Benchmark'))}", *study.before]
    for grid in study.tables:
        head, rows = _cells(grid, lambda text: f"**{text}**")
        line = ["|" + "|".join(f" {cell.replace('|', '/')} " for cell in row) + "|" for row in [head, *rows]]
        line.insert(1, "|" + "|".join(rng.choice(("---", "---:", ":---:")) for _ in head) + "|")
        blocks += [grid.caption] if grid.caption else []
        blocks.append("\n".join(line))
    return "\n\n".join([*blocks, *study.after]) + "\n"


def _html(study: Study, rng: random.Random) -> str:
    lines = ["<html><body>", *(f"<p>{html.escape(text)}</p>" for text in study.before)]
    for grid in study.tables:
        lines.append("<table>")
        if grid.caption:
            lines.append(f"<caption>{html.escape(grid.caption)}</caption>")
        head, rows = _cells(grid, lambda text: f"\0{text}\1")
        if _grouped(grid):
            lines.append("<tr>" + "".join(_spanning(name, count) for name, count in _groups(grid)) + "</tr>")
            head = [column.head for column in grid.columns]
        lines.append("<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>")
        lines += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
        lines.append("</table>")
    lines += [*(f"<p>{html.escape(text)}</p>" for text in study.after), "</body></html>"]
    tag = rng.choice(("b", "strong"))
    return "\n".join(lines).replace("\0", f"<{tag}>").replace("\1", f"</{tag}>") + "\n"


def _spanning(name: str, count: int) -> str:
    return f'<th colspan="{count}">{html.escape(name)}</th>' if count > 1 else f"<th>{html.escape(name)}</th>"


def _csv(study: Study, rng: random.Random) -> str:
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in study.before)
    writer = csv.writer(text, delimiter=rng.choice((",", ",", ";", "\t")), lineterminator="\n")
    for grid in study.tables:
        head, rows = _cells(grid, str)
        text.write(f"# {grid.caption}\n" if grid.caption else "")
        # A heading that begins like the comments above it would be read as one, and rightly.
        writer.writerows(
            [[cell.removeprefix("# ") for cell in head], *([row[0].removeprefix("# "), *row[1:]] for row in rows)]
        )
        text.write("\n")
    text.writelines(f"# {line}\n" for line in study.after)
    return text.getvalue()


def _latex(study: Study, rng: random.Random) -> str:
    top, middle, bottom = (r"\toprule", r"\midrule", r"\bottomrule") if rng.random() < 0.7 else (r"\hline",) * 3
    inside = rng.random() < 0.4 and len(study.tables) == 1
    blocks = [] if inside else [_tex(text) for text in study.before]
    for grid in study.tables:
        caption = _tex(" ".join(study.before)) if inside else _tex(grid.caption or "Results.")
        head, rows = _cells(grid, lambda text: f"\0{text}\1")
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", top]
        if _grouped(grid):
            lines.append(" & ".join(_multicolumn(name, count) for name, count in _groups(grid)) + r" \\")
            head = [column.head for column in grid.columns]
        lines += [" & ".join(_tex(cell) for cell in head) + r" \\", middle]
        lines += [" & ".join(_tex(cell) for cell in row) + r" \\" for row in rows]
        blocks.append("\n".join([*lines, bottom, r"\end{tabular}", r"\end{table}"]))
    return "\n\n".join([*blocks, *(_tex(text) for text in study.after)]) + "\n"


def _multicolumn(name: str, count: int) -> str:
    return rf"\multicolumn{{{count}}}{{c}}{{{_tex(name)}}}" if count > 1 else _tex(name)


def _tex(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text).replace("\0", r"\textbf{").replace("\1", "}")


def _text(study: Study, rng: random.Random) -> str:
    blocks = list(study.before)
    for grid in study.tables:
        head, rows = _cells(grid, str)
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        left = rng.random() < 0.3
        lines = [_aligned(row, widths, left) for row in [head, *rows]]
        if rng.random() < 0.4:
            lines.insert(1, "-" * len(lines[0]))
        blocks += [grid.caption] if grid.caption else []
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, *study.after]) + "\n"


def _aligned(row: list[str], widths: list[int], left: bool) -> str:
    pairs = zip(row, widths, strict=True)
    return "   ".join(cell.ljust(width) if left else cell.rjust(width) for cell, width in pairs).rstrip()


def _cells(grid: Grid, bold: Callable[[str], str]) -> tuple[list[str], list[list[str]]]:
    """The heading and all rows as text, turned if the table is."""
    rows = []
    for row in range(len(grid.columns[0].values)):
        marked = {key for at, key in grid.bold if at == row}
        rows.append([bold(column.text(row)) if column.key in marked else column.text(row) for column in grid.columns])
    head = [f"{column.group} {column.head}".strip() for column in grid.columns]
    if not grid.turned:
        return head, rows
    turned = [list(line) for line in zip(head, *rows, strict=True)]
    return turned[0], turned[1:]


def _grouped(grid: Grid) -> bool:
    return not grid.turned and any(column.group for column in grid.columns)


def _groups(grid: Grid) -> list[tuple[str, int]]:
    return [(name, len(list(same))) for name, same in groupby(column.group for column in grid.columns)]


FORMATS: dict[str, Callable[[Study, random.Random], str]] = {
    "markdown": _markdown,
    "html": _html,
    "csv": _csv,
    "latex": _latex,
    "text": _text,
}
