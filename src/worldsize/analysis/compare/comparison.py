"""Two sides against each other, of one run or several each: every ratio is B ÷ A, unpaired (method.md §11)."""

from collections.abc import Iterator, Sequence

from worldsize.analysis.compare.bases import is_same_computation, set_bases
from worldsize.analysis.compare.caveats import caveats
from worldsize.analysis.compare.differences import changes_between, other_work, same_machine
from worldsize.analysis.compare.gate import judge
from worldsize.analysis.compare.over_runs import contrasts
from worldsize.analysis.compare.quantities import Draft
from worldsize.analysis.compare.sides import (
    CellRuns,
    Pair,
    has_other_batch,
    named_runs,
    parts,
    refuse_shared,
    refuse_unlike,
)
from worldsize.analysis.compare.verdicts import comparison_verdict, set_verdicts
from worldsize.config import CompareSettings
from worldsize.results.baseline_records import StoredCell, StoredRun
from worldsize.results.comparison_records import (
    CellComparison,
    Change,
    ComparedRun,
    ComparisonRecord,
    LoneCell,
    Side,
)


def compare_runs(
    a: Sequence[StoredRun], b: Sequence[StoredRun], settings: CompareSettings, paths: tuple[str, str]
) -> ComparisonRecord:
    """Compare the runs of B with those of A; `paths` name the sides.

    Raises UsageError if a run is given twice, or a side holds runs of other work; what cannot be compared is in the
    record, with its reason.
    """
    for runs, path in ((a, paths[0]), (b, paths[1])):
        refuse_unlike(runs, named_runs(path, len(runs)))
    if settings.fail_above is not None:
        refuse_shared(a, b, named_runs(paths[1], len(b)))
    parts_a, parts_b = parts(a, b)
    pairs = [Pair(name, parts_a[name], parts_b[name]) for name in parts_a if name in parts_b]
    drafts = [draft for pair in pairs for draft in _drafts(pair)]
    _take_ratios(drafts)
    changes, alike = _changes(pairs), _same_machine(a, b)
    same_computation = all(map(is_same_computation, (changes, _within(a), _within(b))))
    set_bases(drafts, settings.judge_by, same_machine=alike, same_computation=same_computation)
    set_verdicts(drafts, same_machine=alike)
    record = ComparisonRecord(
        a=_side(paths[0], a),
        b=_side(paths[1], b),
        verdict="",
        caveats=[],
        same_machine=alike,
        changes=changes,
        cells=[draft.cell for draft in drafts],
        lone_cells=[*_lone("A", parts_a, parts_b), *_lone("B", parts_b, parts_a)],
    )
    record.unread = [*_unread("A", parts_a), *_unread("B", parts_b)]
    record.verdict = comparison_verdict(record, settings.judge_by)
    record.caveats = caveats(record, settings, _within(a), _within(b))
    record.gate = judge(record, settings)
    return record


def _unread(letter: str, side: dict[str, list[StoredRun]]) -> Iterator[str]:
    """The cells of a side, and the parts of its experiments, that cannot be read."""
    for part, runs in side.items():
        names = [cell.id for run in runs for cell in run.cells if cell.state == "unreadable"]
        for name in dict.fromkeys([*names, *(each for run in runs for each in run.unread_parts)]):
            yield f"{letter}: {f'{part}/' if part else ''}{name}"


def _same_machine(a: Sequence[StoredRun], b: Sequence[StoredRun]) -> bool:
    """Whether all ran on one kind of machine."""
    return all(same_machine(a[0].provenance, run.provenance) for run in (*a, *b))


def _side(path: str, runs: Sequence[StoredRun]) -> Side:
    return Side(path=path, runs=[ComparedRun(name=run.name, provenance=run.provenance) for run in runs])


def _within(runs: Sequence[StoredRun]) -> list[Change]:
    """In what the runs of one side differ."""
    return [change for run in runs[1:] for change in changes_between([runs[0]], [run])]


def _changes(pairs: list[Pair]) -> list[Change]:
    """What the parts of an experiment share with the whole is named once."""
    found = {pair.part: changes_between(pair.a, pair.b, pair.part) for pair in pairs}
    whole = {(change.area, change.what, change.old, change.new) for change in found[""]}
    inner = [change for part, each in found.items() if part for change in each]
    return found[""] + [each for each in inner if (each.area, each.what, each.old, each.new) not in whole]


def _planned(runs: Sequence[StoredRun]) -> dict[str, StoredCell]:
    """The cells that any of these runs planned, in the order of the plans; of each the first with numbers."""
    found: dict[str, StoredCell] = {}
    for run in runs:
        for cell in run.cells:
            if cell.id not in found or (cell.blocks and not found[cell.id].blocks):
                found[cell.id] = cell
    return found


def _drafts(pair: Pair) -> Iterator[Draft]:
    others = _planned(pair.b)
    work = other_work(pair.a[0], pair.b[0])
    for name in _planned(pair.a):
        if name in others:
            draft = _draft(pair, name, work)
            draft.gather()
            yield draft


def _draft(pair: Pair, name: str, work: list[str]) -> Draft:
    a, b = CellRuns.of(name, pair.a), CellRuns.of(name, pair.b)
    everywhere = [len(side.measured) == len(side.runs) for side in (a, b)]
    complete = [all(cell.state == "complete" for cell in side.planned) for side in (a, b)]
    cell = CellComparison(
        id=pair.named(name),
        verdict="no numbers",
        other_work=[*work, "batch"] if has_other_batch(a, b) else work,
        measured=(bool(a.measured), bool(b.measured)),
        lost=bool(a.measured) and (not b.measured or (everywhere[0] and not everywhere[1])),
        cut_short=complete[0] and not complete[1],
        remark=_remark(a, b),
    )
    return Draft(cell, pair, name, a, b)


def _remark(a: CellRuns, b: CellRuns) -> str:
    """Why a cell has no numbers, or not all; with several runs a side, in which."""
    reasons = []
    for letter, side in (("A", a), ("B", b)):
        for place, cell in enumerate(side.cells, start=1):
            run = letter if len(side.cells) == 1 else f"{letter}{place}"
            if cell is not None and cell.reason:
                reasons.append(f"{run}: {' '.join(cell.reason.split())}")
    return "; ".join(reasons)


def _take_ratios(drafts: list[Draft]) -> None:
    """Pool the spread between runs over the cells of a part, quantity by quantity; then fill in all ratios."""
    groups: dict[tuple[str, str], list[Draft]] = {}
    for draft in drafts:
        for name in draft.numbers:
            groups.setdefault((draft.pair.part, name), []).append(draft)
    for (_, name), group in groups.items():
        known = contrasts({place: draft.numbers[name].logs for place, draft in enumerate(group)})
        for place, (ratio, error) in known.items():
            group[place].ratios[name], group[place].errors[name] = ratio, error
    for draft in drafts:
        draft.fill()


def _lone(side: str, ours: dict[str, list[StoredRun]], theirs: dict[str, list[StoredRun]]) -> Iterator[LoneCell]:
    for part, runs in ours.items():
        known = _planned(theirs.get(part, []))
        for name, cell in _planned(runs).items():
            if name not in known:
                yield LoneCell(
                    id=f"{part}/{name}" if part else name,
                    run="A" if side == "A" else "B",
                    state=cell.state,
                    measured=bool(cell.blocks),
                    sweep=runs[0].asked.sweep,
                )
