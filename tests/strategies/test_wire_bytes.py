"""Bytes on the wire (method.md §4), counted message by message instead of by formula."""

from dataclasses import replace

import pytest

from worldsize.errors import UsageError
from worldsize.strategies import STRATEGIES
from worldsize.traits import TRAITS
from worldsize.wire import Sizes

# The gradients can be cut into 2, 3 and 4 equal parts.
SIZES = Sizes(
    parameter_bytes=12 * 1000,
    gradient_bytes=12 * 1000,
    largest_gradient_bytes=5000,
    buffer_bytes=70,
    input_bytes=500,
    output_bytes=11,
)
WORLD_SIZES = (2, 3, 4)


def ring(world_size: int) -> list[int]:
    """Bytes that each rank sends in a ring all-reduce: one part to its neighbour in each of 2(N−1) rounds."""
    sent = [0] * world_size
    for _ in range(2 * (world_size - 1)):
        for rank in range(world_size):
            sent[rank] += SIZES.gradient_bytes // world_size
    return sent


def through_a_root(world_size: int) -> list[int]:
    """Every other rank sends its gradients to rank 0, which sends the average to every other rank."""
    sent = [0] * world_size
    for rank in range(1, world_size):
        sent[rank] += SIZES.gradient_bytes
        sent[0] += SIZES.gradient_bytes
    return sent


def replicas(world_size: int) -> list[int]:
    """The root sends weights, buffers and inputs to each replica, which sends outputs and gradients back."""
    sent = [0] * world_size
    for rank in range(1, world_size):
        sent[0] += SIZES.parameter_bytes + SIZES.buffer_bytes + SIZES.input_bytes
        sent[rank] += SIZES.output_bytes + SIZES.gradient_bytes
    return sent


def ring_and_buffers(world_size: int) -> list[int]:
    """Each rank but the last of a chain passes rank 0's buffers on; the busiest counts."""
    return [sent + SIZES.buffer_bytes for sent in ring(world_size)]


SENT = {
    "data-parallel": replicas,
    "gather-scatter": through_a_root,
    "all-reduce": ring,
    "ddp": ring_and_buffers,
    "bucketed": ring,
}


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("name", SENT)
def test_bytes_are_those_of_the_messages(name: str, world_size: int) -> None:
    wire, sent = TRAITS[name].wire_bytes(world_size, SIZES), SENT[name](world_size)
    assert wire.payload_bytes == SIZES.gradient_bytes
    assert wire.busiest_rank_bytes == max(sent) == sent[0]
    assert {wire.other_rank_bytes} == set(sent[1:])


def test_replicas_get_frozen_weights_as_well() -> None:
    """9,000 of 12,000 bytes are frozen: all go out to two replicas in each step, and gradients of a quarter come in."""
    wire = TRAITS["data-parallel"].wire_bytes(3, replace(SIZES, gradient_bytes=3000))
    assert wire.busiest_rank_bytes == 2 * (12_000 + 70 + 500)
    assert wire.other_rank_bytes == 3000 + 11
    assert "parameters + buffers" in wire.formula


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize(("backend", "rounds"), [("gloo", 2), ("nccl", 1)])
def test_shards_are_gathered_once_or_twice_and_gradients_scattered(backend: str, rounds: int, world_size: int) -> None:
    """A rank sends its part of each block to its neighbour, who passes it on; gloo takes two rounds for gradients."""
    sizes = replace(SIZES, block_bytes=(4800, 2400), backend=backend)
    sent = 0
    for _ in range(world_size - 1):
        sent += (4800 + 2400) * 2 // world_size + (12_000 - 4800 - 2400) // world_size
        sent += rounds * SIZES.gradient_bytes // world_size
    wire = TRAITS["fsdp"].wire_bytes(world_size, sizes)
    assert (wire.payload_bytes, wire.busiest_rank_bytes, wire.other_rank_bytes) == (12_000, sent, sent)


@pytest.mark.parametrize("name", TRAITS)
def test_in_a_world_of_one_nothing_travels(name: str) -> None:
    wire = TRAITS[name].wire_bytes(1, SIZES)
    assert (wire.payload_bytes, wire.busiest_rank_bytes, wire.other_rank_bytes) == (0, 0, 0)


@pytest.mark.parametrize(("name", "processes"), [("ddp", 3), ("data-parallel", 1)])
def test_the_processes_of_a_world(name: str, processes: int) -> None:
    assert STRATEGIES[name].processes(3) == processes


def test_single_refuses_a_world_of_more_than_one() -> None:
    assert STRATEGIES["single"].processes(1) == 1
    with pytest.raises(UsageError, match="world size 1 only; 2 was given"):
        STRATEGIES["single"].processes(2)
