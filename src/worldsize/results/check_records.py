"""Records of the short proof that each cell of a study gives before it is timed (method.md §10)."""

from typing import Literal

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


FaultKind = Literal[
    "error",
    "inexact",
    "gradients-apart",
    "lost",
    "feedback",
    "no-feedback",
    "not-own",
    "no-exchange",
    "weights-apart",
    "not-mean",
]
"""What a lossy strategy must not do: lose more than its bound; lose anything in its exact first steps; leave ranks with
other averages; hand over zeros in place of a gradient; lose what error feedback does not hold back; claim feedback and
not say what is held back; change gradients that stay a rank's own; never average weights that it should; leave ranks
with other weights after that; make them something else than their mean."""


class Fault(Record):
    """Something that a lossy synchronisation must not do."""

    kind: FaultKind
    step: int | None = None
    """Of the proof, counted from 0; None where it is of all its steps together."""
    parameter: str | None = None
    relative: float | None = None
    """How far it is off, where that is measured; None also where it is not finite."""
    allowed: float | None = None


class Losses(Record):
    """What a lossy strategy loses against the mean of the ranks' own gradients at the same weights (method.md §10).

    Norms are of all parameters together.
    """

    steps: int
    """Steps in which gradients were compared."""
    step_error: float | None = None
    """‖averaged − mean‖ ÷ ‖mean‖ of the worst step; None where no averaged one was seen, or it is not finite."""
    step_allowed: float | None = None
    """Bound of that step; None where the strategy has none for one step."""
    sum_error: float | None = None
    """‖sum of the averaged − sum of the means‖ ÷ ‖sum of the means‖ over the steps; None as above."""
    feedback_error: float | None = None
    """The largest distance of a parameter's sum from the sum of the means, what is held back added; None without error
    feedback."""
    exchanges: int | None = None
    """How often weights were averaged, of a strategy that exchanges weights."""
    faults: list[Fault] = Field(default_factory=list)
    """The first of each kind."""


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
    losses: Losses | None = None
    """Of a lossy strategy, in place of the comparison of gradients."""
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
    losses: Losses | None = None
    """Of a lossy strategy, in place of the comparison of gradients."""
    samples: str = ""
    """Digests of the first samples of epoch 0, DIGEST_LENGTH characters each, in the order of the epoch."""

    @property
    def same(self) -> bool:
        """Whether nothing was found that differs."""
        return self.gradients is None and self.apart is None and not (self.losses and self.losses.faults)
