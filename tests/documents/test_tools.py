"""What other tools write: hyperfine, nccl-tests, pandas, and worldsize itself."""

import json

import pytest

from worldsize.documents.document import Document
from worldsize.documents.read import read
from worldsize.errors import UsageError

PRINTED = """# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152
#  Rank  0 Group  0 Pid  100 on host device  0 [0x07] NVIDIA H100
#  Rank  1 Group  0 Pid  100 on host device  1 [0x0a] NVIDIA H100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    40.11   26.14   26.14      0    40.52   25.88   25.88      0
host:100:100 [0] NCCL INFO something else
     2097152        524288     float     sum      -1    55.01   38.12   38.12    N/A    55.20   37.99   37.99    N/A
# Avg bus bandwidth    : 32.03
"""
HEADING = (
    ("", "", "", "", "", *("out-of-place",) * 4, *("in-place",) * 4),
    (
        *("size (B)", "count (elements)", "type", "redop", "root"),
        *("time (us)", "algbw (GB/s)", "busbw (GB/s)", "#wrong") * 2,
    ),
)


def tool(value: object) -> Document:
    return read("a.json", text=json.dumps(value))


@pytest.mark.parametrize("before", ["", "[1,0]<stdout>:", " 0: "])
def test_nccl_tests(before: str) -> None:
    document = read("-", text="".join(f"{before}{line}\n" for line in PRINTED.split("\n")))
    (table,) = document.tables
    assert document.format == "text"
    assert table.line == 6
    assert table.header == HEADING
    assert table.rows[0] == (
        *("1048576", "262144", "float", "sum", "-1"),
        *("40.11", "26.14", "26.14", "0"),
        *("40.52", "25.88", "25.88", "0"),
    )
    assert len(table.rows) == 2
    assert "Rank 1 Group 0 Pid 100 on host device 1 [0x0a] NVIDIA H100" in document.text
    assert "Avg bus bandwidth : 32.03" in document.text


def test_nccl_tests_in_markdown() -> None:
    assert read("a.md", text=f"# Bandwidth\n\n```\n{PRINTED}```\n").tables[0].header == HEADING


def test_nccl_tests_as_json() -> None:
    place = {"time": 40.11, "alg_bw": 26.14, "bus_bw": 26.14, "nwrong": 0}
    result = {"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1"}
    document = tool(
        {
            "args": ["all_reduce_perf", "-g", "2"],
            "env": ["TOKEN=secret"],
            "devices": [{"rank": 0, "hostname": "host", "device": 0, "device_info": "NVIDIA H100"}],
            "results": [{**result, "out_of_place": place, "in_place": {**place, "nwrong": None}}],
            "average_bus_bandwidth": {"bandwidth": 26.14},
        }
    )
    (table,) = document.tables
    assert table.header == HEADING
    assert table.rows == (
        (
            "1048576",
            "262144",
            "float",
            "sum",
            "-1",
            *("40.11", "26.14", "26.14", "0") * 1,
            *("40.11", "26.14", "26.14", ""),
        ),
    )
    assert document.text == "all_reduce_perf -g 2\nRank 0 on host device 0 NVIDIA H100\nAvg bus bandwidth : 26.14"


def test_hyperfine() -> None:
    result = {
        "command": "train 1",
        "mean": 38.01,
        "stddev": 0.5,
        "min": 37.0,
        "times": [38.0, 38.02],
        "exit_codes": [0, 0],
    }
    (table,) = tool({"results": [{**result, "parameters": {"gpus": "1"}}, {**result, "stddev": None}]}).tables
    assert table.header == (("command", "gpus", "mean (s)", "stddev (s)", "min (s)", "runs"),)
    assert table.rows == (("train 1", "1", "38.01", "0.5", "37.0", "2"), ("train 1", "", "38.01", "", "37.0", "2"))


def test_a_list_of_objects() -> None:
    (table,) = read("a.json", text='[{"gpus": 1, "time": 38.00}, {"gpus": 2, "time": 1e3, "note": null}]').tables
    assert table.header == (("gpus", "time", "note"),)
    assert table.rows == (("1", "38.00", ""), ("2", "1e3", ""))


def test_objects_within_others() -> None:
    document = tool(
        {
            "model": "resnet18",
            "cells": {"of": [{"N": 1, "step_s": {"value": 0.1, "low": 0.09}, "parts": [{"name": "a", "s": 1}]}]},
        }
    )
    first, second = document.tables
    assert (first.caption, first.header) == ("cells.of", (("N", "step_s", "step_s.low"),))
    assert (second.caption, second.rows) == ("cells.of[0].parts", (("a", "1"),))
    assert "model: resnet18" in document.text


@pytest.mark.parametrize(
    "value",
    [
        {"gpus": [1, 2], "time": [38, 20]},
        {"columns": ["gpus", "time"], "data": [[1, 38], [2, 20]]},
        [["gpus", "time"], [1, 38], [2, 20]],
    ],
)
def test_columns_and_rows(value: object) -> None:
    (table,) = tool(value).tables
    assert (table.header, table.rows) == ((("gpus", "time"),), (("1", "38"), ("2", "20")))


def test_objects_by_name() -> None:
    (table,) = tool({"ddp": {"gpus": 1, "time": 38}, "fsdp": {"gpus": 2, "time": 20}}).tables
    assert (table.header, table.rows) == ((("", "gpus", "time"),), (("ddp", "1", "38"), ("fsdp", "2", "20")))


def test_lines_of_json() -> None:
    (table,) = read("-", text='{"gpus": 1, "time": 38}\n{"gpus": 2, "time": 20}\n').tables
    assert table.rows == (("1", "38"), ("2", "20"))


def test_json_that_is_damaged() -> None:
    with pytest.raises(UsageError, match=r"a.json is no valid JSON: .*line 1"):
        read("a.json", text='{"a": [1, 2')
