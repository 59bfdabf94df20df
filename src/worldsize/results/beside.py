"""What lies in a run folder beside its cells: benchmarks of the links, and further parts of an experiment."""

from collections.abc import Sequence
from pathlib import Path

from worldsize.errors import OutputError
from worldsize.results.comm_records import CommRecord
from worldsize.results.files import is_there, listed, own, read_record
from worldsize.results.records import StudyRecord

ACCURACY = "accuracy"
"""Part of experiment C that is trained to an accuracy."""
THROUGHPUT = "throughput"
"""Part that times steps in turn, where the study itself does not."""
DEMONSTRATIONS = "demonstrations"
"""Part of experiment C in which something is left out."""
LARGE_BATCH = "ddp-large-batch"
"""Experiment C, whose trainings are a part as well; those of any other study are the study itself."""


def part_of_seed(name: str, seed: int) -> str:
    """Name of the part in which the trainings of a study (``), or of a part, are run again with another seed."""
    return "-".join(filter(None, [name, f"seed{seed}"]))


def read_comm(folder: Path, kept: Sequence[str]) -> tuple[dict[int, CommRecord], dict[str, str]]:
    """The collective benchmarks of a run folder by world size, and why others cannot be read.

    Those that were `kept` and are gone are among the others.

    Raises OutputError for a link that leads out of the folder.
    """
    place = own(folder, "comm")
    comm: dict[int, CommRecord] = {}
    unread: dict[str, str] = {}
    try:
        files = listed(place, "w*.json")
    except OutputError as error:
        return {}, {"comm/": str(error)}
    for file in files:
        try:
            record = read_record(CommRecord, own(folder, "comm", file.name))
            comm[record.world_size] = record
        except OutputError as error:
            unread[f"comm/{file.name}"] = str(error)
    gone = {name for name in kept if name.startswith("comm/")} - {f"comm/{file.name}" for file in files}
    return comm, unread | {name: f"{folder / name} is gone: the link is not known" for name in sorted(gone)}


def parts_of(folder: Path, study: StudyRecord) -> tuple[list[str], dict[str, str]]:
    """Names of the further parts of a run folder, in their order, and why others that it had cannot be read.

    A part that was to come last looks, once its folder is gone, as if it had never begun. Raises OutputError for a link
    that leads out of the folder.
    """
    place = own(folder, "parts")
    there: list[str] = []
    lost: dict[str, str] = {}
    try:
        entries = listed(place, "*")
    except OutputError as error:
        return [], {"": str(error)}
    for entry in entries:
        try:
            if is_there(entry / "study.json"):
                there.append(entry.name)
            elif is_there(entry / "cells"):  # it is written before them
                lost[entry.name] = f"{entry / 'study.json'} is gone, and cells of that part are there"
        except OutputError as error:
            lost[entry.name] = str(error)
    for name in _run_before(study, {*there, *lost}) - {*there, *lost}:
        lost[name] = f"{place / name} is gone, and parts that were run after it are there"
    return there, dict(sorted(lost.items()))


def _run_before(study: StudyRecord, begun: set[str]) -> set[str]:
    """The parts that were run before the last of these: one after the other, in the order of study/experiment.py."""
    of_trainings = ACCURACY if study.asked.experiment == LARGE_BATCH else ""
    seeds = [part_of_seed(of_trainings, seed) for seed in study.asked.all_seeds[1:]]
    planned = [*filter(None, [of_trainings]), *seeds]
    if begun & {THROUGHPUT, DEMONSTRATIONS}:
        return {*planned}
    return {*planned[: max((planned.index(name) for name in begun if name in planned), default=0)]}
