"""What the ranks of a group that others have started agree on, and the files that cross it; rank 0 decides."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from worldsize.errors import UsageError
from worldsize.ranks.host_collectives import agree, gather, send_bytes
from worldsize.ranks.setup import Rank
from worldsize.results.files import write_whole
from worldsize.results.rank_files import SPAN_LINES, rank_file
from worldsize.results.traces import rank_trace
from worldsize.study.folder_lock import hold_folder
from worldsize.study.resuming import set_aside

Samples = dict[str, dict[tuple[int, int], Any]]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let rank 0 hold the folder for this context; raises UsageError, on every rank, if another study holds it."""
    with ExitStack() as held:
        from_rank_0(lambda: held.enter_context(hold_folder(folder)))
        yield


def set_aside_elsewhere(folder: Path) -> None:
    """On hosts with file systems of their own, too, samples of other code must not stay where new ones are written.

    Where a host sees what rank 0 has set aside there is nothing left; no rank goes on before all have looked.
    """
    if os.environ.get("LOCAL_RANK", "0") == "0" and dist.get_rank() and (folder / "cells").exists():
        set_aside(folder)
        (folder / "study.json").unlink(missing_ok=True)
    gather([], dist.get_world_size())


def leave_plan(folder: Path) -> None:
    """Leave a copy of study.json on hosts with file systems of their own: there, too, --resume reads the settings."""
    plan = folder / "study.json"
    content = agreed(plan.read_text(encoding="utf-8") if dist.get_rank() == 0 else "")
    if not plan.exists():
        write_whole(plan, content)


def agreed(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    return agree(value, dist.get_world_size())


def from_rank_0(find: Callable[[], Any]) -> Any:
    """What `find` returns on rank 0, as JSON has it, on every rank; its UsageError is raised on every rank."""
    answer: Any = None
    problem: str | None = None
    if dist.get_rank() == 0:
        try:
            answer = find()
        except UsageError as error:
            problem = str(error)
    answer, problem = agreed([answer, problem])
    if problem is not None:
        raise UsageError(problem)
    return answer


def agreed_samples(samples: Samples) -> Samples:
    """Rank 0's samples, on every rank; JSON knows neither arrays nor keys of two numbers."""
    plain = {name: [[*key, list(map(float, times))] for key, times in found.items()] for name, found in samples.items()}
    return {
        name: {(session, block): np.array(times) for session, block, times in found}
        for name, found in agreed(plain).items()
    }


def collect(folder: Path, rank: Rank) -> None:
    """Bring the samples of ranks on other file systems to rank 0's run folder."""
    names: dict[str, int] = {}
    for owner in range(rank.processes):
        files = rank_file(folder, owner), rank_file(folder, owner, SPAN_LINES), rank_trace(folder, owner)
        names |= {str(file.relative_to(folder)): owner for file in files}
    missing = agreed([name for name in names if not (folder / name).exists()])
    mine = [name for name in missing if names[name] == rank.rank and (folder / name).exists()]
    for owner, found in enumerate(gather(mine, rank.processes)):
        for name in found:
            data = send_bytes((folder / name).read_bytes() if rank.rank == owner else b"", owner)
            if rank.rank == 0 and names.get(name) == owner:  # no rank chooses what is written here
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(data)
