"""Records of `worldsize verify`: the proof that training is the same with every strategy (method.md §10)."""

from pydantic import Field

from worldsize.config import Arithmetic, VerifySettings
from worldsize.results.base import Record
from worldsize.results.check_records import Difference, Losses
from worldsize.results.provenance import Provenance
from worldsize.results.records import SCHEMA_VERSION, ErrorRecord


class Samples(Record):
    """What one step reads: a digest of each input with its label, in order."""

    epoch: int
    digests: list[str]


class DataDifference(Record):
    """The first sample that is not the one that others read at its place."""

    other: str
    """Who reads another one: the id of a cell, or `reference`."""
    epoch: int
    position: int
    """Counted from 0 in the order of the epoch: global batch after global batch, rank after rank."""


class Proof(Record):
    """What rank 0 of a cell found."""

    arithmetic: Arithmetic
    """In which the two were compared."""
    fallback: str | None = None
    """Why it is not the double precision that was asked for."""
    tolerance: float
    steps: int
    compared_steps: int
    """Steps whose gradients were compared: all in double precision, else the first."""
    dropouts: int
    """Layers whose random draws were switched off."""
    largest_gradient: float | None = None
    """Largest relative difference of a gradient; None where it is not finite."""
    largest_weight: float | None = None
    """Likewise of a weight after a step; None also where weights were not compared."""
    gradients: Difference | None = None
    """The first gradient that is not the reference's."""
    weights: Difference | None = None
    """The first weight that is not the reference's after a step."""
    ranks: Difference | None = None
    """The first parameter whose bits are not the same on all ranks after a step."""
    losses: Losses | None = None
    """Of a lossy strategy, in place of `largest_gradient`; its `largest_weight` is of the end, and is not judged."""
    buffers: int
    """Buffers of the model (BatchNorm statistics)."""
    buffers_apart_from: int | None = None
    """The first step in whose forward the ranks had other buffers; no fault: each averages over its own samples."""


class RankProof(Record):
    """What one rank hands over."""

    samples: list[Samples]
    proof: Proof | None = None
    """From rank 0."""
    expected: list[Samples] = Field(default_factory=list)
    """From rank 0: what the reference, which reads all workers' shares, was given."""


class VerifyRow(Record):
    """A strategy at a world size: the same as the reference, or in what it differs; a lossy one, what it loses."""

    id: str
    strategy: str
    world_size: int
    processes: int
    error: ErrorRecord | None = None
    """Why there is no proof."""
    proof: Proof | None = None
    samples: int = 0
    """Samples whose order and augmentation were compared."""
    data: DataDifference | None = None

    @property
    def same(self) -> bool:
        """Whether all of it holds."""
        proof = self.proof
        if proof is None or (proof.losses and proof.losses.faults):
            return False
        return not (proof.gradients or proof.weights or proof.ranks or self.data)


class ProofRecord(Record):
    """verify.json: what `worldsize verify` found."""

    schema_version: int = SCHEMA_VERSION
    provenance: Provenance
    settings: VerifySettings
    rows: list[VerifyRow]

    @property
    def exit_status(self) -> int:
        """0 when all hold, 1 when something differs or failed, 2 for a mistake of the user."""
        return max((row.error.exit_status if row.error else int(not row.same) for row in self.rows), default=0)
