"""What follows a message on a device: futures that know its streams, and memory that several streams use.

A device's collective has a future that is done as soon as the work is given to it. What is chained to it runs on the
host at once, and on the device on a stream of its own, which waits for the message. Two things must be said by
hand there: on which device a future's value is made, or nobody waits for it; and which stream uses memory that another
one has asked for, or that one gives it away too soon. On a CPU all of this does nothing.
https://docs.pytorch.org/docs/stable/futures.html, https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.futures import Future


def future_on(device: torch.device) -> Future[Any]:
    """A future whose value will be made on this device: whoever waits for it lets their stream wait for the value."""
    return Future() if device.type == "cpu" else Future(devices=[device])


def used_here(*tensors: Tensor) -> None:
    """Keep the memory of tensors that another stream has asked for until the current one is done with it."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            tensor.record_stream(torch.accelerator.current_stream(tensor.device))


def after_all(futures: Sequence[Future[Any]], make: Callable[[list[Any]], Tensor], device: torch.device) -> Future[Any]:
    """What `make` makes of the values of all futures, once they are there. Raises what one of them has raised.

    torch's `collect_all` has no device: what is chained to it would wait for nothing.
    """
    made = future_on(device)

    def finish(_: Future[Any]) -> None:
        try:
            with _own_stream(device):
                made.set_result(make([each.wait() for each in futures]))  # all are done: no host waits here
        except Exception as error:  # torch would print and drop it, and who waits would wait for ever
            made.set_exception(error)

    torch.futures.collect_all(list(futures)).add_done_callback(finish)
    return made


@contextmanager
def _own_stream(device: torch.device) -> Iterator[None]:
    """Work on a stream of the device that nothing else waits for."""
    if device.type == "cpu":
        yield
        return
    before = torch.accelerator.current_stream(device)
    torch.accelerator.set_stream(torch.Stream(device))
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)
