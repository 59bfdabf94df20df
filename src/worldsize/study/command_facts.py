"""What the hook has told of a rank, as records of a study."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worldsize.config import CommandSettings
from worldsize.errors import UsageError
from worldsize.measure.user_code import module_files
from worldsize.ranks.turns import Facts
from worldsize.results.imported import imported, note_imported, refuse_other_code
from worldsize.results.records import RankPlace, WarningRecord
from worldsize.traits import TRAITS, TraitsRecord

Told = Mapping[str, Any]
"""What a rank has told of itself (hook/program.py)."""
SEEN_AS = {
    "nothing": TraitsRecord(collectives=()),
    "ddp": TRAITS["ddp"].record(),
    "data-parallel": TRAITS["data-parallel"].record(),
    "fsdp2": TraitsRecord(collectives=("all-gather", "reduce-scatter"), overlaps=True),
    "custom": TraitsRecord(collectives=("all-reduce",)),
}


def facts_of_told(told: Told, samples_per_step: int | None) -> Facts:
    """Return what is kept of a rank that has made its first step; samples were counted unless they are given."""
    return Facts(
        steps_per_epoch=None,
        samples=samples_per_step or max(1, int(told["samples"])),
        traits=SEEN_AS[told["synchronises"]],
        matmul_flops_per_s=None,
        place=RankPlace(host=told["host"], cores=tuple(told["cores"]), threads=told["threads"]),
    )


def check_workers(told: Mapping[int, Told], program: CommandSettings, workers: int) -> None:
    """Raise UsageError where a command does not train with the workers that it was started with."""
    first = next(iter(told.values()))
    if program.alone:
        return
    joined, processes = first["joined"], first["world_size"]
    if processes > 1 and not joined and first["synchronises"] == "data-parallel":
        raise UsageError(
            f"{program.shown} uses DataParallel, where one process drives all GPUs; it was started in {processes}\n"
            "Give --world-sizes 1, or let it use DistributedDataParallel."
        )
    if processes > 1 and not joined:
        raise UsageError(
            f"{program.shown} runs {processes} processes without a process group: each trains by itself\n"
            "Let it call torch.distributed.init_process_group where the variable WORLD_SIZE is above 1, or give "
            "--world-sizes 1."
        )
    if processes * first["workers_of_process"] != workers:
        raise UsageError(
            f"{program.shown} was started for {workers} worker(s), and {processes} train together\n"
            "Put {n} where the launcher is told the number of workers."
        )


def keep_imported(run: Path, cell_id: str, told: Mapping[int, Told], begun: Path) -> None:
    """Keep which files of the person's a launch has imported; `begun` is where it began.

    Raises FactoryError where an earlier launch of the study found another file (method.md §11).
    """
    modules = next(iter(told.values()))["modules"]
    files = module_files(modules, Path.cwd(), begun)
    known = {file.path: file.sha256 for file in imported(run)}
    refuse_other_code(file.name for file in files if known.get(file.path, file.sha256) != file.sha256)
    if files:
        note_imported(run, cell_id, files)


def notices_of(told: Mapping[int, Told], *, given: int | None, troubles: list[str]) -> list[WarningRecord]:
    """Return what a reader of the numbers must know: how samples were counted, and what was not seen."""
    found = []
    first = next(iter(told.values()), {})
    if first and given is None:
        unknown = "How many samples a step has is unknown: each counts as one. Give --samples-per-step."
        text = f"Samples were counted by {first['samples_from']}." if first["samples_from"] else unknown
        found.append(WarningRecord(code="samples-counted", message=text))
    unseen, seen = (sum(each[name] for each in told.values()) for name in ("unseen", "seen"))
    if unseen:
        text = f"{seen:,} of {seen + unseen:,} collectives were seen, so no step is taken apart: C++ calls some."
        found.append(WarningRecord(code="messages-not-seen", message=text))
    if first and first["further_optimizers"]:
        kinds = ", ".join(first["further_optimizers"])
        text = f"{first['optimizers']} optimizers stepped; a step is one of the first that did. The others: {kinds}."
        found.append(WarningRecord(code="several-optimizers", message=text))
    if first and first["device"] != "cpu":
        text = "Marks are of the host's clock: steps and samples/s are right, parts of a step are when work was issued."
        found.append(WarningRecord(code="host-marks", message=text))
    if troubles:
        text = f"Watching the command ended before its end, and its steps are not taken apart: {troubles[0]}."
        found.append(WarningRecord(code="cut-short", message=text))
    return found
