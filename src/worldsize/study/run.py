"""Run a study from its settings to its run folder, or go on with one that was stopped."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from worldsize.config import StudySettings
from worldsize.config.redact import HIDDEN
from worldsize.errors import OutputError, UsageError
from worldsize.launch.by_hand import torchrun_words
from worldsize.launch.cluster import Cluster, ThisMachine
from worldsize.launch.environment import worker_environment
from worldsize.launch.slurm.files import SUBMISSIONS
from worldsize.launch.warm import WARM
from worldsize.measure.conditions import Watch
from worldsize.measure.machine import busy_warning, provenance, snapshot_host
from worldsize.results.files import own, read_record
from worldsize.results.folder import Cell, Run, load_run, write_study
from worldsize.results.provenance import Provenance
from worldsize.results.records import Findings, StudyRecord, WarningRecord
from worldsize.results.replay import Replay, write_replay
from worldsize.study import commands_on_node
from worldsize.study.budget import (
    check_budget,
    over_budget,
    until_s,
    with_default_protocol,
    with_fitting_batch,
)
from worldsize.study.comm import NO_LINKS, check_hosts, with_hosts
from worldsize.study.command_executor import CommandExecutor
from worldsize.study.commands_on_node import CommandsOnNode
from worldsize.study.executor import Executor
from worldsize.study.folder_lock import hold_folder
from worldsize.study.job_executor import JobExecutor
from worldsize.study.ledger import Ledger
from worldsize.study.links import link_costs, measure_links, needed
from worldsize.study.listener import Listener, Silence
from worldsize.study.pace import Pace
from worldsize.study.plan import PlannedCell, left_out, make_plan, sharing_cores, world_sizes
from worldsize.study.probe import probe
from worldsize.study.restarts import Restarts, Shrink, is_shrunk
from worldsize.study.resuming import (
    Resume,
    begin_further,
    check_resumed,
    check_settings,
    end_further,
    other_code,
    set_aside,
)
from worldsize.study.running import pack_complete, run_to_its_end, stoppable
from worldsize.study.schedule import Schedule
from worldsize.study.sweep import Sweep
from worldsize.study.tracking import tracked
from worldsize.trackers import check_trackers


def run_study(  # noqa: PLR0913 - what a caller says comes by name
    settings: StudySettings,
    out: Path,
    *,
    resume: Resume = False,
    command: Sequence[str] | None = None,
    listener: Listener | None = None,
    cluster: Cluster | None = None,
    began_s: float | None = None,
    replay: Replay | None = None,
) -> Run:
    """Run all cells that are missing in `out`; returns what is in the folder afterwards.

    They run on this machine, or on the nodes of `cluster`. A budget counts from `began_s` on time.monotonic(), or from
    now; where a study ended with its budget, the difference to a larger one is used for further blocks of all cells.
    `replay` is what a rehearsal begins with, and keeps. A cell that fails is a row with its reason. Raises
    UsageError for what cannot be run, OutputError for a folder that cannot be used, Interrupted when the user stops it;
    what was measured until then is in the folder.
    """
    listener, cluster, command = listener or Silence(), cluster or ThisMachine(), command or sys.argv
    began_s = time.monotonic() if began_s is None else began_s
    settings = with_default_protocol(settings)
    check_unredacted(settings)
    check_trackers(settings.log)
    check_folder(out, resume=resume)
    with stoppable(lambda: out), hold_folder(out), WARM.held():
        findings = probe(settings, cluster)
        anew = other_code(out, findings.user_code, resume=resume)
        settings, decided = _decided(settings, findings, cluster)
        plan = make_plan(settings, findings, cluster.cores, cluster)
        check_hosts(settings, max(cell.placement.processes for cell in plan))
        used_s = 0.0 if anew else check_resumed(out, settings, plan)
        check_budget(settings, plan, findings, time.monotonic() - began_s, used_s)
        before, session = open_study(out, settings, plan, findings, command, cluster, anew=anew, used_s=used_s)
        if replay is not None:
            write_replay(out, replay)
        note(out, decided)
        todo = [] if settings.sweep else _cells_to_run(out, settings, plan, command, cluster, further=used_s > 0)
        with tracked(settings.log, out, session, listener, keep=partial(note, out)) as everyone:
            if settings.sweep:
                _sweep(out, settings, plan, findings, Ledger(out, session, before), everyone, cluster)
            else:
                ledger = Ledger(out, session, before, watch=Watch() if cluster.here else None)
                until = until_s(settings, began_s, used_s)
                schedule = _schedule(settings, todo, findings, ledger, everyone, cluster, until)
                run_to_its_end(schedule, findings)
                note(out, over_budget(settings, schedule.pace))
        if used_s:
            end_further(out)
        note(out, pack_complete(out))
    return load_run(out)


def _cells_to_run(
    out: Path,
    settings: StudySettings,
    plan: Sequence[PlannedCell],
    command: Sequence[str],
    cluster: Cluster,
    *,
    further: bool,
) -> list[PlannedCell]:
    """The cells that are not complete, or all to go `further`; measures unknown links first."""
    run = load_run(out)
    done = set() if further else run.complete
    todo = [cell for cell in plan if cell.id not in done]
    if needed(run, settings):
        note(out, measure_links(out, settings, todo, command, cluster))
    return todo


def _schedule(
    settings: StudySettings,
    todo: list[PlannedCell],
    findings: Findings,
    ledger: Ledger,
    listener: Listener,
    cluster: Cluster,
    until_s: float | None,
) -> Schedule:
    """The turns of the cells that are to be timed or trained, and who runs them."""
    executor = _executor(settings, ledger, cluster)
    fewer = Shrink(ledger.run, settings.min_workers, findings.processes, ledger, cluster).after
    restarts = Restarts(settings.max_restarts, ledger, fewer)
    # A command cannot be rolled back; a rehearsal computes nothing, so another launch of it tells nothing new.
    plain, replays = bool(settings.script or settings.replay), settings.replay is not None
    pace = Pace(settings, todo, now_s=time.monotonic, until_s=until_s, launches=not replays, plain=plain)
    return Schedule(todo, settings, executor, ledger, listener, restarts=restarts, pace=pace)


def _executor(settings: StudySettings, ledger: Ledger, cluster: Cluster) -> Executor:
    if settings.script:
        return _executor_of_commands(settings, ledger, cluster)
    return JobExecutor(
        ledger.run,
        ledger.session,
        settings.emulated,
        link_costs(load_run(ledger.run)),
        cluster,
        hang_timeout_s=settings.hang_timeout_s,
        ran_again=ledger.ran_again,
    )


def _executor_of_commands(settings: StudySettings, ledger: Ledger, cluster: Cluster) -> Executor:
    """Commands of this process, or of a program on the first node where that is another machine."""

    def noted(warning: WarningRecord) -> None:
        note(ledger.run, [warning])

    run = ledger.run.absolute()
    shared = {name: getattr(settings, name) for name in ("hang_timeout_s", "one_at_a_time", "in_place")}
    there = json.dumps({"run": str(run), "session": ledger.session, **shared})
    program = cluster.program(commands_on_node.__name__, there, run)
    if program is not None:
        return CommandsOnNode(program, noted=noted, ended_by_itself=ledger.ended_by_itself)
    return CommandExecutor(
        ledger.run,
        ledger.session,
        hang_timeout_s=settings.hang_timeout_s,
        one_at_a_time=settings.one_at_a_time,
        in_place=settings.in_place,
        hosts=settings.emulated,
        cluster=cluster,
        noted=noted,
        ended_by_itself=ledger.ended_by_itself,
    )


def _sweep(
    out: Path,
    settings: StudySettings,
    firsts: list[PlannedCell],
    findings: Findings,
    ledger: Ledger,
    listener: Listener,
    cluster: Cluster,
) -> None:
    """Run the trials of a sweep; no worker is left when this returns."""
    executor = JobExecutor(
        out, ledger.session, settings.emulated, cluster=cluster, hang_timeout_s=settings.hang_timeout_s
    )
    listener.planned(firsts, 0)
    try:
        Sweep(out, settings, findings, executor, ledger, listener).sweep(firsts)
    except KeyboardInterrupt:
        for record in ledger.interrupted():
            listener.ended(record)
        raise
    finally:
        executor.close()


def check_unredacted(settings: StudySettings) -> None:
    """Raise UsageError for a script that comes from where its secrets were not kept: a run folder, a printed file."""
    lost = [script for script in settings.script if HIDDEN in script]
    if lost:
        raise UsageError(
            f"script {lost[0]!r}: {HIDDEN} stands for a redacted secret\nGive --script with the original text."
        )


def check_folder(out: Path, *, resume: Resume) -> None:
    """A folder is either new or asked to be resumed: results of two studies never mix."""
    exists = (out / "study.json").exists()
    if resume and not exists:
        raise UsageError(f"--resume was given, and {out} holds no study")
    if exists and not resume:
        raise UsageError(f"{out} holds a study already; go on with it by --resume, or give another --out")
    # A job that was submitted for it has files of its own there before the study begins.
    if not exists and out.exists() and (not out.is_dir() or any(child.name != SUBMISSIONS for child in out.iterdir())):
        raise OutputError(f"{out} is not an empty folder; give another --out")
    place = out if out.exists() else next(parent for parent in out.absolute().parents if parent.exists())
    if not os.access(place, os.W_OK) or not place.is_dir():
        raise OutputError(f"cannot write in {place}; give a folder you may write to with --out")


def _decided(
    settings: StudySettings, findings: Findings, cluster: Cluster
) -> tuple[StudySettings, list[WarningRecord]]:
    """The same settings with the hosts and the local batch that fit here, where they were left to us; and why."""
    settings, no_hosts = _hosts_decided(settings, findings, cluster)
    settings, smaller = with_fitting_batch(settings, findings, sharing_cores(settings, findings, cluster))
    return settings, [*no_hosts, *smaller]


def _hosts_decided(
    settings: StudySettings, findings: Findings, cluster: Cluster
) -> tuple[StudySettings, list[WarningRecord]]:
    if cluster.nodes and settings.hosts == "auto":  # these are hosts
        return settings.model_copy(update={"hosts": None, **NO_LINKS}), []
    gpus = 0 if settings.backend == "gloo" else len(findings.gpus)
    most = max(world_sizes(settings, findings))
    settings, warning = with_hosts(settings, most, gpus)
    return settings, [warning] if warning else []


def note(out: Path, warnings: Sequence[WarningRecord]) -> None:
    """Add new warnings to study.json."""
    if warnings:
        study = read_record(StudyRecord, own(out, "study.json"))
        study.warnings += [warning for warning in warnings if warning not in study.warnings]
        write_study(out, study)


def open_study(  # noqa: PLR0913 - what a caller says comes by name
    out: Path,
    settings: StudySettings,
    plan: Sequence[PlannedCell],
    findings: Findings,
    command: Sequence[str],
    cluster: Cluster | None = None,
    *,
    anew: bool = False,
    used_s: float = 0.0,
) -> tuple[Mapping[str, Cell], int]:
    """Write study.json; returns the cells of earlier sessions and the number of this one.

    `anew` sets aside what is there; `used_s` are the seconds of the budget already used (resuming.py). Raises
    UsageError for a study of other settings or another machine.
    """
    origin = _origin(settings, findings, command)
    busy = busy_warning(origin.host)
    warnings = [*findings.warnings, *left_out(settings, findings, (cluster or ThisMachine()).nodes)]
    warnings += [busy] if busy else []
    if (out / "study.json").exists():
        check_settings(out, settings)
        if not anew:
            return _reopened(out, settings, plan, origin, warnings, busy, used_s)
        set_aside(out)
    record = StudyRecord(
        name=out.name,
        settings=settings,
        plan=[cell.id for cell in plan],
        provenance=origin,
        data=findings.data,
        model=findings.model,
        warnings=warnings,
    )
    write_study(out, record)
    return {}, 0


def _origin(settings: StudySettings, findings: Findings, command: Sequence[str]) -> Provenance:
    host = snapshot_host(with_gpus=False).model_copy(update={"gpus": findings.gpus})
    return provenance(
        command,
        host=host,
        worker_environment=None if settings.script else worker_environment(settings.emulated),
        code=findings.user_code,
        started_by=torchrun_words(),
    )


def _reopened(
    out: Path,
    settings: StudySettings,
    plan: Sequence[PlannedCell],
    origin: Provenance,
    warnings: Sequence[WarningRecord],
    busy: WarningRecord | None,
    used_s: float,
) -> tuple[Mapping[str, Cell], int]:
    """Add a session to study.json, with the warnings that are new."""
    run = load_run(out)
    study = run.study
    planned, then_planned = {cell.id for cell in plan}, {name for name in study.plan if not is_shrunk(name)}
    other = planned.difference(then_planned) if settings.sweep else planned.symmetric_difference(then_planned)
    if other:
        raise UsageError(
            f"{out} was planned on another machine: here its cells differ by {', '.join(sorted(other))}\n"
            "Resume it where it was begun, or give another --out."
        )
    study.sessions.append(origin)
    if used_s:
        begin_further(study, settings, used_s)
    # Where nothing is timed now, other work disturbs no number.
    if not settings.sweep and not used_s and planned <= run.complete:
        warnings = [warning for warning in warnings if warning != busy]
    study.warnings += [warning for warning in warnings if warning not in study.warnings]
    write_study(out, study)
    return run.cells, len(study.sessions)
