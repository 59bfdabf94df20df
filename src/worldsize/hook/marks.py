"""What the file of a rank's marks consists of: records of one size, each a mark with its moment.

Written by stream.py in the program, read by commands/marks_file.py.
"""

import signal
import struct

RECORD = struct.Struct("<qqIHBB")
"""moment (ns of CLOCK_MONOTONIC), value, token, kind, flags, type. The type is written last: one that is not 0 says
that all of the record is there, also where the program was stopped in the middle of it."""
ROOM = 2**16
"""Records for which a file gets room at a time: a multiple of the machine's pages."""
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
