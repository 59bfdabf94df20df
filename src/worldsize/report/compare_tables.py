"""The tables of `worldsize compare`, in full and for 80 columns, and all of it as Markdown."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from worldsize.analysis.compare.verdicts import basis, other
from worldsize.analysis.numbers import ABSENT, GIB, number_text
from worldsize.report.columns import MS, PERCENT, ColumnOf, estimates, numbers, prose, table_of, texts
from worldsize.report.tables import TERMINAL_WIDTH, Entry, Table, escaped, fitted, headed, to_markdown
from worldsize.results.comparison_records import (
    CellComparison,
    Change,
    ComparisonRecord,
    Finding,
    Gate,
    Quantity,
    Side,
)
from worldsize.results.provenance import short_commit

NOTABLE = 0.02
"""Relative difference below which the terminal does not name a quantity that has no interval."""

LABELS: dict[str, tuple[str, str, float]] = {
    "step_s": ("step time", "ms", MS),
    "samples_per_s": ("throughput", "samples/s", 1),
    "exposed_sync_s": ("exposed communication", "ms", MS),
    "data_wait_s": ("data wait", "ms", MS),
    "compute_s": ("compute", "ms", MS),
    "peak_memory_bytes": ("peak memory", "GiB", 1 / GIB),
    "test_accuracy": ("test accuracy", "%", PERCENT),
    "test_loss": ("test loss", "", 1),
    "normalised_step": ("normalised step", "", 1),
    "scaled_speedup": ("scaled speed-up", "", 1),
    "strong_speedup": ("strong-scaling speed-up", "", 1),
    "efficiency": ("efficiency", "%", PERCENT),
}
"""Label, unit and factor of each quantity."""
SHORT = {"exposed_sync_s": "exposed"}
OVER_A_BASELINE = {"scaled_speedup", "strong_speedup", "efficiency"}
IN_THE_FIRST_TABLE = {"step_s", "samples_per_s", "normalised_step", *OVER_A_BASELINE}
"""Their ratios are those of the step times, or 1 ÷ them."""

SAME = "Provenance and settings are the same."
RATIOS_NOTE = (
    "Ratios are B ÷ A with 95 % intervals; above 1, a step takes longer. With several runs on a side they are taken "
    "from logarithms, and are not quite the ratios of the step times. A verdict holds for all cells at once (Holm), so "
    'an interval may exclude 1 where the verdict is "indistinguishable". With one run on a side intervals are those of '
    "blocks, and no verdict is known (method §11). Step times are those that the steps of each run took; a report "
    "scales cells that ended early to all blocks (method §8)."
)


def cells_table(record: ComparisonRecord) -> Table:
    """One row per cell that both sides planned."""
    columns: list[ColumnOf[CellComparison]] = [
        texts("Cell", "cell", lambda cell: cell.id),
        numbers("Step time A", "old_step_s", lambda cell: step.old if (step := _known(cell, "step_s")) else None, "ms"),
        numbers("Step time B", "new_step_s", lambda cell: step.new if (step := _known(cell, "step_s")) else None, "ms"),
        estimates("Step time B ÷ A", "step_ratio", lambda cell: cell.plain),
        estimates(
            "Throughput B ÷ A",
            "throughput_ratio",
            lambda cell: rate.ratio if (rate := _known(cell, "samples_per_s")) else None,
        ),
        estimates("Relative step time B ÷ A", "relative_ratio", lambda cell: cell.relative),
        estimates("Normalised step time B ÷ A", "normalised_ratio", lambda cell: cell.normalised),
        estimates("Judged ratio B ÷ A", "judged_ratio", lambda cell: cell.judged),
        texts("Verdict", "verdict", lambda cell: cell.verdict),
        prose("Taken from", "judged_by", lambda cell: basis(cell) if cell.judged_by else None),
        prose("Remark", "remark", _remark),
    ]
    return table_of("compare", "Step times, B against A", columns, record.cells, RATIOS_NOTE)


def compact_cells(record: ComparisonRecord, width: int = TERMINAL_WIDTH) -> Table:
    """The same for a terminal of `width` columns, with the ratios that are judged by; long names of cells are cut."""
    shown = {str(cell.judged_by) for cell in record.cells if cell.judged_by not in ("plain", None)}
    shown |= {"normalised"} if any(cell.reference_moved for cell in record.cells) else set()
    if not shown and any(cell.relative is not None for cell in record.cells):
        shown = {"relative"}
    note = "Ratios B ÷ A, 95 % intervals; above 1, a step takes longer; throughput: 1 ÷ step time (method §11)."
    further = {f"{kind}_ratio": kind.capitalize() for kind in shown}
    if len(shown) > 1:  # three ratios do not fit
        further = {"judged_ratio": "Judged by"}
        note += " Judged by: normalised step times, or those over the baseline cell (--markdown says which)."
    labels = {"cell": "Cell", "step_ratio": "Step time", **further, "verdict": "Verdict"}
    return fitted(replace(headed(cells_table(record), labels), note=note), width, _shortened)


class _QuantityRow(NamedTuple):
    cell: CellComparison
    quantity: Quantity


def quantities_table(record: ComparisonRecord) -> Table:
    """Everything that is known of a cell on both sides, a row each."""
    rows = (_QuantityRow(cell, each) for cell in record.cells for each in cell.quantities)
    note = (
        "Exposed communication, data wait and compute (forward, backward and optimizer): means per step over ranks, "
        "and ratios of the means of blocks. They, memory and training are tested together (Holm), with runs as the "
        "unit; what the verdict on the step is taken from goes with it (method §2, §3, §8, §11)."
    )
    columns = [*_quantity_columns(_label), texts("Difference", "difference", _difference)]
    return table_of("compare-quantities", "All quantities, B against A", columns, rows, note)


def compact_quantities(record: ComparisonRecord, width: int = TERMINAL_WIDTH) -> Table:
    """Of the parts of a step, memory and training, what differs significantly; a row each, for `width` columns.

    Without the runs to tell anything apart: what differs, and is called no change.
    """
    moved = [_QuantityRow(cell, each) for cell in record.cells for each in cell.quantities if _moved(each)]
    unknown = any(row.quantity.direction == "not known" for row in moved)
    title = "What else differs, with too few runs to call it a change" if unknown else "Other significant differences"
    return fitted(table_of("compare-moved", title, _quantity_columns(_short_label), moved), width, _shortened)


def changes_table(record: ComparisonRecord) -> Table:
    """In what the runs differ (method.md §11)."""
    somewhere = any(change.where for change in record.changes)
    columns: list[ColumnOf[Change] | None] = [
        texts("What", "what", lambda change: f"{change.area}: {change.what}"),
        prose("A", "old", lambda change: change.old),
        prose("B", "new", lambda change: change.new),
        prose("Where", "where", lambda change: change.where or "whole run") if somewhere else None,
    ]
    return table_of("compare-changes", "What changed", columns, record.changes)


def gate_lines(gate: Gate) -> list[str]:
    """How the gate ended, and why; what does not fail but should be known comes last."""
    strict = ", strict" if gate.strict else ""
    doubt = any(each.code == "not-ruled-out" for each in gate.findings)
    ended = {"failed": "FAILED", "not known": "NOT KNOWN", "passed": "passed, but not proved" if doubt else "passed"}
    head = f"{ended[gate.outcome]}: the gate at {100 * gate.fail_above:g} %{strict}"
    findings = [f"{_word(each)}: {f'{each.cell}: ' if each.cell else ''}{each.message}" for each in gate.findings]
    return [head, *findings]


def lone_lines(record: ComparisonRecord) -> list[str]:
    """The cells that only one side planned, a line for each side that has some."""
    found = []
    for run in ("A", "B"):
        names = [
            f"{cell.id}{'' if cell.measured else f' ({cell.state})'}" for cell in record.lone_cells if cell.run == run
        ]
        if names:
            found.append(f"Only in {run}: {', '.join(names)}.")
    return found


def side_line(letter: str, side: Side) -> str:
    """Which run, or runs, are A or B, of which commit of the user's code, and of which worldsize."""
    first = side.runs[0]
    what = (
        f"{first.name}, {first.provenance.created}" if len(side.runs) == 1 else f"{len(side.runs)} runs of {first.name}"
    )
    origins = [run.provenance for run in side.runs]
    own = dict.fromkeys(origin.user_code.commit for origin in origins if origin.user_code and origin.user_code.commit)
    ours = dict.fromkeys(
        f"worldsize {origin.worldsize_version}" + (f" at {short_commit(origin.commit)}" if origin.commit else "")
        for origin in origins
    )
    code = f"your code at commit {' and '.join(map(short_commit, own))}" if own else None
    return f"{letter}: {side.path} ({', '.join(filter(None, [what, code, *ours]))})"


def compare_markdown(record: ComparisonRecord) -> str:
    """Verdict, gate and all tables, for a comment on a pull request; what is long is folded."""
    head, *findings = gate_lines(record.gate) if record.gate else ["compare"]
    parts = [
        f"## worldsize: {escaped(head)}",
        "\n".join(f"- {escaped(line)}" for line in findings),
        f"To settle it:\n\n{code_block(record.gate.settle)}" if record.gate and record.gate.settle else "",
        escaped(record.verdict),
    ]
    parts += [to_markdown(cells_table(record)).strip()] if record.cells else []
    sides = (side_line(letter, side) for letter, side in (("A", record.a), ("B", record.b)))
    parts += [escaped(line) for line in (*sides, *record.caveats, *lone_lines(record))]
    for table in (changes_table(record), quantities_table(record)):
        if table.rows:
            inner = to_markdown(table).strip()
            parts.append(f"<details><summary>{escaped(table.title)}</summary>\n\n{inner}\n\n</details>")
    if not record.changes:
        parts.append(SAME)
    return "\n\n".join(part for part in parts if part) + "\n"


def code_block(lines: list[str]) -> str:
    """Lines to paste, in Markdown; indented, so that no text of a user can end the block."""
    return "\n".join(f"    {line}" for text in lines for line in text.splitlines())


def _word(finding: Finding) -> str:
    return str(finding.weight)


def _known(cell: CellComparison, name: str) -> Quantity | None:
    return next((quantity for quantity in cell.quantities if quantity.name == name), None)


def _remark(cell: CellComparison) -> str:
    work = "" if not cell.other_work else f"not the same work: {other(cell.other_work)}"
    return "; ".join(filter(None, [work, cell.remark]))


def _quantity_columns(label: Callable[[_QuantityRow], str]) -> list[ColumnOf[_QuantityRow]]:
    return [
        texts("Cell", "cell", lambda row: row.cell.id),
        texts("What", "what", label),
        ColumnOf("A", ("old",), value=lambda row: _with_unit(row.quantity, row.quantity.old)),
        ColumnOf("B", ("new",), value=lambda row: _with_unit(row.quantity, row.quantity.new)),
        estimates("B ÷ A", "ratio", lambda row: row.quantity.ratio),
    ]


def _label(row: _QuantityRow) -> str:
    label, _, _ = LABELS[row.quantity.name]
    return f"{label} over {row.cell.baseline}" if row.quantity.name in OVER_A_BASELINE else label


def _short_label(row: _QuantityRow) -> str:
    label, _, _ = LABELS[row.quantity.name]
    return SHORT.get(row.quantity.name, label)


def _difference(row: _QuantityRow) -> str | None:
    return row.quantity.direction or ("not the same work" if row.cell.other_work else None)


def _with_unit(quantity: Quantity, value: float | None) -> Entry:
    _, unit, factor = LABELS[quantity.name]
    shown = ABSENT if value is None else f"{number_text(value * factor)} {unit}".strip()
    return Entry(shown, (value,))


def _moved(quantity: Quantity) -> bool:
    """Whether the terminal should name it."""
    if quantity.name in IN_THE_FIRST_TABLE:
        return False
    if quantity.direction == "not known" and quantity.ratio is not None:
        ratio = quantity.ratio
        if ratio.low is None or ratio.high is None:
            return abs(ratio.value - 1) >= NOTABLE
        return not ratio.low <= 1 <= ratio.high
    return quantity.direction in ("larger", "smaller")


def _shortened(name: str, width: int) -> str:
    """Cut in its first half: world size, batch and label stand at the end of a cell's name."""
    head = width // 4
    return f"{name[:head]}…{name[head + 1 - width :]}"
