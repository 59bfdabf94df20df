"""`int8`, `bucketed-int8`: gradients travel as bytes, in blocks that share a scale, and nothing is lost for good.

A ring cannot add int8: sums overflow, and each hop would round again. So each rank sends every other rank its share of
the quantised bucket (all-to-all), adds up the shares that it gets in full precision, and sends the quantised mean to
all (all-gather): (N−1)/N of the packed bytes each, as a ring has. What rounding takes is held back and added to the
next step's gradients (error feedback); of the mean, by the rank that made it.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.futures import Future

from worldsize.sending import INT8_BLOCK, int8_bytes, int8_pieces
from worldsize.strategies.averaging import Averaging, Full, Residuals, device_of
from worldsize.strategies.bucketed import Bucketed
from worldsize.strategies.ddp import DDP
from worldsize.strategies.second_round import SecondRound
from worldsize.strategies.streams import after_all, used_here
from worldsize.traits import TRAITS

LARGEST = 127
"""Of an int8; −128 is not used, so that a block and its negative lose the same."""
ROW = INT8_BLOCK + 4
"""Bytes of a block: its elements and its scale."""


def quantise(blocks: Tensor) -> Tensor:
    """Blocks of elements, one per row, as rows of int8 and a scale in fp32; a block of zeros has scale 0.

    An element is off by half of a 127th of the largest of its block at most.
    """
    scales = (blocks.abs().amax(dim=1, keepdim=True) / LARGEST).float()
    rows = torch.empty(len(blocks), ROW, dtype=torch.int8, device=blocks.device)
    steps = blocks / torch.where(scales == 0, 1, scales)
    rows[:, :INT8_BLOCK] = steps.round_()
    rows[:, INT8_BLOCK:] = scales.view(torch.int8)
    return rows


def restore(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The elements that rows of `quantise` stand for."""
    scales = rows[:, INT8_BLOCK:].contiguous().view(torch.float32)
    return rows[:, :INT8_BLOCK].to(dtype).mul_(scales)


class Int8(Averaging):
    """All-to-all of quantised shares, their sum in full precision, all-gather of the quantised means."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.residuals = Residuals(self.parameters)
        self.second = SecondRound(self.channel, device_of(self.parameters))

    def state(self) -> dict[str, Tensor]:
        """What was held back."""
        return {"residuals": self.residuals.all}

    def held_back(self) -> Mapping[nn.Parameter, Tensor]:
        """By parameter."""
        return self.residuals.by_parameter()

    def begin(self, bucket: Full) -> Future[Tensor]:
        """The mean as all ranks restore it, in the bucket's own memory."""
        size = bucket.flat.numel()
        self.residuals.add_to(bucket)
        blocks = bucket.flat.new_zeros(int8_bytes(size, self.channel.world_size) // ROW, INT8_BLOCK)
        blocks.view(-1)[:size] = bucket.flat
        # A piece has the same blocks of each rank's share, so that shares are those of the whole bucket.
        shares = blocks.view(self.channel.world_size, -1, INT8_BLOCK)
        pieces = shares.tensor_split(min(int8_pieces(size), shares.shape[1]), dim=1)
        # What is sent of a block leaves in its memory what is lost of it; its mean is put there at the end.
        means = [self._piece(each, bucket.ready) for each in pieces]

        def unpacked(found: list[Tensor]) -> Tensor:
            used_here(blocks)
            self.residuals.keep(bucket.parameters, blocks.view(-1)[:size])
            for piece, mean in zip(pieces, found, strict=True):
                piece.copy_(mean)
            return bucket.flat.copy_(blocks.view(-1)[:size])

        return after_all(means, unpacked, blocks.device)

    def _piece(self, shares: Tensor, ready: object) -> Future[Tensor]:
        """The mean of blocks (ranks × blocks × elements), which are replaced by what is lost of them."""
        ranks, dtype = self.channel.world_size, shares.dtype
        sent = quantise(shares.reshape(-1, INT8_BLOCK))
        shares.sub_(restore(sent, dtype).view_as(shares))
        received, whole = torch.empty_like(sent), torch.empty_like(sent)
        first = self.channel.all_to_all_async(received, sent, ready)

        def mean_of_share() -> Tensor:
            used_here(shares)
            mean = restore(received, dtype).view_as(shares).sum(dim=0).div_(ranks)
            packed = quantise(mean)
            # This rank's gradient is one of N in the mean: what the mean lost counts N times in it.
            shares[self.channel.rank] += mean.sub_(restore(packed, dtype)).mul_(ranks)
            return packed

        second = self.second.all_gather(whole, first, mean_of_share)
        restored: Future[Tensor] = second.then(lambda future: restore(future.value(), dtype).view_as(shares))
        return restored


class DDPInt8(DDP):
    """DDP with int8 on the wire."""

    traits = TRAITS["int8"]
    averaging = Int8


class BucketedInt8(Bucketed):
    """Our own buckets with int8 on the wire."""

    traits = TRAITS["bucketed-int8"]
    averaging = Int8
