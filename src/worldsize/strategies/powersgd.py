"""`powersgd`, `bucketed-powersgd`: a gradient of n × m travels as two thin matrices, P of n × r and Q of m × r.

Vogels et al. 2019 (PowerSGD), as torch's powerSGD_hook does it: one step of a power iteration on the mean, begun with
the Q of the step before; what the low rank lost is held back and added to the next step's gradients. Vectors, and
matrices that a low rank does not make smaller, travel as they are. The first steps are exact.

It is not torch's hook: that issues its second all-reduce from whichever thread ends the first, in an order that may
differ between ranks on gloo; its messages would not be seen; and it cannot view a channels-last weight as a matrix.
"""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.futures import Future

from worldsize.strategies.averaging import Averaging, Exact, Full, Residuals, device_of
from worldsize.strategies.bucketed import Bucketed
from worldsize.strategies.channel import payload_bytes
from worldsize.strategies.ddp import DDP
from worldsize.strategies.second_round import SecondRound
from worldsize.strategies.streams import used_here
from worldsize.traits import TRAITS
from worldsize.wire import low_rank_elements


class PowerSGD(Averaging):
    """Two all-reduces of thin matrices in place of one of the gradients.

    P and Q are held transposed, r × n and r × m: r rows times a wide matrix take 0.4 to 0.8 ms where the wide one times
    r columns takes 2.7 to 17 (1000 × 2300, r = 4, one core of an AMD EPYC).
    """

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.rank = self.options.powersgd_rank
        self.exact = Exact(self.channel, self.parameters, self.options)
        self.second = SecondRound(self.channel, device_of(self.parameters))
        self.residuals = Residuals([parameter for parameter in self.parameters if self._thin(parameter)])
        self._number = {id(parameter): number for number, parameter in enumerate(self.parameters)}
        self.steps = torch.zeros(len(self.parameters), dtype=torch.int64)
        """Of each parameter: it is not told when a step begins, and its buckets may be arranged anew."""
        self._q = {id(p): self._first_q(number, p) for number, p in enumerate(self.parameters) if self._thin(p)}

    def _thin(self, parameter: nn.Parameter) -> bool:
        shape = tuple(parameter.shape)
        return low_rank_elements(shape, self.rank) < prod(shape)

    def _first_q(self, number: int, parameter: nn.Parameter) -> Tensor:
        """Noise, the same on all ranks: drawn with the number of the parameter, independent of other draws."""
        rows, columns = len(parameter), parameter.numel() // len(parameter)
        generator = torch.Generator().manual_seed(number)
        noise = torch.randn(min(self.rank, rows, columns), columns, generator=generator)
        return noise.to(parameter.device, parameter.dtype)

    def state(self) -> dict[str, Tensor]:
        """What was held back, the Q of each matrix, and how many steps each parameter has seen."""
        q = {f"q{number}": self._q[id(p)] for number, p in enumerate(self.parameters) if id(p) in self._q}
        return {"residuals": self.residuals.all, "steps": self.steps, **q}

    def held_back(self) -> Mapping[nn.Parameter, Tensor]:
        """By parameter."""
        return self.residuals.by_parameter()

    def begin(self, bucket: Full) -> Future[Tensor]:
        """The mean as its thin matrices tell it, in the bucket's own memory."""
        if not any(id(parameter) in self._q for parameter in bucket.parameters):
            return self.exact.begin(bucket)
        numbers = [self._number[id(parameter)] for parameter in bucket.parameters]
        exact = int(self.steps[numbers].min()) < self.options.powersgd_start_step
        self.steps[numbers] += 1
        return self.exact.begin(bucket) if exact else self._begin(bucket)

    def _begin(self, bucket: Full) -> Future[Tensor]:
        ranks = self.channel.world_size
        thin = [(p, part) for p, part in zip(bucket.parameters, bucket.parts, strict=True) if id(p) in self._q]
        whole = [part for p, part in zip(bucket.parameters, bucket.parts, strict=True) if id(p) not in self._q]
        parameters, parts = [p for p, _ in thin], [part for _, part in thin]
        held, qs = self.residuals.of(parameters), [self._q[id(p)] for p in parameters]
        # What a rank would send: its gradient and what was held back. The residual's memory holds it meanwhile.
        torch._foreach_add_(held, parts)
        matrices = [each.view(len(p), -1) for p, each in zip(parameters, held, strict=True)]
        ps = [_orthogonal(q) @ matrix.T for matrix, q in zip(matrices, qs, strict=True)]
        packed = torch.cat([*whole, *(p.view(-1) for p in ps)]).div_(ranks)
        first = self.channel.all_reduce_async(packed, bucket.ready)

        def own_q() -> Tensor:
            used_here(*ps)
            _unpack(packed, [*whole, *(p.view(-1) for p in ps)])
            for p in ps:
                p.copy_(_orthogonal(p))
            pairs = zip(matrices, ps, strict=True)
            return torch.cat([(p @ matrix).view(-1) for matrix, p in pairs]).div_(ranks)

        def restored(future: Future[Tensor]) -> Tensor:
            used_here(*ps)
            _unpack(future.value(), [q.view(-1) for q in qs])
            for part, p, q in zip(parts, ps, qs, strict=True):
                torch.mm(p.T, q, out=part.view(p.shape[1], -1))
            torch._foreach_sub_(held, parts)
            return bucket.flat

        size_bytes = payload_bytes(*qs)
        ended: Future[Tensor] = self.second.all_reduce(size_bytes, first, own_q).then(restored)
        return ended


def _orthogonal(rows: Tensor) -> Tensor:
    """Orthonormal rows that span the same; of zeros, any, so that they can grow again."""
    basis: Tensor = torch.linalg.qr(rows.T)[0]
    return basis.T


def _unpack(packed: Tensor, into: Sequence[Tensor]) -> None:
    """Put a flat tensor's elements into flat tensors, one after the other."""
    torch._foreach_copy_(list(into), list(packed.split([each.numel() for each in into])))


class DDPPowerSGD(DDP):
    """DDP with thin matrices on the wire."""

    traits = TRAITS["powersgd"]
    averaging = PowerSGD


class BucketedPowerSGD(Bucketed):
    """Our own buckets with thin matrices on the wire."""

    traits = TRAITS["bucketed-powersgd"]
    averaging = PowerSGD
