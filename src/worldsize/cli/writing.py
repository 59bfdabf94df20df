"""Files that a flag of a command names."""

from collections.abc import Iterator
from contextlib import contextmanager

from worldsize.errors import OutputError


@contextmanager
def written_by(flag: str) -> Iterator[None]:
    """A file that cannot be written is given by this flag."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{str(error).splitlines()[0]}\nGive a file you may write to with {flag}.") from None
