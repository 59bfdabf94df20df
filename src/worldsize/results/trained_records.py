"""What a study trains, and on what, as far as it explains a number."""

from typing import Literal

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
    flops_per_sample: int | None = None
    """Floating-point operations of forward and backward for one sample (method.md §12)."""
