"""What a rank says that only lost its peers, told from its words alone: the record of an error is all that travels."""

from worldsize.results.records import ErrorRecord

KINDS = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError"})
WORDS = ("gloo/transport", "Connection closed")


def is_secondary_message(message: str) -> bool:
    """Whether a message tells of a broken connection in a collective."""
    return any(words in message for words in WORDS)


def is_secondary(error: ErrorRecord) -> bool:
    """Whether this is only what a rank sees when another one is gone."""
    return error.kind in KINDS or (error.kind == "RuntimeError" and is_secondary_message(error.message))


def likeliest(errors: list[ErrorRecord]) -> ErrorRecord:
    """The first cause among the errors of several nodes, in the order in which they came.

    An agent that ended without a word names no rank: it may be the cause, or have been ended by it.
    """
    return min(errors, key=lambda error: 2 if is_secondary(error) else int(error.rank is None))
