"""Why a person's command failed, read from what its launcher printed: one sentence, its place, what to do.

Text only, and nothing of torch: the processes are gone, and what they and their launcher said is all there is. It may
be of several ranks at once, and the last words are the launcher's, which only knows that somebody failed.
"""

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from worldsize.launch.secondary_errors import is_secondary
from worldsize.results.records import ErrorRecord

LINES = 10
LONGEST = 200
"""Characters of a message; what libraries say of memory takes more, and the first sentence has it."""

_PREFIX = re.compile(r"\[(?:rank|default|\d+,)(?P<rank>\d+)\](?:<std(?:err|out)>)?: ?")
"""Of torch after `init_process_group`, of `torchrun --tee`, of `mpirun --tag-output`."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_MARGIN = re.compile(r"\s+[|+] ?")
"""Left of a group of exceptions."""
_HEADER = re.compile(r"(?:.*Traceback \(most recent call last\):|╭.* Traceback \(most recent call last\) .*)$")
"""A progress bar may stand before it in its line; rich draws a box around it."""
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in .+)?$|│ (?P<rich>/\S+):(?P<at>\d+) in ')
_RAISED = re.compile(
    r"(?P<modules>(?:\w+\.)*)(?P<kind>_*[A-Z]\w*|(?<=\.)(?:error|timeout))(?P<colon>:(?: (?P<message>.*))?)?", re.ASCII
)
_SURE = re.compile(r"\w*(?:Error|Warning|Exception|ExceptionGroup|Interrupt|Iteration|Exit)")
"""Errors by their names. One of a script's own may have any, and what it prints beside may look like that."""
_ASIDE = re.compile(
    r"Exception ignored in|Exception in thread|--- Logging error ---|Error in (?:atexit|sys\.excepthook)"
)
"""Stands before a traceback that ends no process."""
_PROCESS = re.compile(r"-- Process (?P<rank>\d+) terminated with the following error:")
_FATAL = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in ')
"""A frame as Python's fault handler writes it, the innermost first."""
_OF_LAUNCHER = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d.* torch/distributed/")
_FOREIGN = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/")
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
"""Ours: a hook of worldsize may stand in a traceback of the person's."""
_SUMMARIES = (
    re.compile(
        r"Root Cause \(first observed failure\):.*?\brank +: (?P<rank>\d+).*?\bexitcode +: (?P<status>-?\d+)", re.DOTALL
    ),
    re.compile(r"process rank (?P<rank>\d+) .{0,300}?exited on signal (?P<signal>\d+)", re.DOTALL),
    re.compile(r"Process name: \[.*?(?P<rank>\d+)\]\s+Exit code: +(?P<status>\d+)"),
    re.compile(r"srun: error: .*?task (?P<rank>\d+): Exited with exit code (?P<status>\d+)"),
    re.compile(r"exits with return code = (?P<status>-?\d+)"),
    re.compile(r"CalledProcessError: Command .*? returned non-zero exit status (?P<status>\d+)"),
    re.compile(r"CalledProcessError: Command .*? died with <Signals\.\w+: (?P<signal>\d+)>"),
)
"""What torchrun, Open MPI (twice), Slurm, DeepSpeed and accelerate (twice) say of the first rank that failed."""
_REFUSED = (
    (re.compile(r"(?:\S+: )?can't open file '(?P<file>.+)': \[Errno \d+\] (?P<why>.+)"), "{why}: {file}"),
    (re.compile(r"\S+: (?P<said>No module named \S+)(?:;.*)?"), "{said}"),
)
_USAGE = (
    (re.compile(r"(?P<said>[\w./-]+(?: [\w-]+)*: error: .+)"), "{said}"),
    (re.compile(r"Error: (?P<said>.+)"), "Error: {said}"),
    (re.compile(r"│ (?P<said>\S.*?) *│"), "Error: {said}"),
)
"""What argparse, click and typer say; only with exit status 2, for compilers and loggers write the like."""
_USAGE_STATUS = 2
_HYDRA = "Set the environment variable HYDRA_FULL_ERROR=1"
_BOOTSTRAP = "An attempt has been made to start a new process before the"
_WHOLE_BOOTSTRAP = f"{_BOOTSTRAP} current process has finished its bootstrapping phase"
_ECHOES = frozenset(
    {
        *("BrokenPipeError", "BrokenProcessPool", "ConnectionResetError"),
        *("KeyboardInterrupt", "ProcessExitedException", "ProcessRaisedException"),
    }
)
"""What is raised where another process has failed, or somebody has ended all."""
_LAUNCHERS_OWN = frozenset({"ChildFailedError", "SignalException"})
_NO_GPU = (
    r"not compiled with CUDA|No CUDA GPUs are available|no NVIDIA driver|no GPUs found|CUDA device but torch\.cuda"
    r"|No HIP GPUs|CUDA driver version is insufficient"
)
_ADVICE = (
    (r"No module named '?([\w.]+)", "Install the package of {0} into the environment of this command."),
    (r"\.py(?: [\w-]+)*: error: |^Error: Missing", "Give the script its arguments: they stand behind its name."),
    (r"^No such file or directory: .*\.py$", "Name the script as it is found from the folder of the command."),
    (_BOOTSTRAP, 'Put the code that runs under `if __name__ == "__main__":`.'),
    (_NO_GPU, "torch finds no GPU here: let the script use the CPU (and gloo), or run it where a GPU is."),
    (r"invalid device ordinal|Duplicate GPU", "There are fewer GPUs than processes: start fewer of them."),
    (r"CUDA out of memory", "Use a smaller batch, or fewer processes on each GPU."),
    (r"signal: Bus error|SIGBUS", "Loader processes need more shared memory (/dev/shm), or use fewer of them."),
    (
        r"SIGKILL|signal: Killed|MemoryError|allocate memory",
        "Use less memory in each worker: a smaller batch or model, fewer loader processes.",
    ),
    (r"SIGSEGV \([^)]*\)$", "Set PYTHONFAULTHANDLER=1: then it says where in the script that was."),
    (
        r"EOF when reading a line",
        "The script asks for an answer, and nobody is there: let it take an argument instead.",
    ),
    (r"EADDRINUSE|Address already in use", "Another process has this port: end it, or give the launcher another."),
)
"""Words of an error → what to do."""


@dataclass(frozen=True)
class Ending:
    """Why a command failed."""

    error: str
    """One sentence: kind of the error, the first line of its message, the place."""
    lines: tuple[str, ...]
    """The last lines of stderr, but for what the launcher says at its end; of stdout where there are none."""
    place: str | None
    """The innermost line of the person's own code, as `train.py:12`."""
    rank: int | None
    advice: str | None = None
    """What to do, where one knows."""

    @property
    def text(self) -> str:
        """The sentence, and what to do in a second line."""
        return self.error if self.advice is None else f"{self.error}\n{self.advice}"


@dataclass
class _Report:
    """One traceback: its frames, the outermost first, and its error."""

    start: int
    end: int
    """Numbers of the first line and of the error's in the text."""
    rank: int | None
    aside: bool = False
    kind: str = ""
    message: str = ""
    frames: list[tuple[str, int]] = field(default_factory=list)


class _Found(NamedTuple):
    """An explanation, before its place and its advice are put to it."""

    said: str
    place: str | None = None
    rank: int | None = None


class _OwnCode:
    """Which files are the person's own: those of the command's folder, its script and what lies beside that."""

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        scripts = [folder / word for word in words if word.endswith(".py")]
        roots = [folder, folder.resolve(), *chain.from_iterable((s.parent, s.resolve().parent) for s in scripts)]
        self.folder = str(folder)
        self.roots = [os.path.normpath(root).rstrip(os.sep) + os.sep for root in roots]

    def place(self, frames: Sequence[tuple[str, int]]) -> str | None:
        """The innermost of `frames` that is their own."""
        for file, line in reversed(frames):
            name = self.name(file)
            if name is not None:
                return f"{name}:{line}"
        return None

    def name(self, file: str) -> str | None:
        """A file as seen from the folder it belongs to; None if somebody else wrote it."""
        path = os.path.normpath(os.path.join(self.folder, file))  # noqa: PTH118 - a text, which may be no path
        if not path.endswith(".py") or _FOREIGN.search(path) or path.startswith(_PACKAGE):
            return None
        return next((path.removeprefix(root) for root in self.roots if path.startswith(root)), None)


@dataclass(frozen=True)
class _Heard:
    """What is known of an end."""

    status: int
    lines: list[str]
    """Of stdout, then of stderr."""
    reports: list[_Report]
    """Those of the launcher's own are not among them."""
    own: _OwnCode
    last_words: list[str]
    failed_rank: int | None = None
    failed_status: int | None = None
    """The first rank that failed and its exit status, or minus the signal, where the launcher names them."""

    def causes(self) -> list[_Report]:
        """Tracebacks that are no echoes; those of the first rank that failed, if any are."""
        every = [each for each in self.reports if not _is_echo(each)]
        first = [each for each in every if each.rank == self.failed_rank is not None]
        return first or every


def explain_end(*, status: int, stderr: str, stdout: str, folder: Path, words: Sequence[str]) -> Ending:
    """Explain why a command failed, from its exit status (or minus the signal) and what it printed.

    `folder` is where it ran, `words` are the command. The last error that is a cause counts: not the launcher's own,
    nor one that only tells that a peer is gone. Of several ranks that of the first one that failed.
    """
    heard = _hear(status, stderr, stdout, _OwnCode(folder, words))
    tried = (_killed, _raised, _signalled, _refused, _silent_rank, _echoed)
    found = next((answer for answer in (find(heard) for find in tried) if answer is not None), _last_words(heard))
    rank = heard.failed_rank if found.rank is None else found.rank
    error = found.said if found.place is None else f"{found.said} ({found.place})"
    return Ending(error, tuple(heard.last_words[-LINES:]), found.place, rank, _advice(error))


def _hear(status: int, stderr: str, stdout: str, own: _OwnCode) -> _Heard:
    beside, said = _clean(stdout), _clean(stderr)
    lines = [*beside, *said]
    reports = _reports(lines)
    launchers = [each for each in reports if _is_launchers(each, own)]
    end = min((each.start for each in launchers), default=len(lines))
    kept = [line for line in lines[len(beside) : end] if line] or [line for line in lines[:end] if line]
    while kept and _OF_LAUNCHER.match(kept[-1]):
        kept.pop()
    text = "\n".join(_PREFIX.sub("", line, count=1) for line in lines)
    matches = [match.groupdict() for pattern in _SUMMARIES for match in pattern.finditer(text)]
    first = matches[0] if matches else {}
    return _Heard(
        status=status,
        lines=lines,
        reports=[each for each in reports if each not in launchers],
        own=own,
        last_words=kept,
        failed_rank=_number(first.get("rank")),
        failed_status=-int(first["signal"]) if first.get("signal") else _number(first.get("status")),
    )


def _clean(text: str) -> list[str]:
    """Lines as a terminal leaves them: without colours, and of a progress bar its last state."""
    return [line.rstrip().rsplit("\r", 1)[-1] for line in _ESCAPE.sub("", text).split("\n")]


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _reports(lines: Sequence[str]) -> list[_Report]:
    """All tracebacks, those of each rank read by themselves, in the order in which they ended."""
    streams: dict[int | None, list[tuple[int, str]]] = {}
    for number, line in enumerate(lines):
        prefix = _PREFIX.match(line)
        rank = int(prefix["rank"]) if prefix else None
        streams.setdefault(rank, []).append((number, line[prefix.end() :] if prefix else line))
    found = [report for rank, stream in streams.items() for report in _Reading(rank).read(stream)]
    return sorted(found, key=lambda report: report.end)


class _Reading:
    """Reads the tracebacks of one rank.

    A frame begins one as well: a SyntaxError has no header, and where ranks write into each other's lines the header
    of one may stand within the other's. What only looks like an error is one if no frame comes after it.
    """

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.found: list[_Report] = []
        self.open: _Report | None = None
        self.unfinished: _Report | None = None  # its message begins in the next line
        self.before = ""

    def read(self, stream: Sequence[tuple[int, str]]) -> list[_Report]:
        """The tracebacks of all lines, each with its number."""
        for number, raw in stream:
            margin = _MARGIN.match(raw)
            line = raw[margin.end() :] if margin else raw
            if line.strip():
                self._read(number, line)
                self.before = line
        self._close()
        return self.found

    def _read(self, number: int, line: str) -> None:
        if self.unfinished is not None:
            self.unfinished.message, self.unfinished = line.strip(), None
        if _HEADER.match(line):
            self._close()
            process = _PROCESS.match(self.before)
            rank = int(process["rank"]) if process else self.rank
            self.open = _Report(number, number, rank, bool(_ASIDE.match(self.before)))
        elif frame := _FRAME.match(line):
            self.open = self.open or _Report(number, number, self.rank)
            self.open.kind = ""
            self.open.frames.append((frame["file"] or frame["rich"], int(frame["line"] or frame["at"])))
        elif self.open is not None and (raised := _RAISED.fullmatch(line)):
            self._end(self.open, number, raised)

    def _end(self, report: _Report, number: int, raised: re.Match[str]) -> None:
        sure = bool(raised["modules"]) or _SURE.fullmatch(raised["kind"]) is not None
        if sure or not report.kind:
            report.kind, report.message, report.end = raised["kind"], (raised["message"] or "").strip(), number
            self.unfinished = report if raised["colon"] and not report.message else None
        if sure:
            self._close()

    def _close(self) -> None:
        if self.open is not None and self.open.kind:
            self.found.append(self.open)
        self.open = None


def _is_launchers(report: _Report, own: _OwnCode) -> bool:
    """Whether this is how a launcher itself ends when a rank has failed."""
    started = report.kind == "CalledProcessError" and own.place(report.frames) is None
    return started or report.kind in _LAUNCHERS_OWN


def _is_echo(report: _Report) -> bool:
    """Whether this only tells that something else has failed."""
    lost = report.kind == "EOFError" and not report.message  # a pipe to another process; input() says more
    loader = "DataLoader worker" in report.message and "exited unexpectedly" in report.message
    gone = is_secondary(ErrorRecord(kind=report.kind, message=report.message))
    return report.aside or lost or loader or gone or report.kind in _ECHOES


def _killed(heard: _Heard) -> _Found | None:
    """SIGKILL: what was said before is not the cause, for nobody hears of that signal."""
    return _Found(_signal_words(signal.SIGKILL)) if _signal_of(heard.status) == signal.SIGKILL else None


def _raised(heard: _Heard) -> _Found | None:
    """The last traceback that is a cause. A signal may follow: threads that are left then end in an abort."""
    causes = heard.causes()
    return _told(heard, causes[-1]) if causes else None


def _signalled(heard: _Heard) -> _Found | None:
    """A signal, to the command or to the rank that failed first."""
    rank = None
    number = _signal_of(heard.status)
    if number is None and heard.failed_status is not None:
        number, rank = _signal_of(heard.failed_status), heard.failed_rank
    if number is None:
        return None
    frames = [(match["file"], int(match["line"])) for match in map(_FATAL.match, heard.lines) if match]
    return _Found(_signal_words(number, rank), heard.own.place(frames[::-1]), rank)


def _refused(heard: _Heard) -> _Found | None:
    """What Python or the parser of the script's arguments says in a line of its own, before anything runs."""
    usage = _USAGE_STATUS in (heard.status, heard.failed_status)
    for line in reversed(heard.lines):
        for pattern, words in (*_REFUSED, *_USAGE) if usage else _REFUSED:
            match = pattern.fullmatch(_PREFIX.sub("", line, count=1))
            if match:
                return _Found(words.format(**match.groupdict()))
    return None


def _silent_rank(heard: _Heard) -> _Found | None:
    """The rank that the launcher names, if others have lost it and it has said nothing itself."""
    others = {each.rank for each in heard.reports}
    if heard.failed_rank is None or not others or others & {None, heard.failed_rank}:
        return None
    return _Found(f"rank {heard.failed_rank} ended with exit status {heard.failed_status}, and did not say why")


def _echoed(heard: _Heard) -> _Found | None:
    """What is left where nobody says more than that somebody else has failed."""
    return _told(heard, heard.reports[-1]) if heard.reports else None


def _last_words(heard: _Heard) -> _Found:
    """The last line, which is what `sys.exit("…")` leaves; of Hydra's the first of the paragraph before its hint."""
    status = heard.status if heard.failed_status is None else heard.failed_status
    lines = heard.last_words
    hint = next((number for number, line in enumerate(heard.lines) if line.startswith(_HYDRA)), None)
    if hint is not None:
        paragraph = "\n".join(heard.lines[:hint]).rstrip().rpartition("\n\n")[2]
        lines = paragraph.strip().splitlines()[:1]
    if not lines:
        return _Found(f"it ended with exit status {status}, and did not say why")
    return _Found(f"it ended with exit status {status}: {_short(_PREFIX.sub('', lines[-1], count=1).strip())}")


def _told(heard: _Heard, report: _Report) -> _Found:
    message = _WHOLE_BOOTSTRAP if report.message == _BOOTSTRAP else _short(report.message)
    said = f"{report.kind}: {message}" if message else report.kind
    return _Found(said, heard.own.place(report.frames), report.rank)


def _short(text: str) -> str:
    """A message, or as many of its sentences as there is room for."""
    if len(text) <= LONGEST:
        return text
    sentences, dot, _ = text[:LONGEST].rpartition(". ")
    return sentences if dot else f"{text[:LONGEST].rstrip()} …"


def _signal_of(status: int) -> signal.Signals | None:
    """The signal that an exit status tells of; shells and containers add 128 to it."""
    number = -status if status < 0 else status - 128
    return signal.Signals(number) if number in set(signal.Signals) else None


def _signal_words(number: signal.Signals, rank: int | None = None) -> str:
    who = "it" if rank is None else f"rank {rank}"
    if number == signal.SIGKILL:
        return f"{who} was killed by SIGKILL; the kernel's out-of-memory killer is the usual sender"
    return f"{who} was ended by {number.name} ({(signal.strsignal(number) or 'a signal').lower()})"


def _advice(error: str) -> str | None:
    for pattern, text in _ADVICE:
        match = re.search(pattern, error)
        if match:
            return text.format(*match.groups())
    return None
