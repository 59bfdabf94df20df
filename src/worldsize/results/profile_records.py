"""The record of a profile: what is needed beside the traces of the ranks to read them together."""

from typing import Annotated

from pydantic import Field

from worldsize.results.records import SCHEMA_VERSION, Record

Nanoseconds = Annotated[int, Field(ge=-(2**62), lt=2**62)]
"""No clock of a machine is out of it; a file may say anything."""


class ProfiledRank(Record):
    """How the trace of one rank was made, and how its clock is read."""

    rank: int = Field(ge=0, lt=2**20)
    steps: int
    zero_ns: Nanoseconds
    """The rank's monotonic clock at `ts` = 0 of its trace: clock = zero_ns + 1000·ts."""
    zero_error_ns: Nanoseconds
    """How wrong `zero_ns` can be: half of the mark during which both clocks were read."""
    clock_offset_ns: Nanoseconds
    """What to add to this rank's clock to get rank 0's."""
    clock_error_ns: Nanoseconds
    """How wrong the offset can be."""


class ProfileRecord(Record):
    """cells/<cell>/profile/profile.json: the ranks whose traces lie beside it."""

    schema_version: int = SCHEMA_VERSION
    ranks: list[ProfiledRank]
