"""What the file of a rank's marks consists of: records of one size, each a mark with its moment.

Written by stream.py in the program, read by commands/marks_file.py.
"""

import signal
import struct

FIELDS = (("ns", "<i8"), ("value", "<i8"), ("token", "<u4"), ("kind", "<u2"), ("flags", "u1"), ("type", "u1"))
"""Of a record: a moment of CLOCK_MONOTONIC, and what happened then; as numpy reads them."""
WORDS = struct.Struct("<qqQ")
"""The same as it is written: the last four fields are one word, which `word_of` makes. It is written last: a type that
is not 0 says that all of the record is there, also where the program was stopped in the middle of it."""
ROOM_BYTES = 2**16 * WORDS.size
"""How much a file grows at a time: a multiple of the machine's pages."""
STRETCH, ISSUED, READY, DONE, STEP, GARBAGE, BEGIN = range(1, 8)
"""A stretch ends (kind: its place in PHASES) · a message is issued (kind: its place in KINDS, token, value: bytes) ·
its bucket was ready (token) · it is done (token) · a step ends (flags: INTERRUPTED, kind: collectives that were not
seen, token: number of the step, value: samples) · garbage was collected (value: when that had begun, ns) · the first
step begins."""
BLOCKING, SOME_RANKS, INTERRUPTED = 1, 2, 4
"""Flags: the rank computes nothing until the message is done; its group has not all ranks; the loop did something else
in the middle of this step."""

PHASES = (
    "data_wait",
    "copy",
    "forward",
    "backward",
    "after_backward",
    "optimizer",
    "other",
    "evaluation",
    "checkpoint",
    "restart",
    "logging",
    "unknown",
)
KINDS = (
    "other",
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
)
OF_SOME_RANKS = "_of_some_ranks"
"""Ends the kind of a message in a group of fewer ranks than there are: the others take no part in it."""

ASK = signal.SIGRTMIN + 9
"""Asks a process for the stack of its main thread: a signal that no program uses."""
FOLDER_VARIABLE = "WORLDSIZE_HOOK"
"""Names the folder that the marks go to; without it the hook does nothing."""
ONE_FILE = "rank{rank}.{pid}"
"""Name of a rank's file of marks, with `.marks` or `.json` (facts) behind it."""


def word_of(mark: int, *, token: int = 0, kind: int = 0, flags: int = 0) -> int:
    """Return the last word of a record of this type; token at most 32 bits, kind 16, flags 8."""
    return token | kind << 32 | flags << 48 | mark << 56
