"""Go on with a study: its settings, and what must be the same: settings, checkpoints, the user's own code.

The settings are those it was begun with, and on top what is given now. Samples of two codes never come into one cell.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from worldsize.config import StudySettings, laid_over, validated
from worldsize.config.redact import safe_words
from worldsize.errors import OutputError, UsageError
from worldsize.measure.user_code import changed_files
from worldsize.results.checkpoints import check_checkpoint, check_parts, checkpoint_folder, find_checkpoint
from worldsize.results.columns import has_all_lines
from worldsize.results.files import cell_folder, own, read_record
from worldsize.results.folder import load_run, write_study
from worldsize.results.imported import imported
from worldsize.results.provenance import UserCode, different_files, named
from worldsize.results.records import StudyRecord
from worldsize.study.budget import OVER_BUDGET
from worldsize.study.plan import PlannedCell

Resume = bool | Literal["anew"]
"""Whether a study is gone on with; `anew` measures all of it again where the user's own code has changed since."""
CHANGES_NOTHING = ("log", "budget", "hang_timeout", "max_restarts", "min_workers")
"""Settings that may be other ones when a study is resumed: no number depends on them."""

EARLIER = "earlier"
"""Folder for what was measured with other code; each of its folders is a run folder."""
COPIED = ("study.json", "comm")
"""What the new study needs as well, or writes over when it is opened."""
MOVED = ("cells", "report", "tensorboard", "wandb", "mlruns")


def check_settings(out: Path, settings: StudySettings) -> None:
    """Raise UsageError if the study in the folder has other settings, as far as any number depends on them."""
    then = read_record(StudyRecord, own(out, "study.json")).settings
    kept = settings.model_copy(update={"script": tuple(map(safe_words, settings.script))})
    others = [name for name in StudySettings.model_fields if getattr(then, name, None) != getattr(kept, name)]
    changed = [name.replace("_", "-") for name in others if name not in CHANGES_NOTHING]
    if changed or then is None:
        raise UsageError(
            f"{out} holds a study with other settings: {', '.join(changed)}\n"
            "Resume it with the same ones (--resume --out alone takes them all), or give another --out."
        )


def check_checkpoints(out: Path, plan: Sequence[PlannedCell], *, everywhere: bool = True) -> None:
    """Raise OutputError or UsageError for a checkpoint that a cell cannot go on from, before anything is started.

    `everywhere` reads the parts of all ranks, which may be on other hosts where torchrun started them.
    """
    done = load_run(out).complete if (out / "study.json").exists() else ()
    for cell in plan:
        folder = checkpoint_folder(cell_folder(out, cell.id))
        found = None if cell.id in done else find_checkpoint(folder)
        if found:
            where = cell.placement
            check_checkpoint(folder, found, cell.settings, processes=where.processes, device=where.device)
            check_parts(folder, found.parts if everywhere else found.parts[:1])


def check_resumed(out: Path, settings: StudySettings, plan: Sequence[PlannedCell], *, everywhere: bool = True) -> float:
    """What a study has used of its budget (`used_budget_s`), once its checkpoints are checked (`check_checkpoints`)."""
    check_checkpoints(out, plan, everywhere=everywhere)
    return used_budget_s(out, settings)


def used_budget_s(out: Path, settings: StudySettings) -> float:
    """Seconds that a study has used of its budget, where it goes on because that is larger now; else 0.

    It goes on if its earlier budget has ended a cell: with all cells, in turn, for each is compared with another one in
    the same blocks. Raises UsageError where it cannot.
    """
    if settings.budget_s is None or not (out / "study.json").exists():
        return 0.0
    run = load_run(out)
    ended = any(cell.record.ended_by == "budget" for cell in run.cells.values())
    used_s = run.study.used_s or (run.study.asked.budget_s or 0.0) * ended
    if not used_s or settings.budget_s <= used_s:
        return 0.0
    if settings.evaluate == "end":
        raise UsageError(
            f"a larger budget was given; the cells of {out} were evaluated after their last step\n"
            "Give another --out: with further steps they would train from the beginning."
        )
    for name in run.cells:
        if not has_all_lines(cell_folder(out, name)):
            raise UsageError(
                f"a larger budget was given; lines of {name} in {out} are gone, which columns still have\n"
                "Give another --out, or put the lines back: nothing can be added to columns."
            )
    return used_s


def begin_further(study: StudyRecord, settings: StudySettings, used_s: float) -> None:
    """Note that a study goes on with a larger budget: should it be stopped, it still can (`used_budget_s`)."""
    study.settings, study.used_s = study.asked.model_copy(update={"budget": settings.budget}), used_s
    study.warnings = [each for each in study.warnings if each.code != OVER_BUDGET]  # of the smaller one


def end_further(out: Path) -> None:
    """Note that the larger budget is used up too."""
    study = read_record(StudyRecord, own(out, "study.json"))
    study.used_s = None
    write_study(out, study)


def other_code(out: Path, now: UserCode | None, *, resume: Resume) -> bool:
    """Whether what is in the folder was measured with other code of the user's, and is to be measured anew.

    Raises UsageError where it was, unless `resume` is "anew".
    """
    if not (out / "study.json").exists():
        return False
    study = read_record(StudyRecord, own(out, "study.json"))
    then = [each.user_code for each in (study.provenance, *study.sessions) if each.user_code is not None]
    changed = {*different_files(then[-1] if then else None, now), *changed_files(imported(out))}
    if changed and resume != "anew":
        raise UsageError(
            f"{out} was measured with other code of yours: {named(sorted(changed))} has changed since\n"
            "Put it back, measure everything again with --resume --anew, or give another --out."
        )
    return bool(changed)


def set_aside(out: Path) -> Path:
    """Move what was measured into a run folder of its own below `out`, and return that; study.json stays.

    A crash leaves every sample in one of the two, and the next --anew goes on. Raises OutputError where it cannot be.
    """
    place = own(out, EARLIER)
    try:
        number = 1 + max((int(each.name) for each in place.glob("*") if each.name.isdecimal()), default=0)
        target = place / str(number)
        target.mkdir(parents=True)
        for name in (*COPIED, *MOVED):
            source = own(out, name) if name in COPIED else out / name
            if name in MOVED and source.exists():
                source.rename(target / name)
            elif source.is_dir():
                shutil.copytree(source, target / name)
            elif source.exists():
                shutil.copy2(source, target / name)
    except OSError as error:
        raise OutputError(
            f"cannot set aside what is in {out}: {error.strerror}\nGive a folder you may write to with --out."
        ) from None
    return target


def settings_to_resume(out: Path | str | None, given: dict[str, Any]) -> StudySettings:
    """Settings of the study in `out` with what is given on top.

    Raises UsageError without `out`, for settings that cannot be and for those that differ in what numbers depend on,
    OutputError where `out` holds no study.
    """
    if out is None:
        raise UsageError("--resume needs --out: the folder of the study to go on with (in Python: out=)")
    stored = read_record(StudyRecord, Path(out) / "study.json").settings
    if stored is None:
        raise UsageError(f"{out} holds a run that was only metered: run its script again to go on with it")
    settings = validated(StudySettings, laid_over(stored.model_dump(), given))
    check_settings(Path(out), settings)
    return settings
