"""The same tables in every form that people publish them in."""

import html
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Printed(NamedTuple):
    """A table as it was published."""

    words: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _table(words: str, *lines: str) -> Printed:
    header, *rows = (tuple(cell.strip() for cell in line.split("|")) for line in lines)
    return Printed(words, header, tuple(rows))


PUBLISHED = {
    "one GPU": _table(
        "Table 1: one GPU, time of an epoch",
        "Batch size|Time (sec)",
        *("32|15.51", "128|5.99", "512|5.82", "2048|5.81", "8192|6.19", "32768|9.00", "131072|13.14"),
        *("524288|13.02", "2097152|12.90", "8388608|12.97"),
    ),
    "groups": _table(
        "Table 2: training time and speedup, batch size per GPU fixed",
        "|32 per GPU: Time (sec)|Speedup|128 per GPU: Time (sec)|Speedup|512 per GPU: Time (sec)|Speedup",
        "1-GPU|25.86|1.00|14.73|1.00|11.43|1.00",
        "2-GPU|36.93|1.40|17.59|1.67|12.41|1.84",
        "4-GPU|27.25|3.80|14.82|3.97|11.78|3.88",
    ),
    "parts": _table(
        "Table 3: compute and communication time of an epoch",
        "|32: Compute (sec)|Comm (sec)|128: Compute (sec)|Comm (sec)|512: Compute (sec)|Comm (sec)",
        "2-GPU|12.93|24.00|7.37|10.22|5.72|6.69",
        "4-GPU|6.47|20.78|3.68|11.14|2.86|8.92",
    ),
    "bandwidth": _table(
        "Table 4: bandwidth utilization (GB/s) = all-reduce cost / communication time",
        "|32 per GPU|128 per GPU|512 per GPU",
        "2-GPU|0.0018|0.0043|0.0066",
        "4-GPU|0.0031|0.0058|0.0073",
    ),
    "names of a program": _table(
        "Table 1: speedup = T(1) / T(N)",
        "gpu_nums|batch_32_time|batch_32_speedup|batch_128_time|batch_128_speedup|batch_512_time|batch_2048_time",
        "1|38|1|16|1|13|13",
        "2|67|0.567164|18|0.888889|9|10",
        "4|121|0.31405|30|0.533333|11|11",
    ),
    "names of a program, scaled": _table(
        "Table 2: speedup = N × T(1) / T(N)",
        "gpu_nums|batch_32_time|batch_32_speedup|batch_128_time|batch_128_speedup",
        "1|38.0|1.0|16.0|1.0",
        "2|67.0|1.134328|18.0|1.777778",
        "4|121.0|1.256198|30.0|2.133333",
    ),
    "names of a program, parts": _table(
        "Table 3: communication time of an epoch (s) = T(N) − T(1)/N",
        "gpu_nums|batch_32_communication_time|batch_128_communication_time|batch_32_bandwidth|batch_128_bandwidth",
        "2|48.0|10.0|0.363852|0.436902",
        "4|111.5|26.0|0.234954|0.252059",
    ),
    "with units": _table(
        "Images of all GPUs",
        "GPUs|Images/s|Efficiency",
        "1|1,024 ± 3|100%",
        "8|7,940 ± 12|96.9%",
        "64|61,100 ± 90|93.2%",
    ),
}


def markdown(table: Printed) -> str:
    """As GitHub shows it."""
    lines = [table.header, ["---:"] * len(table.header), *table.rows]
    return f"# {table.words}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\nWords below.\n"


def html_page(table: Printed) -> str:
    """A page, with all its end tags."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.header)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    return (
        f"<!DOCTYPE html><html><head><style>td {{ color: red }}</style></head><body><h1>{html.escape(table.words)}</h1>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>Words below.</p></body></html>"
    )


def html_short(table: Printed) -> str:
    """Without the end tags that may be left out."""
    rows = "".join(f"<tr><td>{'<td>'.join(map(html.escape, row))}\n" for row in (table.header, *table.rows))
    return f"<html><body><p>{html.escape(table.words)}<table>{rows}</table></body></html>"


def comma(table: Printed) -> str:
    """Comma-separated, with quotes where they are needed."""
    lines = (",".join(f'"{cell}"' if "," in cell else cell for cell in row) for row in (table.header, *table.rows))
    return f"# {table.words}\n" + "\n".join(lines) + "\n"


def tab(table: Printed) -> str:
    """Tab-separated, under a line of words."""
    return f"{table.words}\n\n" + "\n".join("\t".join(row) for row in (table.header, *table.rows))


def latex(table: Printed) -> str:
    """A floating table with the rules of booktabs."""

    def written(row: Sequence[str]) -> str:
        cells = " & ".join(row)
        for sign, command in (("%", r"\%"), ("_", r"\_"), ("±", r"$\pm$"), ("×", r"$\times$")):
            cells = cells.replace(sign, command)
        return rf"{cells} \\"

    return "\n".join(
        (
            r"\begin{table}[t]\centering",
            rf"\caption{{{written([table.words])[:-3]}}}",
            rf"\begin{{tabular}}{{{'r' * len(table.header)}}}",
            r"\toprule",
            written(table.header),
            r"\midrule",
            *map(written, table.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        )
    )


def aligned(table: Printed) -> str:
    """Columns below each other, two blanks apart."""
    rows = (table.header, *table.rows)
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.header))]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return f"{table.words}\n\n" + "\n".join(lines) + "\n\nWords below.\n"


def copied(table: Printed) -> str:
    """As it is copied out of a PDF: one blank between columns, words above and below without a blank line."""
    return "\n".join((table.words, *(" ".join(row).strip() for row in (table.header, *table.rows)), "Words below."))


def drawn(table: Printed) -> str:
    """As psql prints it."""
    rows = (table.header, *table.rows)
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.header))]
    lines = [" " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    rule = "-+-".join("-" * width for width in widths)
    return "\n".join((table.words, "", lines[0], f"-{rule}-", *lines[1:], "", "Words below."))


def boxed(table: Printed) -> str:
    """As rich prints it."""
    rows = (table.header, *table.rows)
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.header))]

    def line(row: Sequence[str], bar: str) -> str:
        return bar + bar.join(f" {cell.rjust(width)} " for cell, width in zip(row, widths, strict=True)) + bar

    def rule(left: str, stroke: str, cross: str, right: str) -> str:
        return left + cross.join(stroke * (width + 2) for width in widths) + right

    lines = (rule("┏", "━", "┳", "┓"), line(table.header, "┃"), rule("┡", "━", "╇", "┩"))
    return "\n".join((table.words, "", *lines, *(line(row, "│") for row in table.rows), rule("└", "─", "┴", "┘")))


def json_rows(table: Printed) -> str:
    """A list of lists; numbers as text, since JSON cannot keep `1.00`."""
    return json.dumps({"note": table.words, "table": [table.header, *table.rows]})


FORMS: dict[str, tuple[str, Callable[[Printed], str]]] = {
    "markdown": ("a.md", markdown),
    "html": ("a.html", html_page),
    "html without end tags": ("a.htm", html_short),
    "comma": ("a.csv", comma),
    "tab": ("a.tsv", tab),
    "latex": ("a.tex", latex),
    "aligned": ("a.txt", aligned),
    "copied": ("a.txt", copied),
    "drawn": ("a.txt", drawn),
    "boxed": ("a.txt", boxed),
    "json": ("a.json", json_rows),
}
"""Names of files, and what writes them."""
