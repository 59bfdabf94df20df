"""The executor of commands as a program on a node of a cluster: processes, memory and clock are those of the node.

The study (CommandsOnNode) sends orders, JSON objects with a number, and each is answered once it is carried out:

    {"id": 3, "do": "take", "cell": …, "turn": …}     → {"id": 3, "answer": …}, {"id": 3, "failed": an ErrorRecord},
                                                        or {"id": 3, "error": a message, "exit_status": 2}

Before an answer {"noted": a warning} and {"ended_by_itself": …} may come, as an executor tells a study. An order that
comes before the last one is carried out interrupts that one as Ctrl-C would: so does a study that is interrupted.

The program, `python -m worldsize.study.commands_on_node PID SETTINGS`, ends with its stdin and with the process PID.
The keepers of its commands see that, and end all that the commands have started (commands/keeper.py).
"""

import itertools
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from worldsize.config.script import TO_RUN
from worldsize.errors import Interrupted, RunError, UsageError, WorldsizeError
from worldsize.launch.cluster import Talking, ThisMachine
from worldsize.launch.local import JobFailed
from worldsize.parent_death import end_with_parent
from worldsize.ranks.turns import Facts, Reply, Turn, read_replies
from worldsize.results.records import ErrorRecord, WarningRecord
from worldsize.study.command_executor import CommandExecutor
from worldsize.study.executor import CellFailed
from worldsize.study.plan import PlannedCell

CELL = TypeAdapter(PlannedCell)
Message = dict[str, Any]


class CommandsOnNode:
    """The study's end: an Executor (executor.py) that hands on what it is asked."""

    def __init__(
        self,
        program: Talking,
        *,
        noted: Callable[[WarningRecord], None],
        ended_by_itself: Callable[[PlannedCell, bool], None],
    ) -> None:
        self._program, self._noted, self._ended_by_itself = program, noted, ended_by_itself
        self._numbers = itertools.count()
        self._lost: ErrorRecord | None = None
        """Why no order is carried out any more."""

    def launch(self, cells: Sequence[PlannedCell]) -> None:
        """Start commands side by side; what goes wrong here shows when a cell is asked for."""
        with suppress(CellFailed):
            self._ask("launch", cells=[_written(cell) for cell in cells])

    def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        """Let a command make the steps of a turn, starting it first if it is not there; raises CellFailed."""
        return read_replies(self._ask("take", cell, idle, turn=turn.message()))

    def facts(self, cell: PlannedCell) -> list[Facts]:
        """Return what the ranks of a command have told of themselves; starts it if it is not there."""
        return [Facts.model_validate(each) for each in self._ask("facts", cell)]

    def alive(self, cell: PlannedCell) -> bool:
        """Return whether the command is there, if only stopped."""
        try:
            return bool(self._ask("alive", cell))
        except CellFailed:  # the program is lost, and all commands with it
            return False

    def finish(self, cell: PlannedCell) -> None:
        """End a command; its files are removed unless they are to be kept."""
        self._ask("finish", cell)

    def close(self) -> None:
        """End all of them, and the program."""
        with suppress(CellFailed):
            self._ask("close")
        self._program.close()

    def _ask(
        self, do: str, cell: PlannedCell | None = None, idle: Callable[[], None] | None = None, **more: Any
    ) -> Any:
        """What the program answers to an order. Raises CellFailed, UsageError and RunError as an executor does."""
        if self._lost is not None:
            raise CellFailed(self._lost)
        number = next(self._numbers)
        self._program.send({"id": number, "do": do, "cell": cell and _written(cell), **more})
        while True:
            try:
                [said] = self._program.receive(idle)
            except JobFailed as failed:
                self._lost = failed.error
                raise CellFailed(self._lost) from None
            if said.get("id") == number:
                return _result(said)
            if "noted" in said:
                self._noted(WarningRecord.model_validate(said["noted"]))
            elif "ended_by_itself" in said and cell is not None:
                self._ended_by_itself(cell, said["ended_by_itself"])


def _written(cell: PlannedCell) -> Message:
    written: Message = CELL.dump_python(cell, mode="json", context=TO_RUN)
    return written


def _result(said: Message) -> Any:
    if "failed" in said:
        raise CellFailed(ErrorRecord.model_validate(said["failed"]))
    if "error" in said:
        raise (UsageError if said["exit_status"] == UsageError.exit_status else RunError)(said["error"])
    return said["answer"]


class Orders:
    """The program's end: what the study sends, and says to it."""

    def __init__(self) -> None:
        # stdin and stdout are for the study alone: no command shall read the one, nor a module print to the other.
        self._reads, self._writes = os.dup(0), os.dup(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        self._lines: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._busy = False
        signal.signal(signal.SIGINT, lambda *_: self._break_off())
        threading.Thread(target=self._hear, daemon=True).start()

    def next(self) -> Message:
        """Wait for the next order."""
        return self._lines.get()

    def say(self, **message: Any) -> None:
        """Tell the study something."""
        line = json.dumps(message).encode() + b"\n"
        while line:
            line = line[os.write(self._writes, line) :]

    def carry_out(self, executor: CommandExecutor, order: Message) -> None:
        """Do what an order asks for, until it is done or the next one interrupts it, and answer."""
        try:
            self._busy = True
            self._break_off()  # the next order may be there already
            answer = _answer(executor, order)
            self._busy = False
        except KeyboardInterrupt:
            self._busy = False
            answer = {"error": "interrupted", "exit_status": Interrupted.exit_status}
        self.say(id=order["id"], **answer)

    def _hear(self) -> None:
        main = threading.main_thread().ident
        assert main is not None, "it runs"
        with os.fdopen(self._reads) as lines:
            for line in lines:
                self._lines.put(json.loads(line))
                signal.pthread_kill(main, signal.SIGINT)
        os._exit(0)  # the study has gone

    def _break_off(self) -> None:
        """End what is being done where another order waits."""
        if self._busy and not self._lines.empty():
            raise KeyboardInterrupt


def _answer(executor: CommandExecutor, order: Message) -> Message:
    try:
        return {"answer": _do(executor, order)}
    except CellFailed as failed:
        return {"failed": failed.error.model_dump(mode="json")}
    except WorldsizeError as error:
        return {"error": str(error), "exit_status": error.exit_status}
    except Exception as error:
        record = ErrorRecord(kind=type(error).__name__, message=str(error), traceback=traceback.format_exc())
        return {"failed": record.model_dump(mode="json")}


def _do(executor: CommandExecutor, order: Message) -> Any:
    if order["do"] == "launch":
        return executor.launch([CELL.validate_python(cell) for cell in order["cells"]])
    if order["do"] == "close":
        return executor.close()
    cell = CELL.validate_python(order["cell"])
    if order["do"] == "take":
        replies = executor.take(cell, Turn.model_validate(order["turn"]), lambda: None)
        return [reply.model_dump(mode="json") for reply in replies]
    if order["do"] == "facts":
        return [facts.model_dump(mode="json") for facts in executor.facts(cell)]
    return getattr(executor, order["do"])(cell)


def main() -> None:
    """Carry out the orders of a study, until it closes."""
    end_with_parent(int(sys.argv[1]))
    settings, orders = json.loads(sys.argv[2]), Orders()
    executor = CommandExecutor(
        Path(settings.pop("run")),
        **settings,
        hosts=None,
        cluster=ThisMachine(),
        noted=lambda warning: orders.say(noted=warning.model_dump(mode="json")),
        ended_by_itself=lambda cell, made_none: orders.say(ended_by_itself=made_none),
    )
    order = {"do": ""}
    while order["do"] != "close":
        order = orders.next()
        orders.carry_out(executor, order)


if __name__ == "__main__":
    main()
