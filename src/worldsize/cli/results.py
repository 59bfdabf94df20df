"""The end of a run in the terminal: the verdict, the first advice, a table, what to beware of, where the report is.

docs/output.md says what stands where, docs/json.md what the fields of `--json` are.
"""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from worldsize.analysis.advice import NO_COMMAND, Advice, advise
from worldsize.analysis.advice.price import minutes_text
from worldsize.analysis.communication import observing_text
from worldsize.analysis.decision import decision, is_decided
from worldsize.analysis.scaling import ScalingRow
from worldsize.analysis.script_gate import gate
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import step_sum, verdict
from worldsize.cli.console import lines, output, printable
from worldsize.cli.heartbeat import working
from worldsize.cli.output import print_json
from worldsize.cli.tables import TerminalTable
from worldsize.errors import DAMAGED
from worldsize.report.comm_tables import communication_summary
from worldsize.report.experiments.batch_sweep import sweep_table
from worldsize.report.fact_tables import accuracy_table
from worldsize.report.failure_table import last_lines
from worldsize.report.memory_table import memory_table
from worldsize.report.narrow_tables import sweep_summary
from worldsize.report.profile import HOW_TO_OPEN, profiled
from worldsize.report.rehearsal_tables import links_table, replayed_table
from worldsize.report.result_tables import compact_table, parts_table, results_table
from worldsize.report.rung_table import rung_summary, rung_table
from worldsize.report.tables import Table, shown, to_records, turned
from worldsize.report.write import write_report
from worldsize.results.comparison_records import FAILED_GATE
from worldsize.results.folder import Run, load_run
from worldsize.results.records import Estimate, WarningRecord
from worldsize.traits import ALL_CORES

MAX_WARNINGS = 3
"""Kinds of warnings that are shown; the report has all."""
WARNING_LINES = 2
GRAVE = (
    "unreadable",
    "not-the-reference",
    "data-differ",
    "oversubscribed",
    "link-not-carried",
    "link-bursts",
    "queued-for-cores",
)
"""Codes of the warnings that are shown before others: with them the numbers themselves mean less."""

Warned = tuple[str, WarningRecord]


class Shown(NamedTuple):
    """What was written and printed."""

    page: Path
    failed_gate: bool
    """Whether a script is slower than the first one by more than was allowed."""
    damaged: bool
    """Whether anything in the run folder could not be read."""


def report_and_print(run: Path, *, as_json: bool) -> Shown:
    """Write the report of a run folder and print its results."""
    gc.disable()  # what a report is made of lives until its end: looking through it took 4 % of a large one
    try:
        with working("writing the report"):
            analysis = analyse(load_run(run))
            page = write_report(run, analysis)
    finally:
        gc.enable()
    if as_json:
        print_json({"run": str(run), "report": str(page), **content(analysis)})
    else:
        print_results(analysis, page)
    return Shown(page, any(each.outcome == "failed" for each in gate(analysis)), analysis.damaged)


def content(analysis: StudyAnalysis) -> dict[str, Any]:
    """Everything that is known of a run, for scripts; the further parts of an experiment in `parts`."""
    run = analysis.run
    return {
        "verdict": verdict(analysis),
        "decided": is_decided(analysis),
        "workers": None if (answer := decision(analysis)) is None else answer.workers,
        "advice": [each.as_json() for each in advise(analysis)],
        "results": to_records(results_table(analysis)),
        "scaling": [_scaling(row) for row in analysis.scaling],
        "on_machine": [_scaling(row) for row in analysis.on_machine],
        "rungs": to_records(rung_table(analysis)),
        "memory": to_records(memory_table(analysis)),
        "sweeps": _sweeps(analysis),
        "rehearsal": to_records(replayed_table(analysis)),
        "links": to_records(links_table(analysis)),
        "gate": [each.as_json() for each in gate(analysis)],
        "warnings": [{"where": where, **warning.model_dump()} for where, warning in analysis.warnings],
        "study": run.study.model_dump(mode="json"),
        "cells": {name: cell.record.model_dump(mode="json") for name, cell in run.cells.items()},
        "parts": {name: content(part) for name, part in analysis.parts.items()},
    }


def _scaling(row: ScalingRow) -> dict[str, Any]:
    """How one cell scales, weak or strong, against its baseline."""
    cell, speedup = row.cell, row.speedup
    return {
        "kind": row.kind,
        "cell": cell.id,
        "baseline": row.baseline.id if row.baseline else None,
        "strategy": cell.strategy,
        "world_size": cell.world_size,
        "local_batch": cell.batch_size,
        "global_batch": cell.global_batch,
        "speedup": _interval(speedup.estimate if speedup else None),
        "efficiency": _interval(row.efficiency.estimate if row.efficiency else None),
        "epoch_time_ratio": row.epoch_time_ratio,
        "karp_flatt": _interval(row.karp_flatt),
        "in_turn": speedup.paired if speedup else None,
        "withheld": row.withheld,
    }


def _interval(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate.model_dump()


def _sweeps(analysis: StudyAnalysis) -> list[dict[str, Any]]:
    """What each batch sweep found, and its batches in `rows`."""
    names = ("strategy", "world_size", "largest", "too_large", "knee", "knee_low", "knee_high", "in_turn", "ended_by")
    found: list[dict[str, Any]] = [{name: getattr(sweep, name) for name in names} for sweep in analysis.sweeps]
    rows = to_records(sweep_table(analysis)) if found else []
    for sweep in found:
        of_sweep = sweep["strategy"], sweep["world_size"]
        sweep["rows"] = [row for row in rows if (row["strategy"], row["world_size"]) == of_sweep]
    return found


def print_results(analysis: StudyAnalysis, page: Path, console: Console | None = None) -> None:
    """Verdict, advice, tables, warnings and the path of the report, on stdout."""
    console = console or output()
    console.print()
    _say(console, verdict(analysis), style="bold")
    if why := step_sum(analysis):
        _say(console, why)
    _print_advice(console, advise(analysis))
    _print_failure(console, analysis)
    for table in terminal_tables(analysis):
        console.print()
        console.print(TerminalTable(table))
        _say(console, shown(table).remarks, style="dim")
    if analysis.observing is not None:
        _say(console, observing_text(analysis.observing), style="dim")
    _print_warnings(console, analysis.warnings)
    if profiled(analysis):
        _whole(console, f"\ntraces: {page.parent}/trace-*.json")
        _say(console, f"{HOW_TO_OPEN}.", style="dim")
    if gated := gate(analysis):
        console.print()
        for each in gated:
            _say(console, each.text, style="" if each.outcome == "passed" else "bold")
    _whole(console, f"\nreport: {page}")


def _print_failure(console: Console, analysis: StudyAnalysis) -> None:
    """What the first command that failed said last; the page has that of all."""
    cell, said = next(((cell, said) for cell in analysis.cells if (said := last_lines(cell))), (None, []))
    if cell is None:
        return
    console.print()
    _say(console, f"{cell.id}: {cell.reason}", style="bold")
    for line in said:
        _whole(console, f"    {line}", style="dim")


def terminal_tables(analysis: StudyAnalysis) -> Iterator[Table]:
    """The tables that the terminal shows; each fits 80 columns."""
    if analysis.sweeps:
        yield from map(sweep_summary, analysis.sweeps)
        return
    yield compact_table(analysis)
    rungs = rung_summary(analysis)
    if rungs.rows:
        yield rungs
    if analysis.record.rehearses:
        yield replayed_table(analysis)
    if len(analysis.cells) == 1:
        alone = (parts_table(analysis), accuracy_table(analysis))
        yield from (replace(turned(table), note="") for table in alone if table.rows)
    communication = communication_summary(analysis)
    if communication.rows:
        yield communication


def _print_advice(console: Console, advice: tuple[Advice, ...]) -> None:
    """The most worthwhile one; its command stands alone on a line, whole."""
    if not advice:
        return
    first, *others = advice
    console.print()
    _say(console, f"Finding: {first.finding}")
    _say(console, f"Next:    {first.next_step}", indent=" " * 9)
    if first.command:
        _whole(console, f"    {first.command}", style="bold cyan")
    else:
        _say(console, f"         {NO_COMMAND}", indent=" " * 9)
    if first.takes_s is not None:
        _say(console, f"Takes:   {minutes_text(first.takes_s)}", indent=" " * 9)
    if first.gain:
        _say(console, f"Effect:  {first.gain.text} ({first.gain.basis})", indent=" " * 9)
    if others:
        _say(console, f"{len(others)} more in the report.", style="dim")


def _print_warnings(console: Console, warnings: Iterable[Warned]) -> None:
    """The first of each kind in two lines at most, and how many there are."""
    found = list(warnings)
    if not found:
        return
    counts = Counter(warning.code for _, warning in found)
    first = {warning.code: (where, warning) for where, warning in reversed(found)}
    kinds = sorted(counts, key=lambda code: code not in GRAVE)[:MAX_WARNINGS]
    console.print()
    for code in kinds:
        for line in warning_lines(first[code], counts[code] - 1, console.width):
            console.print(line, style="yellow", soft_wrap=True)
    left = len(found) - sum(counts[code] for code in kinds)
    _say(console, f"{left} more; all in full in the report." if left else "In full in the report.", style="dim")


def warning_lines(warned: Warned, others: int, width: int) -> list[str]:
    """What was seen, cut to two lines, and how many others are of this kind."""
    where, warning = warned
    seen = f"warning ({where}): " + warning.message.strip().split("\n")[0]
    again = f" (and {others} like it)" if others else ""
    text = lines(seen + again, width, indent="  ")
    if len(text) <= WARNING_LINES:
        return text
    *kept, last = lines(seen, width, indent="  ")[:WARNING_LINES]
    return [*kept, last[: width - len(again) - 1].rstrip(" ,;:.") + "…" + again]


def _say(console: Console, text: str, *, style: str = "", indent: str = "") -> None:
    """A paragraph, broken into lines; nothing where there is no text."""
    for line in lines(text, console.width, indent=indent):
        console.print(Text(line, style=style), soft_wrap=True)


def _whole(console: Console, text: str, *, style: str = "") -> None:
    """A path or a command: never broken, so that it can be copied."""
    body = text.lstrip("\n")
    console.print("\n" * (len(text) - len(body)) + printable(body), style=style, soft_wrap=True)


def exit_for_failures(run: Run) -> None:
    """Exit with 1 if a cell failed, but for batches that do not fit: those of a sweep, and of one with all cores.

    A sweep looks for them, and nobody has asked for the other.
    """
    sweep = run.study.asked.sweep
    cells = [cell.record for part in (run, *run.parts.values()) for cell in part.cells.values()]
    failed = [record for record in cells if record.state == "failed"]
    spared = [
        each
        for each in failed
        if each.error and each.error.kind == "OutOfMemory" and (sweep or each.label == ALL_CORES)
    ]
    if len(spared) < len(failed):
        raise typer.Exit(1)


def exit_for_gate(*, failed: bool) -> None:
    """Exit with 3 if the gate between scripts fails, as that of `compare` does."""
    if failed:
        raise typer.Exit(FAILED_GATE)


def exit_for_damage(*, damaged: bool) -> None:
    """Exit with 4 if something in the run folder could not be read."""
    if damaged:
        raise typer.Exit(DAMAGED)
