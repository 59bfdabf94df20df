"""`ddp-fp16`, `ddp-bf16`, `bucketed-fp16`, `bucketed-bf16`: gradients travel in two bytes an element in place of four.

As torch's fp16_compress_hook and bf16_compress_hook do (torch.distributed.algorithms.ddp_comm_hooks): divide, narrow,
all-reduce, widen. The sum is made in the narrow type. torch refuses its bf16 hook without NCCL, by its name; gloo
adds bfloat16 all the same. fp16 keeps 11 bits and ends at 65,504; bf16 keeps 8 bits and the range of fp32.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch.futures import Future

from worldsize.strategies.averaging import Averaging, Full
from worldsize.strategies.bucketed import Bucketed
from worldsize.strategies.ddp import DDP
from worldsize.traits import TRAITS


class Half(Averaging):
    """Divide, narrow, all-reduce, widen."""

    dtype: ClassVar[torch.dtype]

    def begin(self, bucket: Full) -> Future[Tensor]:
        """The mean of the narrow gradients, widened into the bucket's own memory."""
        narrow = bucket.flat.div_(self.channel.world_size).to(self.dtype)
        sent = self.channel.all_reduce_async(narrow, bucket.ready)

        def widen(future: Future[Tensor]) -> Tensor:
            return bucket.flat.copy_(future.value())

        done: Future[Tensor] = sent.then(widen)
        return done


class Fp16(Half):
    """In half precision."""

    dtype = torch.float16


class Bf16(Half):
    """In bfloat16."""

    dtype = torch.bfloat16


class DDPFp16(DDP):
    """DDP with half precision on the wire."""

    traits = TRAITS["ddp-fp16"]
    averaging = Fp16


class DDPBf16(DDP):
    """DDP with bfloat16 on the wire."""

    traits = TRAITS["ddp-bf16"]
    averaging = Bf16


class BucketedFp16(Bucketed):
    """Our own buckets with half precision on the wire."""

    traits = TRAITS["bucketed-fp16"]
    averaging = Fp16


class BucketedBf16(Bucketed):
    """Our own buckets with bfloat16 on the wire."""

    traits = TRAITS["bucketed-bf16"]
    averaging = Bf16
