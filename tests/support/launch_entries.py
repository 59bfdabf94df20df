"""Entries of jobs that show how a job behaves: they answer, fail in every way, or hang."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from worldsize.measure.alignment import align
from worldsize.ranks import host_collectives
from worldsize.ranks.heartbeat import beat
from worldsize.ranks.setup import Rank, group_of, make_further_groups
from worldsize.ranks.turns import Reply, Turn, Turns, run_turns
from worldsize.strategies import Channel, World, find_strategy


class Answer(Reply):
    """A reply with a word of the entry's own."""

    said: Any = None


def answer(payload: dict[str, Any], turns: Turns) -> None:
    """Form a group and send something through it, tell what this process is like, then answer each turn."""
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    about = {
        "word": payload["word"],
        "rank": rank,
        "pid": os.getpid(),
        "sum_over_ranks": total.item(),
        "hash_randomization": sys.flags.hash_randomization,
        "greeting": os.environ.get("GREETING"),
    }
    run_turns(turns, Answer(said=about), lambda turn: Answer(said=[rank, turn.op, turn.count]))
    dist.destroy_process_group()


def aligned(payload: dict[str, Any], turns: Turns) -> None:
    """Find the offset of a clock that is `ahead_ns` ahead per rank, on the `boots` that the ranks are told."""
    dist.init_process_group("gloo")
    rank, boots = dist.get_rank(), payload.get("boots")
    ahead_ns = payload["ahead_ns"] * rank
    offset = align(lambda: time.perf_counter_ns() + ahead_ns, boot=boots[rank] if boots else None)
    turns.reply(Answer(said=[offset.offset_ns, offset.error_ns, offset.one_clock]))
    turns.next()


def fail(payload: dict[str, Any], turns: Turns) -> None:
    """In the first turn one rank fails in the way of `payload["how"]`; the others wait for it, and hear its end.

    With `others` = `sleep` they do not even notice.
    """
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    turns.reply(Reply())
    turns.next()
    if rank == payload["rank"]:
        time.sleep(0.3)  # the others are inside the collective by now; it is as well if they are not
        FAILURES[payload["how"]]()
    if payload.get("others") == "sleep":
        time.sleep(3600)
    dist.all_reduce(torch.ones(1))


def hang(payload: dict[str, Any], turns: Turns) -> None:
    """After the first turn rank 0 is in a collective that never ends, because rank 1 sleeps.

    With `deaf`, rank 1 also ignores the signal that asks it to end.
    """
    dist.init_process_group("gloo")
    if payload.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    turns.reply(Reply())
    turns.next()
    if os.environ["RANK"] == "1":
        time.sleep(3600)
    dist.all_reduce(torch.ones(1))


def _raise_value_error() -> None:
    raise ValueError("this model is told to fail")


def _leave() -> None:
    os._exit(3)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


FAILURES = {
    "raise": _raise_value_error,
    "exit": _leave,
    "sigkill": _die,
}


WORDS: list[Any] = [{"steps": [0.1, 1e-300, None], "name": "α" * 50}, "a word"]
"""What two ranks tell each other: unlike in kind and length."""
CONTENTS = (b"", bytes(range(250)) * 4)


class PickleBomb:
    """What JSON does not hold."""


def exchanging(payload: dict[str, Any], turns: Turns) -> None:
    """Tell the other rank something in each way that there is."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    host_collectives.CHUNK_BYTES = 300
    sent = [
        host_collectives.send_bytes(content if rank == source else b"", source)
        for source, content in enumerate(CONTENTS)
    ]
    said = {
        "gathered": host_collectives.gather(WORDS[rank], 2),
        "agreed": host_collectives.agree(WORDS[rank], 2),
        "bytes": [[len(each), sum(each)] for each in sent],
    }
    try:
        host_collectives.gather(PickleBomb(), 2)
    except TypeError as error:
        said["refused"] = str(error)
    turns.reply(Answer(said=said))
    turns.next()


def waiting(payload: dict[str, Any], turns: Turns) -> None:
    """Rank 1 waits for rank 0 far longer than the group of both allows."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=1))
    if payload["between_cpus"]:
        host_collectives.open_between_cpus()
    if dist.get_rank() == 0:
        time.sleep(4)
    agreed = host_collectives.agree("at last", 2)
    gathered = host_collectives.gather(dist.get_rank(), 2)
    turns.reply(Answer(said=[agreed, gathered, host_collectives.between_cpus() is not None]))
    host_collectives.close_between_cpus()
    turns.next()


def wrapped_alone(payload: dict[str, Any], turns: Turns) -> None:
    """Rank 0 trains one worker in each wrapper, while rank 1 takes no part; a collective of both would end the job."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    make_further_groups()
    done = []
    if dist.get_rank() == 0:
        for name in payload["strategies"]:
            world = World(Channel(0, 1), 1, torch.device("cpu"), group=group_of(1))
            strategy = find_strategy(name)(world)
            strategy.wrap(torch.nn.Linear(4, 2))(torch.ones(1, 4)).sum().backward()
            strategy.synchronise()
            done.append(name)
    turns.reply(Answer(said=host_collectives.gather(done, 2)))
    host_collectives.close_between_cpus()
    turns.next()


def bound(payload: dict[str, Any], turns: Turns) -> None:
    """Let each rank run where it is told, one way after the other, and say how it finds all of them bound."""
    from worldsize.study.inside_cells import bound_here

    dist.init_process_group("gloo")
    rank, said = Rank.from_environment(), list[Any]()
    for masks in payload["masks"]:
        os.sched_setaffinity(0, masks[rank.rank])
        found = bound_here(rank)
        said.append(found and [found.masks, found.threads])
    turns.reply(Answer(said=said))
    turns.next()


def stop_beating(payload: dict[str, Any], turns: Turns) -> None:
    """After the first turn rank 1 begins nothing more, and the others wait for it."""
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    for _ in range(3):
        beat()
    turns.reply(Reply())
    turns.next()
    if rank == 1:
        time.sleep(3600)
    beat()
    dist.all_reduce(torch.ones(1))


def with_helper(payload: dict[str, Any], turns: Turns) -> None:
    """Start a process, and in each turn take a file lock that a thread of ours holds for a while after the reply."""
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])

    def locked(turn: Turn) -> Answer:
        held = os.open(payload["lock"], os.O_RDWR | os.O_CREAT)
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(payload["held_s"], os.close, [held]).start()
        return Answer(said=turn.count)

    run_turns(turns, Answer(said=helper.pid), locked)
    helper.kill()
