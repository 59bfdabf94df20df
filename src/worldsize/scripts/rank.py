"""One rank of a cell that runs a script: run it as torchrun would, hold it after its first step, take turns."""

import os
import runpy
import shutil
import sys
import threading
import traceback
from concurrent.futures import thread as pools
from multiprocessing import util
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel

from worldsize.config import CellSettings, ScriptSettings
from worldsize.errors import UsageError, WorkerError, WorldsizeError
from worldsize.launch.failure import say_why
from worldsize.measure.limits import forget_peak, matmul_flops_per_s, matmul_precision
from worldsize.measure.user_code import loaded_files, scripts_code
from worldsize.metering.meter import VARIABLE, strategy_of
from worldsize.ranks.host_collectives import open_between_cpus
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.setup import POLLING_THREAD, Rank, choose_device, give_way, pin, where
from worldsize.ranks.turns import Facts, Reply, Turns, WorkOverError
from worldsize.results.files import cell_folder, outputs_folder
from worldsize.results.imported import imported, note_imported
from worldsize.scripts.look import source_of
from worldsize.scripts.scratch import enter_scratch
from worldsize.scripts.workload import ScriptWorkload
from worldsize.strategies import Channel, World
from worldsize.training.rank import Assignment, refuse_other_code, same_code
from worldsize.traits import TRAITS, TraitsRecord


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """The entry that launch calls in each worker. Raises what the script raises, and WorkOverError at its end."""
    assignment = Assignment.model_validate(payload)
    settings, script = assignment.settings, assignment.settings.program
    assert script is not None, "a cell of a script"
    rank = Rank.from_environment()
    pin(rank, assignment.placement, keeps_memory=False)
    device = choose_device(rank, assignment.placement)
    file, root = source_of(script.words)
    code = scripts_code({file: root})
    same_code(assignment, code.files if code else [])
    here = Path.cwd()
    place = cell_folder(Path(assignment.run).absolute(), settings.id)
    enter_scratch(_outputs(place), f"{assignment.session}-{assignment.launch}", first=rank.local_rank == 0)
    workload = ScriptWorkload(script, device)
    util.get_temp_dir()  # for the sockets of all processes that the script starts
    hand = _Hand(assignment, turns, rank, workload, place, here)
    hand.start()
    try:
        with workload.feeding:
            run(script, file, root)
    except SystemExit as left:
        if isinstance(left.code, str):  # Python itself would say it, too
            sys.stderr.write(f"{left.code}\n")
        status = 1 if isinstance(left.code, str) else left.code or None
        workload.gate.leave(ended(script, workload, status, place / "job" / "logs" / f"rank{rank.rank}.stderr"))
    except BaseException as error:
        workload.gate.leave(error if isinstance(error, Exception) else WorkerError(type(error).__name__))
    else:
        workload.gate.leave(ended(script, workload))
    hand.join()
    os.chdir(here)  # where the files of a failing worker are looked for
    workload.go_on()  # Python ends them at its own end, and waits for that
    assert hand.error is not None, "what has left the gate raises there"
    raise hand.error


def run(script: ScriptSettings, file: Path, root: Path) -> None:
    """Run the script as `torchrun` does, as the main module of this process. Raises what it raises."""
    named = script.words[0] == "-m"
    sys.argv = [str(file), *script.words[2 if named else 1 :]]
    sys.path[0] = str(root)
    rank, world_size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    # The other variables by which libraries see that torchrun has started them.
    os.environ.update(TORCHELASTIC_RUN_ID="none", TORCHELASTIC_MAX_RESTARTS="0", ROLE_NAME="default")
    os.environ.update(ROLE_RANK=rank, ROLE_WORLD_SIZE=world_size)
    os.environ.pop(VARIABLE, None)  # who meters itself is not metered twice
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    if named:
        runpy.run_module(script.words[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(file), run_name="__main__")
    pools._python_exit()  # as Python itself does at its end: their threads end when they have done what they were asked
    for thread in threading.enumerate():
        if not (thread.daemon or thread is threading.main_thread()):
            thread.join()


def check_imported(source: Path, place: Path, *, note: bool) -> None:
    """Raise FactoryError where a file that this process has imported was another one in an earlier launch.

    The script works in a copy of `source`. `place` is the folder of its cell, where `note` keeps what it has imported.
    """
    run = place.parents[1]
    found, known = loaded_files(source, _outputs(place).resolve()), {file.path: file.sha256 for file in imported(run)}
    refuse_other_code(file.name for file in found if known.get(file.path, file.sha256) != file.sha256)
    if note and found:
        note_imported(run, place.name, found)


def _outputs(place: Path) -> Path:
    """Where the script works, on this host."""
    return outputs_folder(place, int(os.environ.get("GROUP_RANK", "0")))


def ended(
    script: ScriptSettings, workload: ScriptWorkload, status: object = None, log: Path | None = None
) -> WorldsizeError:
    """What is told of a script that came to its end, or left with a status; what it said then is in `log`."""
    steps = workload.finder.steps
    if status is not None:
        said = last_line(log) if log else ""
        message = f"{script.name} left with status {status} after {steps} steps" + (
            f": {said.rstrip('.')}." if said else "."
        )
        return WorkerError(f"{message}\nAll that it said is in {log}." if log else message)
    if not steps:
        return UsageError(
            f"{script.name} ended without a step of an optimizer, so there is nothing to time\n"
            "Its optimizer must be one of torch.optim or derived from it, and step in the process that torchrun would "
            "start, not in others that the script starts itself."
        )
    return WorkOverError(
        f"{script.name} ended by itself after {steps} steps, too few to time any\n"
        "Let it train for longer, such as more epochs."
    )


def last_line(log: Path) -> str:
    """The last line that says something; empty where there is none."""
    sys.stderr.flush()
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()] if log.exists() else []
    return next((line for line in reversed(lines) if line), "")


PATIENCE_S = 60.0
"""How long a script may take to its first step, at least; or a whole budget, where that is longer."""


class _Hand(threading.Thread):
    """Gives the script its turns: a thread beside that of the script, which stands still while this one works."""

    def __init__(
        self, assignment: Assignment, turns: Turns, rank: Rank, workload: ScriptWorkload, place: Path, source: Path
    ) -> None:
        super().__init__(name="worldsize turns", daemon=True)
        self.assignment, self.turns, self.rank, self.workload = assignment, turns, rank, workload
        self.place, self.source = place, source
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._take_turns()
        except Exception as error:
            self.error = error
            if not self.workload.gate.left:  # the script is held, or runs unseen, and would not end
                say_why(self.place / "job" / f"rank{self.rank.rank}.error.json", error, self.rank.rank)
                traceback.print_exc()
                leave(1)
        else:
            leave(0)

    def _take_turns(self) -> None:
        workload, assignment = self.workload, self.assignment
        budget_s = assignment.settings.budget_s
        workload.gate.wait(None if budget_s is None else max(PATIENCE_S, budget_s))
        device = device_of(workload)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        check_imported(self.source, self.place, note=self.rank.rank == 0)
        workload.begin(self._world(device))
        facts = self._facts(device)
        with Recorder(self.place, self.rank.rank, workload.timeline.clock) as recorder:
            loop = Loop(
                workload,
                recorder,
                assignment.session,
                launch=assignment.launch,
                first_step=assignment.first_step,
                thread=workload.thread,
            )
            self.turns.reply(Reply(facts=facts))
            while (turn := self.turns.next()).op != "finish":
                reply = loop.take(turn)
                reply.ready_batches = workload.ready.after(turn.count + turn.warmup, timed=turn.timed)
                reply.loader_processes = workload.loader_processes  # the largest of all ranks counts on each
                reply.steps, reply.samples, reply.warnings = workload.steps, workload.usual_samples, workload.warnings()
                self.turns.reply(reply)
        self.turns.reply(Reply())

    def _world(self, device: torch.device) -> World:
        """Raises UsageError where the script has not joined the processes to a group."""
        script, settings = self.workload.script, self.assignment.settings
        if self.rank.processes > 1:
            joined = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0
            if joined != self.rank.processes:
                raise UsageError(_not_joined(script, self.rank.processes, joined, self.workload.finder.models))
            if dist.get_backend() == "gloo":
                give_way(POLLING_THREAD)
            else:
                open_between_cpus()
        return World(
            channel=Channel(self.rank.rank, self.rank.processes, self.workload.timeline),
            world_size=settings.world_size,
            device=device,
            cores=self.assignment.placement.cores,
            threads_per_worker=self.assignment.placement.threads_per_worker,
        )

    def _facts(self, device: torch.device) -> Facts:
        assignment, finder = self.assignment, self.workload.finder
        arithmetic = matmul_precision(device, "fp32")
        rate = None if assignment.rate_is_known else matmul_flops_per_s(device, precision=arithmetic)
        forget_peak(device)
        return Facts(
            steps_per_epoch=None,
            samples=self.workload.samples,
            traits=traits_seen([*finder.wrappers, *finder.models], assignment.settings),
            loader_processes=self.workload.loader_processes,
            matmul_flops_per_s=rate,
            matmul_precision=arithmetic,
            place=where(assignment.placement),
        )


def _not_joined(script: ScriptSettings, processes: int, joined: int, models: list[nn.Module]) -> str:
    if any(isinstance(model, DataParallel) for model in models):
        return (
            f"{script.name} uses DataParallel, where one process drives all GPUs; it was started in {processes}\n"
            "Give --world-sizes 1, or let it use DistributedDataParallel."
        )
    found = f"a group of {joined}" if joined else "no process group"
    return (
        f"{script.name} was started in {processes} processes and has {found}: each would train by itself\n"
        "Let it call torch.distributed.init_process_group where the variable WORLD_SIZE is above 1, or give "
        "--world-sizes 1."
    )


def device_of(workload: ScriptWorkload) -> torch.device:
    """Where the script's weights are."""
    parameters = (each for model in workload.finder.models for each in model.parameters())
    return next((each.device for each in parameters), torch.device("cpu"))


def traits_seen(models: list[nn.Module], settings: CellSettings) -> TraitsRecord:
    """How the script synchronises, as far as the kinds of its models show it."""
    if settings.world_size == 1:
        return TraitsRecord(collectives=())
    found = [strategy_of(model, settings.world_size) for model in models] or [strategy_of(None, settings.world_size)]
    name, own = next((each for each in found if each[1] is None), found[0])
    return own or TRAITS[name].record()


def leave(status: int) -> NoReturn:
    """End the process where the script is: what it would do at its end is not wanted."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
    os._exit(status)
