"""The batches of a training one after the other, and a digest of the order in which they came."""

import hashlib
from collections.abc import Generator

from torch import Tensor

from worldsize.training.task import Batch, Source


class SeenOrder:
    """A digest of the labels of an epoch in the order in which this process has trained on them.

    Each is the digest of the one before it and a batch, so that a checkpoint within an epoch can hold it.
    """

    def __init__(self) -> None:
        self.epoch = -1
        self.last = b""

    def add(self, epoch: int, labels: Tensor) -> None:
        """The next batch; it takes microseconds, for labels are few bytes."""
        if epoch != self.epoch:
            self.epoch, self.last = epoch, b""
        self.last = hashlib.sha256(self.last + labels.numpy().tobytes()).digest()

    @property
    def digest(self) -> str:
        """Of what was seen of the current epoch so far."""
        return self.last.hex()[:12]


def endless(batches: Source, steps: int = 0) -> Generator[tuple[int, Batch]]:
    """Epoch and batch of one step after the other, from where `steps` have been."""
    epoch, first = 0, 0
    if steps:
        assert batches.steps_per_epoch is not None, "only whole epochs are gone on with"
        epoch, first = divmod(steps, batches.steps_per_epoch)
    while True:
        for batch in batches.epoch(epoch, first):
            yield epoch, batch
        epoch, first = epoch + 1, 0
