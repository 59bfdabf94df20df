"""`fsdp`: torch's FSDP2 (`fully_shard`): each rank keeps its shard of weights, gradients and optimizer state.

A block's weights are all-gathered before its forward, freed after it, gathered once more for its backward; then its
gradients are reduce-scattered, and each rank's optimizer changes its own shard (Rajbhandari et al. 2020, ZeRO, stage 3;
Zhao et al. 2023, PyTorch FSDP). https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from worldsize.errors import UsageError
from worldsize.strategies.base import Strategy, agree, trained
from worldsize.strategies.shards import blocks_of, local
from worldsize.strategies.unused import listed, without_gradient
from worldsize.traits import TRAITS
from worldsize.wire import Sizes, WireBytes

if TYPE_CHECKING:
    from worldsize.strategies.sharding import Sharded

EPSILON = 1e-6
"""What clipping adds to the norm, as torch.nn.utils.clip_grad_norm_ does."""


class FSDP(Strategy):
    """FSDP2, a group for each block and one for the rest; its messages go through our channel, so they are seen.

    On a CPU torch by itself waits for each all-gather where it issues it. Here the next block's is under way while this
    one computes, as on a GPU; the reduce-scatter of a block holds the rank on a CPU, as torch has it.
    """

    traits = TRAITS["fsdp"]
    sharded: "Sharded"
    _own = False
    """Whether the gradients that are there are of a step without synchronisation."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Give every rank the weights of rank 0, then cut them into shards. Raises UsageError where torch cannot."""
        try:  # it takes most of a second to load, which no other strategy needs
            from worldsize.strategies.sharding import Sharded
        except ImportError as error:
            raise _of_another_torch(error) from None
        agree(model, self.channel)
        self.model = model
        for parameter in model.parameters():  # FSDP2 takes no others; a convolution brings channels-last ones in order
            parameter.data = parameter.data.contiguous()
        try:
            self.sharded = Sharded(model, blocks_of(model), self.channel, self.world.group, self.world.device)
        except AttributeError as error:
            raise _of_another_torch(error) from None
        except (AssertionError, NotImplementedError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"strategy fsdp cannot shard this model: {reason}\nGive another strategy.") from None
        return model

    def synchronise(self) -> None:
        """Nothing is left: backward ended after the last reduce-scatter.

        Raises UsageError where this torch cannot leave parameters out of a step, and this step did.
        """
        self._own = not self.synchronising
        if self.sharded.takes_unused or self.sharded.accumulates:
            return
        if names := without_gradient(self.unwrap()):
            raise UsageError(
                f"the loss does not depend on {listed(names)}, and fsdp waits for every trained parameter "
                f"with torch {torch.__version__}\n"
                "Freeze them with requires_grad_(False), or install torch 2.13."
            )

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Steps in which nothing travels, and all else is done: gathered weights are laid out, gradients are packed.

        In place of the others' weights a rank takes its own once more, and of its gradients it keeps its own part. What
        such a step takes is right; what it learns means nothing.
        """
        self.sharded.no_sync(True)
        try:
            with self._without_sync():
                yield
        except BaseException:
            self.sharded.forget()
            raise
        finally:
            self.sharded.no_sync(False)

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Steps without synchronisation gather into the same memory: to fill it each time would count as computing."""
        self.sharded.keep(True)
        try:
            yield
        finally:
            self.sharded.keep(False)

    @contextmanager
    def uninstrumented(self) -> Iterator[nn.Module]:
        """The same model with torch's own collectives."""
        self.sharded.watch(False)
        try:
            yield self.unwrap()
        finally:
            self.sharded.watch(True)

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        """Every rank has all weights, gathered once."""
        self.sharded.gather()
        try:
            yield
        finally:
            self.sharded.scatter()

    def full_weights(self) -> dict[str, Tensor]:
        """Gathered on the default group, not through the channel: this is for proofs."""
        with torch.no_grad():
            return {name: _whole(parameter.detach()) for name, parameter in self.unwrap().named_parameters()}

    def full_gradients(self) -> dict[str, Tensor]:
        """Likewise."""
        with torch.no_grad():
            return {name: _whole(gradient) for name, gradient in super().full_gradients().items()}

    def local_gradients(self, backward: Callable[[], None]) -> dict[str, Tensor]:
        """With all weights as they are, which travel; the gradients do not."""
        with self.sharded.accumulated() as gradients:
            backward()
            named = self.unwrap().named_parameters()
            return {name: gradients(parameter) for name, parameter in named if parameter.requires_grad}

    def hooked_parameters(self) -> list[nn.Parameter]:
        """The whole ones: a shard has its gradient only after the reduce-scatter."""
        return [self.sharded.unsharded_of[parameter] for parameter in trained(self.unwrap())]

    @torch.no_grad()
    def clip(self, largest_norm: float) -> None:
        """As torch does, where each rank has a part of the sum of squares; 4 or 8 bytes travel."""
        gradients = [local(p.grad) for p in self.unwrap().parameters() if p.grad is not None]
        if not gradients:
            return
        squares = torch.stack([gradient.square().sum() for gradient in gradients]).sum().reshape(1)
        if not self._own:
            self.channel.all_reduce(squares)
        factor = (largest_norm / (squares.sqrt() + EPSILON)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))

    def wire_bytes(self, sizes: Sizes) -> WireBytes:
        """By the backend of this group."""
        return super().wire_bytes(dataclasses.replace(sizes, backend=dist.get_backend(self.world.group)))


def _of_another_torch(error: Exception) -> UsageError:
    return UsageError(
        f"strategy fsdp was given; torch {torch.__version__} has not what it needs ({error})\n"
        "Install torch 2.13, or give ddp."
    )


def _whole(tensor: Tensor) -> Tensor:
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole
