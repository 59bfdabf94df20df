"""What an entry says that names its row: a count of workers, nodes and workers on each, a strategy."""

import re
from dataclasses import replace

from worldsize.analysis.audit.meaning import NODES, WORKERS, Meaning, meaning
from worldsize.analysis.audit.numbers import whole_number
from worldsize.analysis.audit.quantities import Quantity

_SETTING = re.compile(r"\d\s?[kKMGT]i?[bB](?:it)?(?:/s|ps)?\b")
"""A label as "bucket 50 MB" or "100 Gbit/s": what was set, not what was measured."""
STRATEGY = re.compile(
    r"^\W*(?:fs)?(?:ddp|dp)\b|^\W*(?:gather|bucket|single|data-?parallel|distributed|horovod|zero)", re.I
)
_COLLECTIVE = re.compile(r"[a-z]*all-?\s?reduce|[a-z-]*sync[a-z-]*|[a-z-]*comm[a-z-]*")
ROWS_READ = 200
"""Rows that are looked through for what a column is of."""

_PRODUCT = re.compile(r"\s*(\d+)\s*[x×*]\s*(\d+)\s*")
_SETUP = re.compile(rf"{NODES}|{WORKERS}|\b(?:config\w*|set-?up|topology|layout|cluster|system|hardware)\b")
"""What heads "1 x 8, 2 x 8": a configuration, of nodes and of as many workers on each."""


def label_of(entry: str, heading: str, entries: list[str], *, counts: bool) -> Meaning:
    """What an entry says beside others of its column; `counts`: the heading says that they count workers."""
    named = nodes_by(entry, heading) or nodes_of_setups(entry, heading, entries) or meaning(entry)
    if _SETTING.search(entry) and named.quantity in (Quantity.BYTES, Quantity.BANDWIDTH):
        named = replace(named, quantity=None, unit=None)
    # Among strategies one is called as its collective: "DDP", "gather", "all-reduce".
    if named.quantity is Quantity.COMMUNICATION and any(map(STRATEGY.match, entries)):
        collective = _COLLECTIVE.search(entry.lower())
        named = replace(named, quantity=None, unit=None, rest=collective[0] if collective else entry.lower())
    if named.n is None and counts and whole_number(entry) is not None:
        named = replace(named, n=whole_number(entry))
    return named


def nodes_by(entry: str, heading: str) -> Meaning | None:
    """Of "2 x 8" under "Nodes x GPUs"."""
    heading, found = heading.lower(), _PRODUCT.fullmatch(entry)
    if found is None or not re.search(NODES, heading) or not re.search(WORKERS, heading):
        return None
    return Meaning(n=int(found[1]) * int(found[2]), nodes=int(found[1]))


def nodes_of_setups(entry: str, heading: str, entries: list[str]) -> Meaning | None:
    """Of "2 x 8" under "Configuration", where all entries have as many workers on a node; a batch is no such thing."""
    products = [_PRODUCT.fullmatch(each) for each in entries]
    found = _PRODUCT.fullmatch(entry)
    if found is None or not _SETUP.search(heading.lower()) or len(set(entries)) < 2 or not all(products):
        return None
    each = {product[2] for product in products if product is not None}
    return Meaning(n=int(found[1]) * int(found[2]), nodes=int(found[1])) if len(each) == 1 else None
