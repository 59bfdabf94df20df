"""What `worldsize predict` prints and keeps: forecasts with their bands, and their own error (method.md §14)."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from worldsize.results.base import Record
from worldsize.results.files import own, read_record, write_whole
from worldsize.results.records import SCHEMA_VERSION, Estimate

FILE = "forecast.json"
"""In the run folder that it was made from."""
Limit = Literal["computing", "bytes", "latency", "slowdown", "stragglers"]
"""What makes a step longer than that of one worker: exposed communication that grows with its bytes or with its
messages, computing that messages slow, or waiting for the last rank; `computing` where none of them is notable."""


class Band(Record):
    """A predicted value, and between which values nine steps in ten lie."""

    value: float
    low: float
    high: float


class Forecast(Record):
    """One row: what a strategy would reach."""

    strategy: str
    world_size: int
    batch_size: int
    """b: samples per worker per step."""
    step_s: Band
    samples_per_s: Band
    speedup: Band | None = None
    """Over one worker with the same local batch, or the same global one (`scaling`); None where none was measured."""
    efficiency: Band | None = None
    scaling: Literal["weak", "strong"] = "weak"
    limit: Limit
    parts_s: dict[str, float]
    """The mean step: `compute_s`, `slowed_s`, `late_s`, `exposed_bytes_s`, `exposed_latency_s`, `rest_s`."""
    amdahl_step_s: float | None = None
    """Amdahl's law, fitted to the measured speed-ups."""
    power_step_s: float | None = None
    """(Tc^γ + Tn^γ)^(1/γ), fitted to the measured steps."""
    measured_step_s: Estimate | None = None
    """What the run measured, where it did."""


class HeldOut(Record):
    """A measured cell, predicted from the others."""

    cell: str
    measured_s: float
    predicted_s: float
    error: float
    """Predicted ÷ measured − 1."""
    in_band: float
    """Share of its steps that lie in the band."""
    amdahl_error: float | None = None
    power_error: float | None = None


class Narrowing(Record):
    """A measurement that would make the forecast surer."""

    what: str
    effect: float
    """By how much of the step the forecast moves with what is not known of it now."""
    command: str | None
    """That measures it; None for a run that was only metered."""


class Knee(Record):
    """Where more workers stop paying."""

    strategy: str
    world_size: int | None
    """The smallest with at least 95 % of the largest samples/s; None where it is the largest asked for."""


class ForecastReport(Record):
    """What `worldsize predict --json` prints, and the run folder keeps."""

    schema_version: int = SCHEMA_VERSION
    run: str
    link_bits_per_s: int | None = None
    """Of each emulated host, asked for or that of the run; None where there is none, or its rate is not limited."""
    link_latency_s: float | None = None
    bucket_mb: float | str | None = None
    """As asked for; None is that of the run."""
    measured: dict[str, float] = Field(default_factory=dict)
    """Cell → step (s): the numbers that it was made from."""
    assumes: list[str]
    """What the run did not measure and the forecast takes for granted, a sentence each."""
    other_links: bool = False
    """Whether links are others than those of the run, so that its cells are no points of the same line."""
    rows: list[Forecast]
    knees: list[Knee]
    held_out: list[HeldOut] = Field(default_factory=list)
    not_predicted: dict[str, str] = Field(default_factory=dict)
    """Strategy → why."""
    narrow: list[Narrowing] = Field(default_factory=list)


def write_forecast(run: Path, report: ForecastReport) -> None:
    """Keep a forecast with the run that it was made from; raises OutputError where that cannot be written."""
    write_whole(own(run, FILE), report.model_dump_json(indent=2) + "\n")


def read_forecast(run: Path) -> ForecastReport | None:
    """The forecast that was kept last; None without one. Raises OutputError where it is damaged."""
    path = own(run, FILE)
    return read_record(ForecastReport, path) if path.exists() else None
