"""The record of a profile: what is needed beside the traces of the ranks to read them together."""

from worldsize.results.records import SCHEMA_VERSION, Record


class ProfiledRank(Record):
    """How the trace of one rank was made, and how its clock is read."""

    rank: int
    steps: int
    zero_ns: int
    """The rank's monotonic clock at `ts` = 0 of its trace: clock = zero_ns + 1000·ts."""
    zero_error_ns: int
    """How wrong `zero_ns` can be: half of the mark during which both clocks were read."""
    clock_offset_ns: int
    """What to add to this rank's clock to get rank 0's."""
    clock_error_ns: int
    """How wrong the offset can be."""


class ProfileRecord(Record):
    """cells/<cell>/profile/profile.json: the ranks whose traces lie beside it."""

    schema_version: int = SCHEMA_VERSION
    ranks: list[ProfiledRank]
