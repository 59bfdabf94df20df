"""An executor without processes: what a cell's steps take is told by the test, on a clock that only they advance.

It writes the same files as real ranks, so that ledger, summaries and --resume are the real ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worldsize.config import CellSettings, StudySettings
from worldsize.errors import UsageError
from worldsize.launch.placement import place
from worldsize.ranks.turns import Facts, Reply, Turn, read_replies
from worldsize.results.check_records import RankCheck
from worldsize.results.files import cell_folder
from worldsize.results.records import ErrorRecord, Findings
from worldsize.results.step_records import StepRecord
from worldsize.results.traces import ProfiledRank
from worldsize.results.training_records import DataRecord, Evaluation, ModelRecord
from worldsize.strategies import STRATEGIES
from worldsize.study.executor import CellFailed
from worldsize.study.plan import PlannedCell
from worldsize.wire import WireBytes

StepTime = Callable[[PlannedCell, float], float]
"""Seconds that a step of a cell takes when it begins at this moment of the fake clock."""

STEPS_PER_EPOCH = 4
WIRE = {"payload_bytes": 8, "busiest_rank_bytes": 8, "other_rank_bytes": 8, "formula": "made"}


def findings(*, gpus: int = 0, samples: int = 16, most: int = 8, world_sizes: tuple[int, ...] = ()) -> Findings:
    """What the look before the start would find, on a machine with so many GPUs."""
    found = Findings(
        data=DataRecord(
            name="made", train_samples=samples, test_samples=0, shape=(3, 8, 8), classes=10, verification="generated"
        ),
        model=ModelRecord(name="made", parameters=1, parameter_bytes=4, buffer_bytes=0, gradient_tensors=1),
        gpus=("A GPU",) * gpus,
        world_sizes=world_sizes,
    )
    for name, strategy in STRATEGIES.items():
        for size in range(1, most + 1):
            try:
                found.processes[f"{name}@{size}"] = strategy.processes(size)
            except UsageError as error:
                found.refused[f"{name}@{size}"] = str(error)
    return found


def planned(strategy: str, world_size: int, settings: StudySettings, *, batch_size: int = 4) -> PlannedCell:
    """A cell of a study, placed on two cores."""
    shared = settings.model_dump(include=set(CellSettings.model_fields))
    cell = CellSettings(**shared, strategy=strategy, world_size=world_size, batch_size=batch_size)
    placement = place(
        world_size=world_size, processes=world_size, threads_per_worker=1, cores=(0, 1), gpus=0, backend="auto"
    )
    return PlannedCell(cell, placement)


def write_steps(
    run: Path,
    cell: PlannedCell,
    times: Sequence[float],
    *,
    session: int,
    block: int,
    first: int,
    timed: bool = True,
    synchronised: bool = True,
    begin_s: float | None = None,
) -> None:
    """Append a line per step to the files of all ranks of a cell; the last rank is the slowest."""
    place = cell_folder(run, cell.id)
    place.mkdir(parents=True, exist_ok=True)
    for rank in range(cell.placement.processes):
        behind = cell.placement.processes - 1 - rank
        with (place / f"rank{rank}.jsonl").open("a", encoding="utf-8") as file:
            now_s = 1e4 * block if begin_s is None else begin_s
            for number, step_s in enumerate(times):
                own = step_s * (1 - 0.1 * behind)
                line = step_line(
                    first + number,
                    own,
                    session=session,
                    block=block,
                    timed=timed,
                    synchronised=synchronised,
                    begin_s=now_s,
                )
                file.write(line)
                now_s += step_s


def step_line(
    step: int,
    step_s: float,
    *,
    session: int = 0,
    block: int = 0,
    timed: bool = True,
    synchronised: bool = True,
    begin_s: float = 0.0,
) -> str:
    """One line of a rank's file: a step that is all forward."""
    record = StepRecord(
        session=session,
        block=block,
        step=step,
        epoch=0,
        timed=timed,
        samples=4,
        loss=1.0,
        start_ns=round(1e9 * begin_s),
        step_s=step_s,
        data_wait_end_s=0.0,
        copy_end_s=0.0,
        forward_end_s=step_s,
        backward_end_s=step_s,
        synchronise_end_s=step_s,
        optimizer_end_s=step_s,
        synchronised=synchronised,
    )
    return record.model_dump_json() + "\n"


def name_of(turn: Turn) -> str:
    """The op of a turn; `warmup`, `alone` (without synchronisation) and `unobserved` for steps that are no training."""
    if turn.op != "steps":
        return turn.op
    if not turn.synchronise:
        return "alone"
    if not turn.observe:
        return "unobserved"
    return "steps" if turn.timed else "warmup"


def made_rank(rank: int) -> dict[str, int]:
    """The record of a rank that was profiled."""
    return ProfiledRank(
        rank=rank, steps=3, zero_ns=0, zero_error_ns=1, clock_offset_ns=0, clock_error_ns=1
    ).model_dump()


def facts(steps: int = 0) -> Facts:
    """What a rank says of itself when it is ready."""
    wire = WireBytes.model_validate(WIRE)
    return Facts(wire=wire, steps_per_epoch=STEPS_PER_EPOCH, steps=steps, matmul_flops_per_s=1e9)


@dataclass
class FakeExecutor:
    """Takes turns at once: it writes the steps and moves its clock by what they took."""

    run: Path
    session: int
    step_time: StepTime = lambda cell, now: 0.5
    fails: dict[tuple[str, str], int] = field(default_factory=dict)
    """(cell, op) → the how-manyth of these turns fails; op `start` is the start of the workers."""
    profile: Callable[[int], dict[str, Any]] = lambda rank: {"profile": made_rank(rank), "profile_problem": None}
    """What a rank replies to a profile turn."""
    stops_after: int | None = None
    """Turns after which the user presses Ctrl-C."""
    memory_samples: int | None = None
    """The largest local batch that fits into the memory of a rank."""
    checkpoints: dict[str, int] = field(default_factory=dict)
    """Steps that a cell has behind it when it is started."""
    clock_s: float = 0.0
    launch_s: float = 0.0
    """What the launch of a cell takes on that clock."""
    loaders: Sequence[int] = ()
    """Processes of a loader of the user's own, of each rank."""
    launched: list[str] = field(default_factory=list)
    log: list[tuple[str, str, int]] = field(default_factory=list)
    """(cell, op, block) of each turn, by the names of `name_of`."""
    turns: list[tuple[str, Turn]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    closed: bool = False
    checks: dict[str, RankCheck] = field(default_factory=dict)
    """Cell → what each of its ranks finds in the short proof; without one, that all is well."""
    checked: list[tuple[str, int]] = field(default_factory=list)
    """(cell, global batches) of each short proof; they are in no log of turns."""
    _steps: dict[str, int] = field(default_factory=dict)
    _recorded: dict[str, int] = field(default_factory=dict)
    _seen: dict[tuple[str, str], int] = field(default_factory=dict)

    def launch(self, cells: Sequence[PlannedCell]) -> None:
        """Do nothing: each is started when it is asked for."""

    def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        if turn.op != "verify" and self.stops_after != len(self.log):
            self.turns.append((cell.id, turn))
        return read_replies(self._answers(cell, turn, idle))

    def _answers(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Any]:
        self.facts(cell)
        op = name_of(turn)
        if op == "verify":
            self.checked.append((cell.id, turn.count))
            self._perhaps_fail(cell, op)
            check = self.checks.get(cell.id, RankCheck(tolerance=1e-4, samples=["00000000"]))
            return [{"check": check.model_dump()}] * cell.placement.processes
        if self.stops_after == len(self.log):
            raise KeyboardInterrupt
        self.log.append((cell.id, op, turn.block))
        self._perhaps_fail(cell, op)
        reply: dict[str, Any] = {"step_s": [], "peak_memory_bytes": 1000 + len(self.log), "evaluation": None}
        if op == "fit":
            fits = self.memory_samples is None or cell.settings.batch_size <= self.memory_samples
            fit = {"fits": fits, "rank": None if fits else 1, "message": None if fits else "can't allocate memory"}
            return [{**reply, "fit": fit}] * cell.placement.processes
        if op == "evaluate":
            done = self._steps[cell.id]
            evaluation = Evaluation(epoch=0, step=done, test_loss=0.5, test_accuracy=0.75, test_samples=8)
            return [{**reply, "evaluation": evaluation.model_dump()}] * cell.placement.processes
        if op == "checkpoint":
            self.checkpoints[cell.id] = self._steps[cell.id]
            return [reply] * cell.placement.processes
        if op == "profile":
            return [{**reply, **self.profile(rank)} for rank in range(cell.placement.processes)]
        times = self._run(cell, turn, idle)
        slowest = cell.placement.processes - 1
        return [
            {
                **reply,
                "step_s": [time * (1 - 0.1 * (slowest - rank)) for time in times],
                "loader_processes": self.loaders[rank] if self.loaders else 0,
            }
            for rank in range(slowest + 1)
        ]

    def _run(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[float]:
        times: list[float] = []
        op, block, first = name_of(turn), turn.block, self._steps[cell.id]
        warmup = turn.warmup
        for number in range(warmup + (turn.count or STEPS_PER_EPOCH)):
            times.append(self.step_time(cell, self.clock_s))
            self.clock_s += times[-1]
            if op != "unobserved" and not (op == "alone" and number < warmup):
                write_steps(
                    self.run,
                    cell,
                    times[-1:],
                    session=self.session,
                    block=block,
                    first=first + number,
                    timed=op != "alone" and turn.timed and number >= warmup,
                    synchronised=op != "alone",
                    begin_s=self.clock_s - times[-1],
                )
            idle()
        if op not in ("alone", "unobserved"):
            self._steps[cell.id] += len(times)
        return times[warmup:]

    def facts(self, cell: PlannedCell) -> list[Facts]:
        if cell.id not in self._steps:
            self._perhaps_fail(cell, "start")
            self.clock_s += self.launch_s
            self.launched.append(cell.id)
            self._steps[cell.id] = self.checkpoints.get(cell.id, self._recorded.get(cell.id, 0))
        return [facts(self._steps[cell.id])] * cell.placement.processes

    def alive(self, cell: PlannedCell) -> bool:
        return cell.id in self._steps

    def finish(self, cell: PlannedCell) -> None:
        done = self._steps.pop(cell.id, None)
        if done is not None and cell.settings.epochs is None:
            self._recorded[cell.id] = done  # the next launch numbers its steps after them
        self.ended.append(cell.id)

    def close(self) -> None:
        self._steps.clear()
        self.closed = True

    def _perhaps_fail(self, cell: PlannedCell, op: str) -> None:
        count = self._seen[cell.id, op] = self._seen.get((cell.id, op), 0) + 1
        if self.fails.get((cell.id, op)) == count:
            self._steps.pop(cell.id, None)
            raise CellFailed(ErrorRecord(kind="ValueError", message=f"ValueError: told to fail at {op}", rank=1))
