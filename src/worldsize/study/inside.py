"""A run whose workers someone else has started: torchrun on each node, one process per worker.

Every rank runs the same schedule on the same replies, so all reach the same decisions; rank 0 alone writes the
records (study/thread_executor.py has the workers).
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from worldsize.config import Room, StudySettings
from worldsize.errors import RunError, UsageError
from worldsize.measure.conditions import Watch
from worldsize.measure.limits import begin_to_count_memory
from worldsize.ranks.host_collectives import gather
from worldsize.ranks.setup import Rank, choose_device, make_further_groups, process_group
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell, Run, load_run, new_run_folder
from worldsize.results.records import Findings, WarningRecord
from worldsize.study.agreeing import (
    agreed,
    agreed_samples,
    collect,
    from_rank_0,
    leave_plan,
    locked,
    set_aside_elsewhere,
)
from worldsize.study.budget import (
    began_s,
    check_budget,
    over_budget,
    until_s,
    with_default_protocol,
    with_fitting_batch,
)
from worldsize.study.experiment import further_parts
from worldsize.study.inside_cells import bound_here, cells_here
from worldsize.study.inside_links import measure_inside
from worldsize.study.ledger import Ledger
from worldsize.study.listener import Listener, Silence
from worldsize.study.pace import Pace
from worldsize.study.plan import PlannedCell
from worldsize.study.resuming import Resume, check_resumed, end_further, other_code
from worldsize.study.run import check_folder, note, open_study
from worldsize.study.running import pack_complete, run_to_its_end, stoppable_group
from worldsize.study.schedule import Schedule
from worldsize.study.thread_executor import ThreadExecutor
from worldsize.study.tracking import tracked
from worldsize.trackers import check_trackers
from worldsize.training.probe import look


def run_inside(
    settings: StudySettings,
    out: Path | None,
    command: Sequence[str],
    listener: Listener | None = None,
    *,
    name: str = "train",
    resume: Resume = False,
    opened: Callable[[Path], None] = lambda folder: None,
) -> Run | None:
    """Run the cells of `settings` as this rank of the group, then the further parts of its experiment.

    Returns the run on rank 0, None elsewhere. A cell of one worker runs on rank 0 while the others wait for its
    replies. `opened` is told the run folder as soon as rank 0 has a study in it. Raises UsageError where a world size
    was asked for that is not the one that was started, RunError on each rank that failed, Interrupted when the user
    stops it; what was measured until then is kept.
    """
    rank = Rank.from_environment()
    held: list[Path] = []

    def hold(folder: Path) -> None:
        held.append(folder)
        opened(folder)

    with stoppable_group(lambda: held[0] if held else None, rank.rank):
        begin_to_count_memory()
        settings = _fitting(settings, rank)
        check_trackers(settings.log)
        ready = _prepared(settings, rank)
        device = choose_device(rank, ready.cells[-1].placement)
        here = _Here(rank, device, command, (rank.rank == 0 and listener) or Silence())
        # What is wrong with the further parts is said before the first one is measured.
        further = further_parts(settings, rank.processes, ready.findings.train_samples)
        with process_group(rank, ready.cells[-1].placement, device):
            make_further_groups()
            ready = _where_bound(_with_batch(ready, rank), rank)
            folder = Path(agreed(str(out or new_run_folder(name))))
            _in_turns(ready, folder, here, resume=resume, opened=hold)
            for part, its_settings in further.items():
                place = folder / "parts" / part
                begun = agreed((place / "study.json").exists())
                next_one = _where_bound(_with_batch(_prepared(_fitting(its_settings, rank), rank), rank), rank)
                _in_turns(next_one, place, here, resume=begun and resume)
        return load_run(folder) if rank.rank == 0 else None


@dataclass(frozen=True)
class _Here:
    """This rank, and who hears of it."""

    rank: Rank
    device: torch.device
    command: Sequence[str]
    listener: Listener


@dataclass(frozen=True)
class _Ready:
    """A study that this rank can run: what is known of it before its folder is opened."""

    settings: StudySettings
    findings: Findings
    cells: list[PlannedCell]
    absent: list[WarningRecord]


def _prepared(settings: StudySettings, rank: Rank) -> _Ready:
    settings = with_default_protocol(settings)
    findings = look(settings, Room(on_nodes=rank.processes))
    cells, absent = cells_here(settings, findings, rank)
    return _Ready(settings, findings, cells, absent)


def _with_batch(ready: _Ready, rank: Rank) -> _Ready:
    """The same with the local batch that rank 0 chooses, where none was given: each sees a rate of its own."""
    sharing = 1 if ready.findings.gpus else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    settings, smaller = with_fitting_batch(ready.settings, ready.findings, sharing)
    chosen = agreed(settings.batch_sizes)
    if chosen is None or ready.settings.batch_sizes:
        return ready
    settings = settings.model_copy(update={"batch_sizes": tuple(chosen)})
    cells, absent = cells_here(settings, ready.findings, rank)
    return _Ready(settings, ready.findings, cells, [*absent, *smaller])


def _where_bound(ready: _Ready, rank: Rank) -> _Ready:
    """The same with each rank on the cores that it alone may use, where whoever started the ranks has bound them so."""
    bound = bound_here(rank)
    if bound is None:
        return ready
    cells, absent = cells_here(ready.settings, ready.findings, rank, bound)
    return replace(ready, cells=cells, absent=absent)


def _in_turns(
    ready: _Ready,
    folder: Path,
    here: _Here,
    *,
    resume: Resume,
    opened: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Run what is missing of one study in `folder`; afterwards rank 0 has the samples of all ranks there."""
    anew = _anew(folder, ready.findings, resume=resume)
    with locked(folder):
        _all_cells(ready, folder, here, anew=anew, opened=opened)


def _all_cells(
    ready: _Ready,
    folder: Path,
    here: _Here,
    *,
    anew: bool,
    opened: Callable[[Path], None],
) -> None:
    settings, cells, rank = ready.settings, ready.cells, here.rank
    before, session, used_s = _opened(folder, settings, cells, ready.findings, here.command, anew=anew)
    end_s = agreed(until_s(settings, began_s(), used_s))
    if rank.rank == 0:
        opened(folder)
    watch = _watch(rank)
    ledger = Ledger(folder, session, before, writing=rank.rank == 0, watch=watch)
    links, slow = measure_inside(folder, settings, cells, rank, here.device, here.command)
    executor = ThreadExecutor(folder, rank, here.device, session, links)
    done = agreed([name for name, cell in before.items() if cell.record.state == "complete"])
    trackers = settings.log if rank.rank == 0 else ()
    with tracked(trackers, folder, session, here.listener, keep=partial(note, folder)) as everyone:
        todo = [c for c in cells if used_s or c.id not in done]
        # All ranks go by the clock of rank 0, or they would decide differently.
        pace = Pace(settings, todo, now_s=lambda: float(agreed(time.monotonic())), until_s=end_s, launches=False)
        schedule = Schedule(todo, settings, executor, ledger, everyone, pace=pace)
        schedule.samples = agreed_samples(schedule.samples)  # of earlier sessions, which rank 0 alone has
        run_to_its_end(schedule, ready.findings)
    if executor.error:
        raise RunError(executor.error.message)
    for cell in cells:
        collect(cell_folder(folder, cell.id), rank)
    if rank.rank == 0:
        if used_s:
            end_further(folder)
        note(folder, [*ready.absent, *slow, *over_budget(settings, pace)])
        ledger.summarise_again()
        note(folder, pack_complete(folder))


def _watch(rank: Rank) -> Watch | None:
    """Who sees what else goes on on the machine of rank 0: rank 0, which knows who else there belongs to the study."""
    everyone = gather([socket.gethostname(), os.getpid()], rank.processes)
    here = [pid for host, pid in everyone if host == everyone[0][0] and pid != os.getpid()]
    return Watch(here) if rank.rank == 0 else None


def _fitting(settings: StudySettings, rank: Rank) -> StudySettings:
    """The settings with the world sizes that can be had here, one worker and all; raise UsageError for others."""
    if settings.script:
        raise UsageError(
            "script was given, and torchrun has started the workers; a study of a script starts its own\n"
            "Leave torchrun out, or meter the script in it: WORLDSIZE_METER=FOLDER torchrun … (docs/own-training.md)."
        )
    sizes = settings.world_sizes or tuple(sorted({1, rank.processes}))
    if settings.sweep or not set(sizes) <= {1, rank.processes} or rank.processes not in sizes:
        raise UsageError(
            f"world sizes {', '.join(map(str, sizes))} were given, and {rank.processes} process(es) were started\n"
            f"Give {rank.processes}, or 1,{rank.processes}, or leave it out. A sweep starts its processes itself."
        )
    if settings.max_restarts or settings.min_workers:
        raise UsageError(
            "max_restarts or min_workers was given; here the workers belong to what started them\n"
            "Give torchrun its own --max-restarts and this command --resume, or leave it out."
        )
    return settings.model_copy(update={"world_sizes": tuple(sizes), "hosts": None, "link": None, "link_latency": None})


def _opened(
    folder: Path,
    settings: StudySettings,
    cells: Sequence[PlannedCell],
    findings: Findings,
    command: Sequence[str],
    *,
    anew: bool,
) -> tuple[Mapping[str, Cell], int, float]:
    """Open the study on rank 0; returns the cells of earlier sessions (there alone) and the number of this session.

    And the seconds of a larger budget that are used already (study/resuming.py).

    Raises UsageError, on every rank, if it cannot be opened.
    """
    before: Mapping[str, Cell] = {}

    def opened() -> tuple[int, float]:
        nonlocal before
        used_s = 0.0 if anew else check_resumed(folder, settings, cells, everywhere=False)
        check_budget(settings, cells, findings, time.monotonic() - began_s(), used_s)
        before, session = open_study(folder, settings, cells, findings, command, anew=anew, used_s=used_s)
        return session, used_s

    session, used_s = from_rank_0(opened)
    if anew:
        set_aside_elsewhere(folder)
    leave_plan(folder)
    return before, session, used_s


def _anew(folder: Path, findings: Findings, *, resume: Resume) -> bool:
    """Whether all is measured again, since rank 0 sees other code; raises UsageError, on every rank, for what may not.

    Rank 0's view is enough: all ranks run the code that it runs.
    """

    def other() -> bool:
        check_folder(folder, resume=resume)
        return other_code(folder, findings.user_code, resume=resume)

    return bool(from_rank_0(other))
