"""What strategies move and hold, in bytes: formulas of N and of what the model takes (method.md §4, §9).

Pure arithmetic, without torch; the rows of traits.py name them.
"""

import math
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from worldsize.sending import HALF, int8_bytes


@dataclass(frozen=True)
class Sizes:
    """What one worker's model and local batch take, in bytes."""

    parameter_bytes: int
    gradient_bytes: int
    """S: the gradients of all trained parameters."""
    largest_gradient_bytes: int
    buffer_bytes: int
    input_bytes: int
    """Inputs of one worker in one step."""
    output_bytes: int
    """Outputs of one worker in one step."""
    gradient_shapes: tuple[tuple[int, ...], ...] = ()
    """Of all trained parameters, in the model's order."""
    powersgd_rank: int = 0
    """Rank of the matrices that stand for a gradient; 0 where that means nothing."""
    accumulate: int = 1
    """Micro-batches of a step; inputs and outputs are those of one of them."""
    sync_every: int = 1
    """Steps between two averagings of weights."""
    block_bytes: tuple[int, ...] = ()
    """Of the parameters of each block that a sharded model gathers by itself; those of the rest are its root's."""
    backend: str = "gloo"
    """What carries the messages: the reduce-scatter of gloo sends as many bytes as an all-reduce (method.md §5)."""

    @property
    def root_bytes(self) -> int:
        """Of the parameters that are in no block."""
        return self.parameter_bytes - sum(self.block_bytes)


class WireBytes(BaseModel):
    """Bytes per step on the wire, by the formulas of method.md §4."""

    model_config = ConfigDict(extra="forbid")

    payload_bytes: int
    """S: bytes of all gradients that are synchronised per step."""
    busiest_rank_bytes: int
    """Bytes that the busiest rank sends (it receives as many)."""
    other_rank_bytes: int
    """Bytes that every other rank sends (it receives as many)."""
    formula: str


def ring(world_size: int, sizes: Sizes, buffer_bytes: int = 0) -> WireBytes:
    """What each rank sends in a ring all-reduce of the gradients; buffers pass each rank once (method.md §4)."""
    size = round(2 * (world_size - 1) / world_size * sizes.gradient_bytes) + buffer_bytes
    return WireBytes(
        payload_bytes=sizes.gradient_bytes,
        busiest_rank_bytes=size,
        other_rank_bytes=size,
        formula="2(N−1)/N·S + buffers" if buffer_bytes else "2(N−1)/N·S",
    )


def ring_and_buffers(world_size: int, sizes: Sizes) -> WireBytes:
    """The same, and rank 0's buffers in each forward: they leave it once and reach every other rank once."""
    return ring(world_size, sizes, sizes.buffer_bytes)


def ring_now_and_then(world_size: int, sizes: Sizes) -> WireBytes:
    """The ring's bytes of all trained weights, as many as of their gradients; the mean over the steps of a period."""
    size = round(2 * (world_size - 1) / world_size * sizes.gradient_bytes / sizes.sync_every)
    return WireBytes(
        payload_bytes=round(sizes.gradient_bytes / sizes.sync_every),
        busiest_rank_bytes=size,
        other_rank_bytes=size,
        formula=f"2(N−1)/N·S/{sizes.sync_every}, mean of {sizes.sync_every} steps",
    )


def through_root(world_size: int, sizes: Sizes) -> WireBytes:
    """(N−1)·S into and out of rank 0, S into and out of every other rank."""
    return WireBytes(
        payload_bytes=sizes.gradient_bytes,
        busiest_rank_bytes=(world_size - 1) * sizes.gradient_bytes,
        other_rank_bytes=sizes.gradient_bytes,
        formula="rank 0: (N−1)·S; others: S",
    )


def replicas(world_size: int, sizes: Sizes) -> WireBytes:
    """The root's bytes: parameters (frozen ones as well), buffers and inputs out; gradients and outputs in."""
    times = sizes.accumulate  # replicas are made and reduced anew for each micro-batch
    out = times * (world_size - 1) * (sizes.parameter_bytes + sizes.buffer_bytes + sizes.input_bytes)
    k, weights = "K·" if times > 1 else "", "S" if sizes.parameter_bytes == sizes.gradient_bytes else "parameters"
    others = "K·(S + outputs)" if times > 1 else "S + outputs"
    return WireBytes(
        payload_bytes=times * sizes.gradient_bytes,
        busiest_rank_bytes=out,
        other_rank_bytes=times * (sizes.gradient_bytes + sizes.output_bytes),
        formula=f"root sends {k}(N−1)·({weights} + buffers + inputs); others send {others}",
    )


def narrow_ring(world_size: int, sizes: Sizes, buffer_bytes: int = 0) -> WireBytes:
    """The ring's bytes with elements of two bytes in place of four."""
    size = round(2 * (world_size - 1) / world_size * sizes.gradient_bytes / HALF) + buffer_bytes
    formula = "2(N−1)/N·S/2 + buffers" if buffer_bytes else "2(N−1)/N·S/2"
    return WireBytes(
        payload_bytes=sizes.gradient_bytes // HALF, busiest_rank_bytes=size, other_rank_bytes=size, formula=formula
    )


def narrow_ring_and_buffers(world_size: int, sizes: Sizes) -> WireBytes:
    """The same, and rank 0's buffers in each forward."""
    return narrow_ring(world_size, sizes, sizes.buffer_bytes)


def in_blocks(world_size: int, sizes: Sizes, buffer_bytes: int = 0) -> WireBytes:
    """An all-to-all and an all-gather of int8 blocks: (N−1)/N of the packed bytes each."""
    packed = int8_bytes(sizes.gradient_bytes // 4, world_size)
    size = round(2 * (world_size - 1) / world_size * packed) + buffer_bytes
    formula = "2(N−1)/N·S/4·(1 + 4/512)" + (" + buffers" if buffer_bytes else "")
    return WireBytes(payload_bytes=packed, busiest_rank_bytes=size, other_rank_bytes=size, formula=formula)


def in_blocks_and_buffers(world_size: int, sizes: Sizes) -> WireBytes:
    """The same, and rank 0's buffers in each forward."""
    return in_blocks(world_size, sizes, sizes.buffer_bytes)


def low_rank(world_size: int, sizes: Sizes, buffer_bytes: int = 0) -> WireBytes:
    """Two thin matrices in place of each gradient of n × m, r(n + m) elements, by all-reduce (Vogels et al. 2019)."""
    elements = sum(low_rank_elements(shape, sizes.powersgd_rank) for shape in sizes.gradient_shapes)
    size = round(2 * (world_size - 1) / world_size * 4 * elements) + buffer_bytes
    formula = "2(N−1)/N·4·Σ r(n+m)" + (" + buffers" if buffer_bytes else "")
    return WireBytes(payload_bytes=4 * elements, busiest_rank_bytes=size, other_rank_bytes=size, formula=formula)


def low_rank_and_buffers(world_size: int, sizes: Sizes) -> WireBytes:
    """The same, and rank 0's buffers in each forward."""
    return low_rank(world_size, sizes, sizes.buffer_bytes)


def low_rank_elements(shape: tuple[int, ...], rank: int) -> int:
    """Elements that stand for a gradient of this shape: as many as it has, where a low rank would save none."""
    rows = shape[0] if shape else 1
    whole = math.prod(shape)
    columns = whole // rows if rows else 0
    rank = min(rank, rows, columns)
    thin = rank * (rows + columns)
    return thin if len(shape) > 1 and thin < whole else whole


def low_rank_bytes(shape: tuple[int, ...], rank: int) -> int:
    """Their bytes."""
    return 4 * low_rank_elements(shape, rank)


def gathered_and_scattered(world_size: int, sizes: Sizes) -> WireBytes:
    """All parameters gathered for forward, those of the blocks once more for backward, gradients reduced and scattered.

    Without what shards are padded with, where N does not divide the first dimension of a parameter.
    """
    share, by_gloo = (world_size - 1) / world_size, sizes.backend == "gloo"
    gathered = share * (sizes.parameter_bytes + sum(sizes.block_bytes))
    size = round(gathered + (2 if by_gloo else 1) * share * sizes.gradient_bytes)
    again = " + blocks" if sizes.block_bytes else ""
    return WireBytes(
        payload_bytes=sizes.gradient_bytes,
        busiest_rank_bytes=size,
        other_rank_bytes=size,
        formula=f"(N−1)/N·(parameters{again}) + {'2(N−1)/N·S (gloo)' if by_gloo else '(N−1)/N·S'}",
    )


def nothing(world_size: int, sizes: Sizes) -> WireBytes:
    """No byte."""
    return WireBytes(payload_bytes=0, busiest_rank_bytes=0, other_rank_bytes=0, formula="0")


def gradients_again(world_size: int, rank: int, sizes: Sizes) -> int:
    """Each gradient a second time, in its bucket; around one worker as well."""
    return sizes.gradient_bytes


def gradients_to_send(world_size: int, rank: int, sizes: Sizes) -> int:
    """The same, where there is somebody to send them to."""
    return sizes.gradient_bytes if world_size > 1 else 0


def gradients_and_narrow(world_size: int, rank: int, sizes: Sizes) -> int:
    """Each gradient a second time, in its bucket, and narrow beside it."""
    return sizes.gradient_bytes + sizes.gradient_bytes // HALF if world_size > 1 else sizes.gradient_bytes


def gradients_and_int8(world_size: int, rank: int, sizes: Sizes) -> int:
    """Each gradient a second time, in its bucket; what was held back of it; int8 blocks sent, received and gathered."""
    if world_size == 1:
        return 2 * sizes.gradient_bytes
    return 2 * sizes.gradient_bytes + 3 * int8_bytes(sizes.gradient_bytes // 4, world_size)


def gradients_and_low_rank(world_size: int, rank: int, sizes: Sizes) -> int:
    """Each gradient a second time, in its bucket; what was held back of it; both thin matrices."""
    thin = sum(low_rank_bytes(shape, sizes.powersgd_rank) for shape in sizes.gradient_shapes)
    return 2 * sizes.gradient_bytes + 2 * thin


MESSAGE_BYTES = 25 * 2**20
"""Weights are packed into messages of about so much (strategies/local_sgd.py)."""


def weights_packed(world_size: int, rank: int, sizes: Sizes) -> int:
    """The weights of one message a second time, and the last of them may be the largest."""
    most = MESSAGE_BYTES + sizes.largest_gradient_bytes
    return min(sizes.gradient_bytes, most) if world_size > 1 else 0


def weights_and_anchor(world_size: int, rank: int, sizes: Sizes) -> int:
    """The same, the anchor and the outer momentum."""
    return 2 * sizes.gradient_bytes + weights_packed(world_size, rank, sizes)


def one_of_each_rank(world_size: int, rank: int, sizes: Sizes) -> int:
    """On rank 0 that of each rank of one gradient at a time, the largest of them at most."""
    return world_size * sizes.largest_gradient_bytes if rank == 0 and world_size > 1 else 0


def replicas_here(world_size: int, rank: int, sizes: Sizes) -> int:
    """The other replicas, and the gradients of all of them before they are added up."""
    replica_bytes = sizes.parameter_bytes + sizes.buffer_bytes
    return (world_size - 1) * replica_bytes + world_size * sizes.gradient_bytes if world_size > 1 else 0


def whole_for_a_while(world_size: int, rank: int, sizes: Sizes) -> int:
    """What a sharded model holds whole at most: its root, the block at work, and the next one on its way.

    Of the block at work weights and gradients, each also as it travels; of the next its weights in both forms; of the
    root weights and gradients, which are packed when no block is whole any more. A worker by itself fetches none ahead.
    """
    first, second = [*sorted(sizes.block_bytes, reverse=True), 0, 0][:2]
    blocks = 4 * first + 2 * second if world_size > 1 else 3 * first
    return max(2 * sizes.root_bytes + blocks, 3 * sizes.root_bytes)
