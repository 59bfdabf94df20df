"""JSON of other tools, and of worldsize itself."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from worldsize.documents import nccl, objects
from worldsize.documents.grid import Blocks, Cell

_HYPERFINE = ("mean", "stddev", "median", "min", "max", "user", "system")
"""Seconds, all of them."""


def read(source: str, blocks: Blocks, line: int = 1) -> None:
    """Add the tables of a JSON text, or of lines of JSON, to the blocks; the line at which they begin is unknown.

    Raises ValueError for what is no JSON, UsageError for too many entries.
    """
    value = _value(source)
    results = value.get("results") if isinstance(value, dict) else None
    if isinstance(results, list) and results and all(isinstance(each, dict) for each in results):
        if all("command" in each and "mean" in each for each in results):
            _hyperfine(results, blocks)
            return
        if any("out_of_place" in each or "in_place" in each for each in results):
            _nccl_tests(value, results, blocks)
            return
    objects.read(value, blocks)


def is_lines(source: str) -> bool:
    """Whether a text is JSON line by line."""
    lines = [line for line in source.split("\n", 50)[:50] if line.strip()]
    try:
        return len(lines) > 1 and all(isinstance(json.loads(line), dict) for line in lines[:3])
    except (ValueError, RecursionError):
        return False


def _value(source: str) -> Any:
    """The value with its numbers as they were printed."""
    try:
        try:
            return json.loads(source, parse_int=str, parse_float=str, parse_constant=str)
        except ValueError:
            if not is_lines(source):
                raise
            lines = [line for line in source.split("\n") if line.strip()]
            return [json.loads(line, parse_int=str, parse_float=str, parse_constant=str) for line in lines]
    except RecursionError:
        raise ValueError("its lists are nested too deep") from None


def _hyperfine(results: Sequence[Mapping[str, Any]], blocks: Blocks) -> None:
    """What `hyperfine --export-json` writes: a command in each row."""
    given = dict.fromkeys(name for each in results for name in _inner(each, "parameters"))
    known = [name for name in _HYPERFINE if any(each.get(name) is not None for each in results)]
    heading = ["command", *given, *(f"{name} (s)" for name in known), "runs"]
    rows = [
        [
            *(
                objects.text_of(each.get("command")),
                *(objects.text_of(_inner(each, "parameters").get(n)) for n in given),
            ),
            *(objects.text_of(each.get(name)) for name in known),
            str(len(each["times"])) if isinstance(each.get("times"), list) else "",
        ]
        for each in results
    ]
    blocks.words("hyperfine: seconds of each command")
    blocks.table([[Cell(text) for text in row] for row in [heading, *rows]], 0, 1)


def _nccl_tests(value: Mapping[str, Any], results: Sequence[Mapping[str, Any]], blocks: Blocks) -> None:
    """What nccl-tests writes with -J, as the table that it prints."""
    arguments = value.get("args")
    if isinstance(arguments, list):
        blocks.words(" ".join(map(objects.text_of, arguments)))
    devices = value.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict):
            rank, host, name = (objects.text_of(device.get(key)) for key in ("rank", "hostname", "device_info"))
            blocks.words(f"Rank {rank} on {host} device {objects.text_of(device.get('device'))} {name}")
    places = [name for name in ("out_of_place", "in_place") if any(_inner(each, name) for each in results)]
    first = ("size", "count", "type", "redop", "root")
    names = [*first, *("time", "algbw", "busbw", "#wrong") * len(places)]
    units = ["(B)", "(elements)", *("(us)", "(GB/s)", "(GB/s)") * len(places)]
    heading = nccl.heading_of(names, units, [name.replace("_", "-") for name in places])
    rows = [
        [
            *(objects.text_of(each.get(name)) for name in first),
            *(
                objects.text_of(_inner(each, place).get(name))
                for place in places
                for name in ("time", "alg_bw", "bus_bw", "nwrong")
            ),
        ]
        for each in results
    ]
    blocks.table([[Cell(text) for text in row] for row in [*heading, *rows]], 0, len(heading))
    average = objects.text_of(_inner(value, "average_bus_bandwidth").get("bandwidth"))
    blocks.words(f"Avg bus bandwidth : {average}" if average else "")


def _inner(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}
