"""What Horovod's synthetic benchmarks print, of one run or several: a row for each run."""

import re

from worldsize.documents.grid import Blocks, Cell
from worldsize.documents.nccl import RANK
from worldsize.documents.numbers import tidy

_TOTAL = re.compile(
    r"Total (img|images|samples|tokens)/sec on (\d{1,7}) ([GCT]PU)\(s\): ([\d.,]+(?: ?\+/?- ?[\d.,]+)?)"
)
_EACH = re.compile(r"(?:img|images|samples|tokens)/sec per [GCT]PU: ([\d.,]+(?: ?\+/?- ?[\d.,]+)?)", re.IGNORECASE)
_MODEL = re.compile(r"Model: (\S{1,60})")
_BATCH = re.compile(r"Batch size: (\d{1,9})")


def is_output(source: str) -> bool:
    """Whether a text holds the last line of such a benchmark."""
    return "/sec on " in source and any(_TOTAL.fullmatch(_bare(text)) for text in source.split("\n"))


def _bare(text: str) -> str:
    return RANK.sub("", text).strip()


def read(source: str, blocks: Blocks, line: int = 1) -> None:
    """Add a table of the runs to the blocks, and all other lines as paragraphs; raises UsageError for too many."""
    rows: list[list[str]] = []
    words: list[str] = []
    model = batch = each = what = device = ""
    begun = 0
    for place, text in enumerate(map(_bare, source.split("\n"))):
        if (found := _MODEL.fullmatch(text)) is not None:
            model = found[1]
        elif (found := _BATCH.fullmatch(text)) is not None:
            batch = found[1]
        elif (found := _EACH.fullmatch(text)) is not None:
            each = found[1]
        elif (found := _TOTAL.fullmatch(text)) is not None:
            begun = begun or (line + place if line else 0)
            what, device = found[1], found[3]
            rows.append([model, batch, found[2], each, found[4]])
            each = ""
        elif not text.startswith(("Iter #", "Number of", "Running ")):
            words.append(text)
    blocks.words(tidy(" ".join(words)))
    heading = ["Model", f"Batch size per {device}", f"{device}s", f"{what}/sec per {device}", f"total {what}/sec"]
    kept = [at for at in range(len(heading)) if any(row[at] for row in rows)]
    blocks.table([[Cell(row[at]) for at in kept] for row in [heading, *rows]], begun, 1)
