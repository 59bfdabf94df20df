"""The tables of `worldsize compare`, in full and for 80 columns, and all of it as Markdown."""

from dataclasses import replace

from worldsize.analysis.compare.words import basis, other
from worldsize.analysis.numbers import ABSENT, number_text
from worldsize.report.result_tables import CELL, MIN_NAME_WIDTH, MS, PERCENT, TERMINAL_WIDTH
from worldsize.report.tables import (
    Column,
    Entry,
    Table,
    escaped,
    estimate,
    interval_keys,
    number,
    text,
    to_markdown,
)
from worldsize.results.code_records import short_commit
from worldsize.results.comparison_records import CellComparison, ComparisonRecord, Finding, Gate, Quantity, Side

NOTABLE = 0.02
"""Relative difference below which the terminal does not name a quantity that has no interval."""

LABELS: dict[str, tuple[str, str, float]] = {
    "step_s": ("step time", "ms", MS),
    "samples_per_s": ("throughput", "samples/s", 1),
    "exposed_sync_s": ("exposed communication", "ms", MS),
    "data_wait_s": ("data wait", "ms", MS),
    "compute_s": ("compute", "ms", MS),
    "peak_memory_bytes": ("peak memory", "GiB", 1 / 2**30),
    "test_accuracy": ("test accuracy", "%", PERCENT),
    "test_loss": ("test loss", "", 1),
    "scaled_speedup": ("scaled speed-up", "", 1),
    "strong_speedup": ("strong-scaling speed-up", "", 1),
    "efficiency": ("efficiency", "%", PERCENT),
}
"""Label, unit and factor of each quantity."""
SHORT = {"exposed_sync_s": "exposed"}
OVER_A_BASELINE = {"scaled_speedup", "strong_speedup", "efficiency"}
IN_THE_FIRST_TABLE = {"step_s", "samples_per_s", *OVER_A_BASELINE}
"""Their ratios are those of the step times, or 1 ÷ them."""

SAME = "Provenance and settings are the same."
RATIOS_NOTE = (
    "Ratios are B ÷ A with 95 % intervals; above 1, a step takes longer. They are taken from logarithms, so they are "
    "not quite the ratios of the step times. A verdict holds for all cells at once (Holm), so an interval may exclude "
    "1 where nothing is told apart. With one run on a side intervals are those of blocks, and no verdict is known "
    "(method §11)."
)


def cells_table(record: ComparisonRecord) -> Table:
    """One row per cell that both sides planned."""
    columns = (
        CELL,
        Column("Step time A", ("old_step_s",), "ms"),
        Column("Step time B", ("new_step_s",), "ms"),
        Column("Step time B ÷ A", interval_keys("step_ratio")),
        Column("Throughput B ÷ A", interval_keys("throughput_ratio")),
        Column("Relative step time B ÷ A", interval_keys("relative_ratio")),
        Column("Verdict", ("verdict",), align="left"),
        Column("Taken from", ("judged_by",), align="prose"),
        Column("Remark", ("remark",), align="prose"),
    )
    rows = tuple(_cell_row(cell) for cell in record.cells)
    return Table("compare", "Step times, B against A", columns, rows, RATIOS_NOTE)


def compact_cells(record: ComparisonRecord, width: int = TERMINAL_WIDTH) -> Table:
    """The same for a terminal of `width` columns; long names of cells are cut."""
    full = cells_table(record)
    relative = [5] if any(cell.relative is not None for cell in record.cells) else []
    kept = [0, 3, *relative, 6]
    labels = {3: "Step time", 5: "Relative"}
    columns = tuple(replace(full.columns[i], label=labels.get(i, full.columns[i].label)) for i in kept)
    rows = tuple(tuple(row[i] for i in kept) for row in full.rows)
    note = "Ratios B ÷ A, 95 % intervals; above 1, a step takes longer; throughput: 1 ÷ step time (method §11)."
    return _fitted(replace(full, columns=columns, rows=rows, note=note), width)


def quantities_table(record: ComparisonRecord) -> Table:
    """Everything that is known of a cell on both sides, a row each."""
    rows = tuple(_quantity_row(cell, each) for cell in record.cells for each in cell.quantities)
    note = (
        "Exposed communication, data wait and compute (forward, backward and optimizer): means per step over ranks, "
        "and ratios of the means of blocks. They, memory and training are told apart together (Holm), with runs as the "
        "unit; what the verdict on the step is taken from goes with it (method §2, §3, §8, §11)."
    )
    return Table("compare-quantities", "All quantities, B against A", QUANTITY_COLUMNS, rows, note)


def compact_quantities(record: ComparisonRecord, width: int = TERMINAL_WIDTH) -> Table:
    """Of the parts of a step, memory and training, what is told apart; a row each, for `width` columns.

    Without the runs to tell anything apart: what differs, and is called no change.
    """
    moved = [(cell, each) for cell in record.cells for each in cell.quantities if _moved(each)]
    rows = [_quantity_row(cell, each, short=True)[:5] for cell, each in moved]
    unknown = any(each.direction == "not known" for _, each in moved)
    title = "What else differs, with too few runs to call it a change" if unknown else "What else is told apart"
    table = Table("compare-moved", title, QUANTITY_COLUMNS[:5], tuple(rows))
    return _fitted(table, width)


def changes_table(record: ComparisonRecord) -> Table:
    """In what the runs differ (method.md §11)."""
    columns = (
        Column("What", ("what",), align="left"),
        Column("A", ("old",), align="prose"),
        Column("B", ("new",), align="prose"),
        Column("Where", ("where",), align="prose"),
    )
    rows = [
        (text(f"{change.area}: {change.what}"), text(change.old), text(change.new), text(change.where or "whole run"))
        for change in record.changes
    ]
    kept = 4 if any(change.where for change in record.changes) else 3
    return Table("compare-changes", "What changed", columns[:kept], tuple(row[:kept] for row in rows))


def gate_lines(gate: Gate) -> list[str]:
    """How the gate ended, and why; what does not fail but should be known comes last."""
    strict = ", strict" if gate.strict else ""
    doubt = any(each.code == "not-ruled-out" for each in gate.findings)
    ended = {"failed": "FAILED", "not known": "NOT KNOWN", "passed": "passed, but not proved" if doubt else "passed"}
    head = f"{ended[gate.outcome]}: the gate at {100 * gate.fail_above:g} %{strict}"
    told = [f"{_word(each)}: {f'{each.cell}: ' if each.cell else ''}{each.message}" for each in gate.findings]
    return [head, *told]


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
    head, *told = gate_lines(record.gate) if record.gate else ["compare"]
    parts = [
        f"## worldsize: {escaped(head)}",
        "\n".join(f"- {escaped(line)}" for line in told),
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


QUANTITY_COLUMNS = (
    CELL,
    Column("What", ("what",), align="left"),
    Column("A", ("old",)),
    Column("B", ("new",)),
    Column("B ÷ A", interval_keys("ratio")),
    Column("Difference", ("difference",), align="left"),
)


def _cell_row(cell: CellComparison) -> tuple[Entry, ...]:
    known = {quantity.name: quantity for quantity in cell.quantities}
    step, rate = known.get("step_s"), known.get("samples_per_s")
    work = "" if not cell.other_work else f"not the same work: {other(cell.other_work)}"
    return (
        text(cell.id),
        number(step.old if step else None, MS),
        number(step.new if step else None, MS),
        estimate(cell.plain),
        estimate(rate.ratio if rate else None),
        estimate(cell.relative),
        text(cell.verdict),
        text(basis(cell) if cell.judged_by else None),
        text("; ".join(filter(None, [work, cell.remark]))),
    )


def _quantity_row(cell: CellComparison, quantity: Quantity, *, short: bool = False) -> tuple[Entry, ...]:
    label, unit, factor = LABELS[quantity.name]
    if short:
        label = SHORT.get(quantity.name, label)
    elif quantity.name in OVER_A_BASELINE:
        label = f"{label} over {cell.baseline}"
    told = quantity.direction or ("not the same work" if cell.other_work else None)
    values = (_with_unit(value, unit, factor) for value in (quantity.old, quantity.new))
    return (text(cell.id), text(label), *values, estimate(quantity.ratio), text(told))


def _with_unit(value: float | None, unit: str, factor: float) -> Entry:
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


def _fitted(table: Table, width: int) -> Table:
    """The table with its first column cut so that it fits, two spaces between the columns."""
    others = sum(
        max(len(column.heading), *(len(row[i].plain) for row in table.rows), 0)
        for i, column in enumerate(table.columns[1:], start=1)
    )
    room = max(MIN_NAME_WIDTH, width - others - 2 * (len(table.columns) - 1))
    rows = tuple((_shortened(row[0], room), *row[1:]) for row in table.rows)
    return replace(table, rows=rows)


def _shortened(entry: Entry, width: int) -> Entry:
    """Cut in its first half: world size, batch and label stand at the end of a cell's name."""
    if len(entry.text) <= width:
        return entry
    head = width // 4
    return Entry(f"{entry.text[:head]}…{entry.text[head + 1 - width :]}", entry.raw)
