"""Threads of gloo that run Python for us, now and then."""

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from worldsize.hook.states import keep_python_state

MESSAGES = 20


def test_a_thread_of_gloo_keeps_what_python_knows_of_it() -> None:
    """Else it gets a new state at each message: what was local to the thread is gone."""
    store, local = dist.HashStore(), threading.local()
    found: dict[int, list[bool]] = defaultdict(list)

    def joined(rank: int) -> Any:
        return dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60))

    def called(_: Future[list[torch.Tensor]]) -> None:
        keep_python_state()
        found[threading.get_ident()].append(hasattr(local, "been_here"))
        local.been_here = True

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(joined, (0, 1))
    for _ in range(MESSAGES):
        done = first.allreduce([torch.ones(1)]).get_future().then(called)
        second.allreduce([torch.ones(1)]).wait()
        done.wait()
    found.pop(threading.get_ident(), None)  # where a message was over at once
    assert sum(map(len, found.values())) > MESSAGES // 2
    assert [visits[0] for visits in found.values()] == [False] * len(found)
    assert all(all(visits[1:]) for visits in found.values())
    assert any(len(visits) > 1 for visits in found.values())
