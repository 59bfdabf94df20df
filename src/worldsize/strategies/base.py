"""What a strategy is: one way to synchronise gradients, behind few methods."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from worldsize.config.synchronisation import SynchronisationSettings
from worldsize.sending import DEFAULT_BUCKET_BYTES
from worldsize.strategies.channel import Channel, payload_bytes
from worldsize.strategies.shards import blocks_of
from worldsize.traits import Traits
from worldsize.wire import Sizes, WireBytes


@dataclass(frozen=True)
class World:
    """Where a strategy runs: one process among those that share the work."""

    channel: Channel
    """Rank and size of the group of *processes*, and the way to the others."""
    world_size: int
    """N: workers, which is more than processes where one process drives several."""
    device: torch.device
    """Device of this process; of its first worker where it drives several."""
    cores: tuple[tuple[int, ...], ...] = ()
    """Cores of each worker, where workers are threads of one process; empty leaves them unpinned."""
    threads_per_worker: int = 1
    bucket_bytes: int | None = None
    """Gradients that travel together, for strategies with buckets; None is the strategy's own default."""
    group: ProcessGroup | None = None
    """The processes that share the work, where they are not all of the default group."""
    share_buffers: bool = True
    """False keeps each rank's buffers (BatchNorm statistics) to itself, where a strategy would share them."""
    find_unused_parameters: bool = False
    """Whether a strategy that waits for all gradients looks, in each step, for parameters that have none."""
    bucket_groups: tuple[tuple[int, ...], ...] | None = None
    """Buckets as groups of parameters (numbers of the trained ones, in the model's order), for strategies that take any
    groups."""
    options: SynchronisationSettings = field(default_factory=SynchronisationSettings)
    """What the settings say of synchronising."""


class Strategy(ABC):
    """One way to synchronise gradients. It knows nothing of launching, timing or files.

    After `wrap`, a training step is `loss(wrapped(inputs)).backward()`, then `synchronise()`; from there on
    every gradient is the mean over the N workers, each of which averages over its local batch (method.md §10).
    """

    traits: ClassVar[Traits]
    """What others must know of it without running it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.channel = world.channel
        self.model: nn.Module | None = None
        self.synchronising = True

    @classmethod
    def processes(cls, world_size: int) -> int:
        """How many processes a world of this size takes; raise UsageError for a size that cannot be."""
        return world_size

    @abstractmethod
    def wrap(self, model: nn.Module) -> nn.Module:
        """Take the model (already on the device), agree with the other ranks on its weights, return what to call."""

    @abstractmethod
    def synchronise(self) -> None:
        """Run, or finish, the synchronisation of gradients after backward."""

    def after_step(self) -> None:  # noqa: B027 - most strategies have nothing to send then
        """Send what travels after the optimizer's step; nothing by default."""

    def averaged_weights(self) -> AbstractContextManager[None]:
        """Within, the model holds the mean of all ranks' weights; by default they are alike, and nothing is done."""
        return nullcontext()

    @contextmanager
    def _without_sync(self) -> Iterator[None]:
        self.synchronising = False
        try:
            yield
        finally:
            self.synchronising = True

    def no_sync(self) -> AbstractContextManager[None]:
        """Switch synchronisation off for the steps (forward to synchronise) inside this context."""
        return self._without_sync()

    def uninstrumented(self) -> AbstractContextManager[nn.Module | None]:
        """What to call in steps inside this context, without the hooks that only watch messages.

        None: what `wrap` returned, for there are no such hooks.
        """
        return nullcontext()

    def to_compile(self) -> Sequence[nn.Module]:
        """The modules whose calls `--compile` compiles, after `wrap`."""
        return [self.unwrap()]

    @property
    def pieces_bytes(self) -> tuple[int, int] | None:
        """Bytes of gradients after which compiled code hands them out: those of the last layers, and all others.

        None: all at once, when backward ends.
        """
        bucket_bytes = self.world.bucket_bytes or DEFAULT_BUCKET_BYTES
        cut = self.traits.overlaps and self.traits.travels == "gradients" and self.world.world_size > 1
        return (bucket_bytes, bucket_bytes) if cut else None

    def compiling(self) -> AbstractContextManager[None]:
        """Within, a first forward and backward compile."""
        return nullcontext()

    def rolled_back(self) -> AbstractContextManager[None]:
        """Steps inside this context only measure, and are undone; all ranks enter and leave it together."""
        return nullcontext()

    def unsharded(self) -> AbstractContextManager[None]:
        """Inside this context a forward of the model sends nothing, however often a rank calls it.

        All ranks enter and leave it together; no weight may change inside.
        """
        return nullcontext()

    def full_weights(self) -> dict[str, Tensor]:
        """All parameters by name, each as a whole; all ranks call it together."""
        return {name: parameter.detach() for name, parameter in self.unwrap().named_parameters()}

    def full_gradients(self) -> dict[str, Tensor]:
        """The gradient of each trained parameter as a whole, zeros for one that was not used; all ranks together."""
        return {
            name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for name, parameter in self.unwrap().named_parameters()
            if parameter.requires_grad
        }

    def local_gradients(self, backward: Callable[[], None]) -> dict[str, Tensor]:
        """The whole gradients that `backward` (forward to synchronise) has on this rank alone; all ranks together."""
        with self.no_sync():
            backward()
        return self.full_gradients()

    def hooked_parameters(self) -> list[nn.Parameter]:
        """The trained parameters, in the model's order, as backward computes their gradients: for hooks that watch."""
        return trained(self.unwrap())

    def clip(self, largest_norm: float) -> None:
        """Clip the norm of all gradients together, after `synchronise`."""
        nn.utils.clip_grad_norm_(self.unwrap().parameters(), largest_norm)

    def wire_bytes(self, sizes: Sizes) -> WireBytes:
        """Bytes per step on the wire, by formula."""
        return self.traits.wire_bytes(self.world.world_size, sizes)

    def state(self) -> dict[str, Tensor]:
        """The tensors that it carries from step to step, such as what a lossy strategy kept back; none as a rule.

        Training copies and puts back their values, in steps that only measure and in checkpoints.
        """
        return {}

    def held_back(self) -> Mapping[nn.Parameter, Tensor] | None:
        """What error feedback holds back on this rank, so that it can be proved; None: it does not say.

        Its mean over ranks is the sum of all mean gradients so far less the sum of the averages applied (method.md
        §10). Each tensor is flat, in the order of the gradient's memory; nothing of a missing parameter.
        """
        return None

    def unwrap(self) -> nn.Module:
        """The model that `wrap` was given."""
        assert self.model is not None, "wrap comes before unwrap"
        return self.model

    @property
    def copied_bytes(self) -> int:
        """Bytes of the copies of weights and gradients that it holds at most beside the model's own."""
        sizes = sizes_of(self.unwrap(), powersgd_rank=self.world.options.powersgd_rank)
        return self.traits.copied_bytes(self.world.world_size, self.channel.rank, sizes)


def gradients(model: nn.Module) -> Iterator[Tensor]:
    """The gradient of every trained parameter, in an order that all ranks share.

    A parameter that this step did not use counts as a gradient of zero: to leave it out would make the ranks
    wait for different messages.
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            yield parameter.grad


def sizes_of(model: nn.Module, *, input_bytes: int = 0, output_bytes: int = 0, powersgd_rank: int = 0) -> Sizes:
    """What the model takes, in bytes; inputs and outputs are those of one worker in one step."""
    each = [payload_bytes(parameter) for parameter in trained(model)]
    return Sizes(
        parameter_bytes=payload_bytes(*model.parameters()),
        gradient_bytes=sum(each),
        largest_gradient_bytes=max(each, default=0),
        buffer_bytes=payload_bytes(*model.buffers()),
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        gradient_shapes=tuple(tuple(parameter.shape) for parameter in trained(model)),
        powersgd_rank=powersgd_rank,
        block_bytes=tuple(payload_bytes(*block.parameters()) for block in blocks_of(model)),
    )


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that have gradients."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def agree(model: nn.Module, channel: Channel) -> None:
    """Give every rank the parameters and buffers of rank 0."""
    with torch.no_grad():
        channel.broadcast([*(p.detach() for p in model.parameters()), *model.buffers()])
