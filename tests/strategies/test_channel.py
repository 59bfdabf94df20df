"""The door through which all messages go."""

import math
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.futures import Future

from worldsize.strategies.channel import Channel, flat, payload_bytes
from worldsize.strategies.second_round import SecondRound


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_flat_is_a_view_of_all_elements_whatever_the_order_of_dimensions(sizes: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(sizes))))
    tensor = torch.arange(math.prod(sizes)).reshape(sizes).permute(order)
    found = flat(tensor)
    assert found.tolist() == list(range(math.prod(sizes)))  # as they lie in memory
    found.add_(100)
    assert tensor.flatten().tolist() == sorted_like(tensor, order, sizes)


def sorted_like(tensor: Tensor, order: list[int], sizes: list[int]) -> list[int]:
    """What the elements must be after 100 was added to each, in the order of the permuted tensor."""
    return (torch.arange(100, 100 + math.prod(sizes)).reshape(sizes).permute(order)).flatten().tolist()


@pytest.mark.parametrize("shape", [(8, 3, 3, 3), (8, 4, 1, 1), (1, 4, 3, 3), (8, 1, 3, 3)])
def test_weights_in_channels_last_are_dense(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape).to(memory_format=torch.channels_last)
    gradient = torch.zeros_like(weight)
    flat(gradient).copy_(flat(weight))
    assert torch.equal(gradient, weight)


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(4, 4)[:, ::2], torch.zeros(4, 4)[1:, 1:], torch.zeros(4, 1).expand(4, 4)],
    ids=["every other column", "a corner", "one column four times"],
)
def test_what_is_not_dense_is_refused(tensor: Tensor) -> None:
    with pytest.raises(ValueError, match="not dense"):
        flat(tensor)


def test_payload_is_elements_times_their_size() -> None:
    assert payload_bytes(torch.zeros(3, 5), torch.zeros(2, dtype=torch.float64), torch.zeros(7, dtype=torch.int8)) == (
        60 + 16 + 7
    )


class Witness:
    """Notes what an observer is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def ready(self) -> None:
        self.seen.append(("ready",))

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool, ready: object = None) -> int:
        self.seen.append((kind, payload_bytes, blocking))
        return len(self.seen)

    def announced(self, kind: str, payload_bytes: int) -> int:
        self.seen.append(("announced", kind, payload_bytes))
        return len(self.seen)

    def followed(self, token: int) -> None:
        self.seen.append(("followed", token))

    def awaited(self, token: int) -> None:
        """Unused here."""

    def done(self, token: int) -> None:
        self.seen.append(("done", token))


def test_alone_nothing_travels_and_nothing_is_seen() -> None:
    witness, tensor = Witness(), torch.arange(3.0)
    channel = Channel(0, 1, witness)
    channel.all_reduce(tensor)
    channel.broadcast([tensor])
    channel.gather(tensor, [torch.zeros(3)])
    channel.scatter(tensor, [torch.zeros(3)])
    assert channel.all_reduce_async(tensor, channel.ready()).wait() is tensor
    assert tensor.tolist() == [0, 1, 2]
    assert witness.seen == []


def test_a_message_that_fails_is_never_done() -> None:
    witness = Witness()
    channel = Channel(0, 2, witness)
    with channel.message("broadcast", 8):
        pass
    with pytest.raises(RuntimeError, match="peer"), channel.message("broadcast", 9):
        raise RuntimeError("the peer is gone")
    assert witness.seen == [("broadcast", 8, True), ("done", 1), ("broadcast", 9, True)]


class Arriving:
    """A message that another thread ends, as one of gloo's does."""

    def __init__(self) -> None:
        self.future: Future[list[Tensor]] = Future()

    def get_future(self) -> Future[list[Tensor]]:
        return self.future

    def end(self) -> None:
        in_new_thread(lambda: self.future.set_result([]))


def in_new_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_what_follows_a_message_computes_as_its_worker_does(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the ranks of a job, whose messages end in one thread or another, would come to unlike bits."""
    generator = torch.Generator().manual_seed(0)
    p, q = torch.randn(4, 10, generator=generator), torch.randn(4, 192, generator=generator)
    found: list[Tensor] = []
    in_new_thread(lambda: found.append(p.T @ q))
    if torch.equal(found.pop(), p.T @ q):
        pytest.skip("here a product has the same bits with any number of threads")
    message, channel = Arriving(), Channel(0, 2)
    monkeypatch.setattr(dist, "all_reduce", lambda *given, **named: message)
    done = channel.all_reduce_async(torch.zeros(1), channel.ready()).then(lambda _: found.append(p.T @ q))
    message.end()
    done.wait()
    assert torch.equal(found[0], p.T @ q)


def refused() -> Arriving:
    raise RuntimeError("Connection closed by peer")


def nothing_made() -> Tensor:
    raise ValueError("no share came")


@pytest.mark.parametrize("fails", ["issuing", "making", "the first round"])
def test_a_second_round_that_fails_is_an_error_and_holds_up_no_other(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch prints and drops what a callback raises: who waits for the bucket would wait for ever."""
    rounds = SecondRound(Channel(0, 2, further_group=lambda: None), torch.device("cpu"))
    arrived = Arriving()
    issued = iter([refused] * (fails == "issuing") + [lambda: arrived])
    monkeypatch.setattr(dist, "all_reduce", lambda *given, **named: next(issued)())
    firsts: list[Future[Tensor]] = [Future(), Future()]
    make = nothing_made if fails == "making" else lambda: torch.zeros(1)
    done = [rounds.all_reduce(4, firsts[0], make), rounds.all_reduce(4, firsts[1], lambda: torch.zeros(1))]
    if fails == "the first round":
        firsts[0].set_exception(RuntimeError("lost"))  # type: ignore[arg-type]
    else:
        firsts[0].set_result(torch.zeros(1))
    firsts[1].set_result(torch.zeros(1))
    arrived.end()
    with pytest.raises((RuntimeError, ValueError)):
        done[0].wait()
    assert torch.equal(done[1].wait(), torch.zeros(1))
