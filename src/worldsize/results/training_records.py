"""What a study trains, on what, and what an evaluation of it finds, as far as it explains a number."""

from typing import Literal

from pydantic import Field

from worldsize.results.base import Record


class DataRecord(Record):
    """The data set of a study and its state of verification."""

    name: str
    train_samples: int
    test_samples: int
    shape: tuple[int, ...]
    """Shape of one sample as the model sees it (C, H, W)."""
    classes: int
    verification: Literal["official", "embedded", "generated", "unverified", "user"]
    location: str | None = None


class ModelRecord(Record):
    """The model of a study."""

    name: str
    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    """Bytes of all buffers (BatchNorm statistics), which travel as well (method.md §4)."""
    gradient_tensors: int
    gradient_bytes: int | None = None
    """S; None in older runs."""
    flops_per_sample: int | None = None
    """Floating-point operations of forward and backward for one sample (method.md §12)."""


class GradientTimes(Record):
    """The gradients of the trained parameters, in the model's order, as backward computes them by itself.

    What may travel together, and when, for strategies and buckets that were not measured (method.md §14).
    """

    sizes_bytes: tuple[int, ...]
    ready_share: tuple[float, ...]
    """When each was there: 0 is the begin of backward, 1 its last gradient. Medians over steps in which nothing
    travelled. 1 for one that backward did not come to."""
    steps: int
    """How many steps that were."""


class ReplayedTimes(Record):
    """What ranks of a rehearsal did in their timed turns, in sum (method.md §15)."""

    intended_s: float = 0.0
    """What they were to wait, in place of computing."""
    waited_s: float = 0.0
    """What that took."""
    queued_s: float = 0.0
    """What their threads queued for a core, all together."""
    turns_s: float = 0.0
    """How long the turns were in which the system told that."""

    @property
    def fidelity(self) -> float | None:
        """Intended ÷ waited; None before the first timed step."""
        return self.intended_s / self.waited_s if self.waited_s else None

    @property
    def queued_share(self) -> float | None:
        """What threads of a rank queued for a core, ÷ its time; several may queue at once. None if it is not known."""
        return self.queued_s / self.turns_s if self.turns_s else None

    def add(self, *others: "ReplayedTimes") -> None:
        """Count the times of further ranks or turns."""
        for other in others:
            self.intended_s += other.intended_s
            self.waited_s += other.waited_s
            self.queued_s += other.queued_s
            self.turns_s += other.turns_s


class ReplayedRecord(ReplayedTimes):
    """The computing that a cell of a rehearsal has replayed (method.md §15)."""

    source: str
    """Id of the measured cell."""
    source_world_size: int
    source_steps: int
    """Measured steps that it was drawn from."""


class MessageCount(Record):
    """Collectives of one kind that a rank asked for."""

    when: str
    """`start`, `evaluation`."""
    kind: str
    calls: int
    payload_bytes: int
    """Of all calls together, on rank 0."""


class Divergence(Record):
    """How far each rank is from rank 0: |x − x₀| ÷ |x₀| over all elements; exactly 0 where they are the same."""

    weights: list[float | None]
    """None where it is not finite (JSON has no NaN)."""
    buffers: list[float | None]
    """Of the floating-point buffers, which are BatchNorm statistics."""

    @property
    def apart(self) -> bool:
        """Whether the weights of any rank differ from those of rank 0."""
        return any(each is None or each > 0 for each in self.weights)

    @staticmethod
    def largest(values: list[float | None]) -> float | None:
        """The largest of them; None where one is not finite, or there are none."""
        finite = [value for value in values if value is not None]
        return max(finite, default=None) if len(finite) == len(values) else None


class Evaluation(Record):
    """Loss and accuracy on the whole test set after an epoch (or after the last step)."""

    epoch: int
    step: int
    test_loss: float | None
    """None where it was not finite (JSON has no NaN)."""
    test_accuracy: float
    """Share of the test samples that were classified right, 0 to 1."""
    test_samples: int
    divergence: Divergence | None = None
    """How far the ranks were apart before this evaluation; None for one process."""
    messages: list[MessageCount] = Field(default_factory=list)
    """What the evaluation itself sent, on rank 0."""
    order: str | None = None
    """Digest of the labels in the order in which rank 0 has trained on them in this epoch."""
    rank_accuracy: list[float] | None = None
    """Accuracy of each rank with its own weights and buffers; only where ranks do not hold the same weights."""
