"""What happens in a loop that is not ours, from hooks and wrapped functions: marks of each step.

A step ends with the optimizer's step or, where batches come through the meter, when the next one is asked for: a step
begins with its wait for data (method.md §13). In a program that knows nothing of us each step follows the one before,
and what it does between two steps of its optimizer, such as an evaluation, is a named stretch of a step.

What every step calls is guarded where it stands and calls little, as its price is that of code that no cache holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .collectives import Collectives
from .harmless import never_raises
from .patches import Patches
from .samples import leading, trains

OF_BATCHES = "the first dimension of the first tensor of each batch"


class Marks(Protocol):
    """Where the marks of one step after the other go."""

    watching: bool
    """Whether more than begin and end of a step is marked."""

    def begin(self) -> None:
        """Mark that a step begins."""

    def end_step(self) -> None:
        """Mark that it ends."""

    def stretch(self, name: str) -> None:
        """Mark that a stretch of the step ends, by its name in marks.PHASES."""

    def backward_begins(self, before: str) -> None:
        """Mark that a backward begins, and so ends the stretch before it."""

    def backward_over(self) -> None:
        """Mark that a backward ends; since its last gradient the rank has computed nothing."""

    def ready(self) -> Any:
        """Mark that a bucket has all of its gradients."""

    def last_gradient(self, mark: Any) -> None:
        """Take a mark as that of the last gradient so far."""

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool, ready: Any = None) -> int:
        """Mark that a message is issued; returns its token."""

    def done(self, token: int) -> None:
        """Mark that a message is done."""


class Watch:
    """Hangs hooks on one loop, marks its steps, and calls `finished(samples, epoch)` after each."""

    def __init__(
        self,
        model: nn.Module | None,
        optimizer: Optimizer | None,
        finished: Callable[[int, int], None],
        gave_up: Callable[[Exception], None],
        timeline: Marks,
        *,
        by_optimizer: bool = False,
    ) -> None:
        """`by_optimizer`: a step ends with the optimizer's also where a loader is seen, and the next one begins."""
        self.patches = Patches()
        self.model, self.optimizer, self.finished, self.gave_up = model, optimizer, finished, gave_up
        self.broken = False
        """Whether something went wrong in us; nothing is seen after that."""
        self.timeline = timeline
        self.collectives = Collectives(self.timeline, self.patches, self.fail)
        self.by_optimizer = by_optimizer
        self.epoch = self.samples = 0
        self.backwards = 0
        """How many there have been."""
        self._waiting_samples = 0
        """Of batches that were fetched and not used yet."""
        self._evaluating = False
        """Whether what happens now is part of an evaluation, or of other calls of a model that are not for a loss."""
        self.training_thread: int | None = None
        """The thread that steps the optimizer."""
        self.further_optimizers: list[Optimizer] = []
        """Those that stepped beside the first."""
        self.fed = False
        """Whether batches come through the meter."""
        self.unseen = 0
        """Collectives of the last step that were not seen."""
        self.samples_from = ""
        """How samples were counted."""
        self._begun = self._stepped = self._forwarded = self._worked = self._in_backward = self.within = False
        self._feeding_thread: int | None = None
        """The thread that asks for batches."""
        self._fed_samples = self._trained = self.interrupted = False
        """Whether the loop did something else in the middle of this step: its time says nothing."""
        try:
            self._install_hooks()
        except Exception:
            self.close()
            raise

    def _install_hooks(self) -> None:
        self.collectives.wrap_functions()
        pre, post = self._before_optimizer, self._after_optimizer
        if self.optimizer is None:
            handles = [register_optimizer_step_pre_hook(pre), register_optimizer_step_post_hook(post)]
        else:
            handles = [self.optimizer.register_step_pre_hook(pre), self.optimizer.register_step_post_hook(post)]
        if self.model is not None:
            self.patches.before_call(self.model, self.before_forward)
            if isinstance(self.model, DistributedDataParallel):
                self.collectives.hook(self.model)
        for handle in handles:
            self.patches.on_close(handle.remove)
        self.patches.replace(Tensor, "backward", self._backward(Tensor.backward))

    def fail(self, error: Exception) -> None:
        """Something went wrong in us: see nothing any more, and hand it on, once."""
        broken, self.broken = self.broken, True
        if not broken:
            self.gave_up(error)

    def close(self) -> None:
        """Take every hook off, and put back every function; what another meter still calls of ours sees nothing."""
        self.broken, self.collectives.active, self.timeline.watching = True, False, False
        self.patches.close()

    @property
    def forwarding(self) -> bool:
        """Whether a loss is being computed, or its backward runs: what is called now is called by a model."""
        return self._forwarded or self._in_backward

    def _stretch(self, name: str) -> None:
        """Mark the end of a stretch; whatever an evaluation consists of is evaluation."""
        self.timeline.stretch("evaluation" if self._evaluating else name)

    @never_raises
    def evaluating(self) -> None:
        """An evaluation begins, if none goes on: until the loop trains again all is part of it."""
        self._waiting_samples = 0
        if self.by_optimizer and self._begun and not self._evaluating:
            self.timeline.stretch("other")
            self._evaluating = True

    @never_raises
    def training_again(self) -> None:
        """The loop trains: an evaluation that went on is over."""
        if self._evaluating:
            self.timeline.stretch("evaluation")
            self._evaluating = False

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Mark what the training thread does in this context as a stretch of this name; the outermost counts."""
        if self.broken or not self._begun or self.within or get_ident() != self.training_thread:
            yield
            return
        self._mark("evaluation" if self._evaluating else ("forward" if self._forwarded else "other"))
        self.within = True
        try:
            yield
        finally:
            self.within = False
            if self._begun:
                self._mark(name)

    @never_raises
    def _mark(self, name: str) -> None:
        self.timeline.stretch(name)

    @never_raises
    def fetching(self) -> None:
        """The loop asks for a batch."""
        self._feeding_thread = get_ident()
        if self.by_optimizer:
            if self._begun:
                self._stretch("other")
            return
        self.fed = True
        if self._begun and self._stepped:
            self._finish()
        if self._begun:
            self.timeline.stretch("other")
        else:
            self._begin()

    @never_raises
    def fetched(self, batch: Any, name: str = "data_wait") -> None:
        """A batch is there, or a loader has begun (`name`: restart)."""
        if self._begun:
            self._stretch(name)
        # A loop may fetch all micro-batches of a step before it uses the first; those of an evaluation are not counted.
        self._waiting_samples += leading(batch) if torch.is_grad_enabled() or not self.by_optimizer else 0
        if not self.by_optimizer:
            self._use_batch()

    def _use_batch(self) -> None:
        """The batch that was fetched is trained on."""
        if self._waiting_samples:
            self.samples += self._waiting_samples
            self.samples_from = OF_BATCHES
            self._waiting_samples, self._fed_samples = 0, True

    @never_raises
    def fed_out(self) -> None:
        """No batch is left: an epoch is over, if a step was made in it."""
        if self.by_optimizer:
            if self._begun:
                self._stretch("data_wait")
        else:
            self.pause()
        self.epoch, self._trained = self.epoch + self._trained, False

    @never_raises
    def pause(self) -> None:
        """What the loop does until it asks for a batch again, such as an evaluation, is no part of a step."""
        if self._begun and self._stepped:
            self._finish()
        elif self._begun and self._worked:  # gradients of it are there, and it goes on afterwards
            self.interrupted = True
        else:
            self._begun = False

    @never_raises
    def forward(self, batch: Any) -> None:
        """The loop is about to compute the loss of this batch, perhaps without calling the model."""
        if self._begun and not self._forwarded:
            self._forward_begins(batch, OF_BATCHES)

    @never_raises
    def begin(self) -> None:
        """The loop says that a step begins."""
        self.fed = True
        self._begin()

    @never_raises
    def end(self) -> None:
        """The loop says that a step ends; one without a step of the optimizer goes on."""
        if self._begun and self._stepped:
            self._finish()

    def _begin(self) -> None:
        self._follow()
        self.collectives.begin()

    def _follow(self) -> None:
        """A step begins where the last one has ended."""
        self._begun, self._stepped, self._worked, self._forwarded = True, False, False, False
        self.samples = 0
        self._fed_samples = self.interrupted = self._evaluating = self.within = False
        self.timeline.begin()

    def _finish(self) -> None:
        self.unseen = self.collectives.end()
        if self.unseen:
            self.timeline.stretch("unknown")
        self.timeline.end_step()
        self._begun, self._trained = False, True
        self.finished(self.samples, self.epoch)

    def before_forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """A model is about to be called; returns whether to train it."""
        try:
            if not ((model.training or trains(model)) and torch.is_grad_enabled()):
                self.evaluating()
                return False
            if self._in_backward:  # activations that were not kept are computed again
                return True
            if not self._begun and not self.fed:
                self._begin()
            if self._begun and not self._forwarded:
                self._forward_begins(args or kwargs, "the first dimension of the first tensor that the model takes")
            return True
        except Exception as error:
            self.fail(error)
            return False

    @never_raises
    def before_function(self) -> None:
        """A function is about to be called that may compute a loss."""
        if self._begun and not self.forwarding:
            self._stretch("other")
            self._evaluating = False

    @never_raises
    def after_function(self, given: Any) -> None:
        """It has computed a loss."""
        if self._begun and not self._forwarded:
            self._forward_begun(given, "the first dimension of the first tensor that the compiled function takes")

    def _forward_begins(self, given: Any, how: str) -> None:
        """The model is called for a loss, for which a loop may call it several times."""
        self.timeline.stretch("evaluation" if self._evaluating else "other")
        self._evaluating = False
        self._forward_begun(given, how)

    def _forward_begun(self, given: Any, how: str) -> None:
        self._forwarded = self._worked = True
        if self._waiting_samples:
            self._use_batch()
        if not self._fed_samples and (samples := leading(given)):
            self.samples += samples
            self.samples_from = how

    def _backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> None:
            if self._in_backward or self.broken:
                return original(*args, **kwargs)
            self._in_backward = True
            try:
                self._backward_begins()
            except Exception as error:
                self.fail(error)
            try:
                return original(*args, **kwargs)
            finally:
                self._in_backward = False
                if self._begun:
                    try:
                        self.timeline.backward_over()
                    except Exception as error:
                        self.fail(error)

        return backward

    def _backward_begins(self) -> None:
        self.backwards += 1
        if self._begun:
            name = "forward" if self._forwarded else "other"
            self.timeline.backward_begins("evaluation" if self._evaluating else name)
            self._evaluating = False
            if self._waiting_samples:
                self._use_batch()
        self._forwarded, self._worked = False, True

    def _before_optimizer(self, *_: Any) -> None:
        if self._begun:
            try:
                self.timeline.stretch("evaluation" if self._evaluating else "other")
                self._evaluating = False
            except Exception as error:
                self.fail(error)

    def _after_optimizer(self, optimizer: Optimizer, *_: Any) -> None:
        if not self.broken:
            try:
                self._optimizer_stepped(optimizer)
            except Exception as error:
                self.fail(error)

    def _optimizer_stepped(self, optimizer: Optimizer) -> None:
        if self._begun:
            self.timeline.stretch("optimizer")
        thread = get_ident()
        if not self.by_optimizer and self._feeding_thread not in (None, thread):
            raise RuntimeError(
                "batches are fetched outside the training thread: wrap what the training thread iterates"
            )
        if self.optimizer is None:
            self.optimizer = optimizer
        if optimizer is not self.optimizer:  # a second one, as of a GAN: its step belongs to that of the first
            if optimizer not in self.further_optimizers:
                self.further_optimizers.append(optimizer)
            return
        self._stepped, self.training_thread = True, thread
        if not self.fed:
            if self._begun:
                self._finish()
                self._follow()
            else:
                self._begin()
