"""Records of the short proof that each cell of a study gives before it is timed (method.md §10)."""

from pydantic import Field

from worldsize.results.base import Record

DIGEST_LENGTH = 8
"""Characters of each sample's digest in the records below."""


class Difference(Record):
    """Where two trainings first differ."""

    step: int
    """Counted from 0."""
    parameter: str
    """Dotted name, as in `named_parameters()`."""
    relative: float | None = None
    """‖found − wanted‖ ÷ ‖wanted‖ (training/proof.py); None where it is not finite, or where bits were compared."""


class RankCheck(Record):
    """What one rank found in its short proof."""

    tolerance: float
    largest: float | None = None
    """Largest relative difference of a gradient; None where none was compared, or one is not finite."""
    gradients: Difference | None = None
    """The first gradient that is not the mean over the workers."""
    apart: str | None = None
    """The first parameter whose bits are not the same on all ranks."""
    left_out: str | None = None
    """Why gradients were not compared."""
    samples: list[str] = Field(default_factory=list)
    """What this rank reads in each of the first global batches of epoch 0: digests, one after the other."""


class VerifyRecord(Record):
    """Whether a cell trains as the reference does: one batch, with and without the strategy's synchronisation."""

    tolerance: float
    largest: float | None = None
    """Largest relative difference of a gradient over all ranks; None where none was compared, or one is not finite."""
    gradients: Difference | None = None
    """The first gradient that is not the mean over the workers."""
    rank: int | None = None
    """The rank that it was found on."""
    apart: str | None = None
    """The first parameter whose bits are not the same on all ranks."""
    left_out: str | None = None
    """Why gradients were not compared."""
    samples: str = ""
    """Digests of the first samples of epoch 0, DIGEST_LENGTH characters each, in the order of the epoch."""

    @property
    def same(self) -> bool:
        """Whether nothing was found that differs."""
        return self.gradients is None and self.apart is None
