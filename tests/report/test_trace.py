"""One trace of all ranks: on one clock, without clashes, and only of what can be read."""

import json
from pathlib import Path
from typing import Any

import pytest

from made_runs import MadeCell, make_run, usual_cells
from made_traces import PROCESS, event, message, rank_of, record, trace, write_traces
from worldsize.analysis.study import analyse
from worldsize.report.contents import sections
from worldsize.report.profile import merged_trace, profile_table
from worldsize.report.tables import to_records
from worldsize.report.write import write_report
from worldsize.results.folder import load_run
from worldsize.results.traces import profile_folder

CELL = "ddp-w2-b32"


def merged(place: Path) -> dict[str, Any]:
    text = merged_trace(place, CELL)
    assert text is not None
    content: dict[str, Any] = json.loads(text)
    return content


def timed(content: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    events = [each for each in content["traceEvents"] if each["ph"] == "X"]
    return [each for each in events if all(each[key] == value for key, value in wanted.items())]


def test_times_are_on_the_clock_of_rank_0_and_begin_at_0(tmp_path: Path) -> None:
    """Rank 1's clock is 7 ms behind, and its profiler counts from another moment: its step began 25 µs later."""
    records = [
        record(0, zero_ns=5_000_000),
        record(1, zero_ns=-2_000_000 - 300_000, offset_ns=7_000_000, error_ns=400),
    ]
    write_traces(tmp_path, [rank_of(0, start_us=1000.0), rank_of(1, start_us=1325.0)], records)
    content = merged(tmp_path)
    first, second = (timed(content, pid=rank, name="ProfilerStep#0")[0] for rank in range(2))
    assert (first["ts"], second["ts"]) == (0.0, 25.0)
    assert first["dur"] == second["dur"] == 100.0
    assert content["baseTimeNanoseconds"] == 1_700_000_000_000_000_000 + 1_000_000
    assert content["clocks"]["1"] == {"offset_ns": 7_000_000, "error_ns": 1400}


def test_ranks_are_processes_that_share_neither_threads_nor_arrows(tmp_path: Path) -> None:
    write_traces(tmp_path, [rank_of(0), rank_of(1)])
    content = merged(tmp_path)
    assert content["distributedInfo"] == {"backend": "gloo", "world_size": 2}
    about = {(each["pid"], each["name"]): each["args"] for each in content["traceEvents"] if each["ph"] == "M"}
    assert about[0, "process_name"] == {"name": f"rank 0 · {CELL}"}
    assert about[1, "process_name"] == {"name": f"rank 1 · {CELL}"}
    assert [about[rank, "process_sort_index"]["sort_index"] for rank in range(2)] == [0, 1]
    threads = [{each["tid"] for each in timed(content, pid=rank)} for rank in range(2)]
    assert len(threads[0]) == len(threads[1]) == 2
    assert not threads[0] & threads[1]
    assert 0 not in threads[0]
    arrows: dict[int, list[tuple[str, int]]] = {}
    for each in content["traceEvents"]:
        if each["ph"] in "sf":
            arrows.setdefault(each["id"], []).append((each["ph"], each["pid"]))
    assert all(isinstance(number, int) for number in arrows), "Perfetto reads a string as a hexadecimal number"
    assert sorted(arrows.values()) == [[("s", 0), ("f", 0)], [("s", 1), ("f", 1)]]


def test_collectives_keep_their_names_and_bytes_and_noise_is_dropped(tmp_path: Path) -> None:
    write_traces(tmp_path, [rank_of(0), rank_of(1)])
    content = merged(tmp_path)
    found = timed(content, cat="collective")
    assert [(each["name"], each["args"]["bytes"]) for each in found] == [("all_reduce 4 B", 4)] * 2
    assert {each["cat"] for each in timed(content)} == {"user_annotation", "cpu_op", "collective"}
    assert all("args" not in each for each in timed(content, cat="cpu_op"))
    times = [each["ts"] for each in content["traceEvents"] if each["ph"] != "M"]
    assert times == sorted(times)
    named = [each for each in content["traceEvents"] if each["name"] == "thread_name"]
    shown = {(each["pid"], each["tid"]): each["args"]["name"] for each in named}
    assert {shown[each["pid"], each["tid"]] for each in timed(content, name="aten::mm")} == {"training"}


def test_a_hostile_trace_is_taken_as_words_and_numbers(tmp_path: Path) -> None:
    nasty = message("</script>\ud800 1 B", 10, 5)
    nasty["args"] = {"bytes": 4, "deep": [[[]]], "far": 1e400, "name": "<b>"}
    write_traces(tmp_path, [rank_of(0)])
    text = json.dumps(trace(event("ProfilerStep#0", 0, 50, cat="user_annotation"), nasty, [], "x"))
    (profile_folder(tmp_path) / "rank0.json").write_text(text.replace("Infinity", "1e400"))
    content = merged(tmp_path)
    [found] = timed(content, cat="collective")
    assert found["args"] == {"bytes": 4, "name": "<b>"}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    write_traces(tmp_path, [rank_of(0), rank_of(1)])
    (profile_folder(tmp_path) / "rank0.json").write_text("{")
    assert {each["pid"] for each in timed(merged(tmp_path))} == {1}
    assert merged(tmp_path)["distributedInfo"]["world_size"] == 2
    (profile_folder(tmp_path) / "rank1.json").unlink()
    assert merged_trace(tmp_path, CELL) is None
    assert merged_trace(tmp_path / "nowhere", CELL) is None


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run(tmp_path_factory.mktemp("profiled"), usual_cells())
    write_traces(run / "cells" / CELL, [rank_of(0), rank_of(1)])
    return run


def test_the_report_links_to_the_trace_and_says_how_to_open_it(profiled: Path) -> None:
    page = write_report(profiled)
    assert json.loads((page.parent / f"trace-{CELL}.json").read_text())["traceName"] == f"trace-{CELL}.json"
    assert [path.name for path in page.parent.glob("trace-*")] == [f"trace-{CELL}.json"]
    html = page.read_text()
    assert f'<a href="trace-{CELL}.json">' in html
    assert "https://ui.perfetto.dev" in html
    assert "## Profile" in (page.parent / "summary.md").read_text()


def test_the_table_has_a_line_per_rank_beside_the_timeline(profiled: Path) -> None:
    rows = to_records(profile_table(analyse(load_run(profiled))))
    assert [(row["cell"], row["rank"]) for row in rows] == [(CELL, 0), (CELL, 1)]
    for row in rows:
        assert (row["step_s"], row["compute_share"], row["communication_share"]) == (100e-6, 0.5, 0.4)
        assert row["timeline_compute_share"] == pytest.approx(0.94 * 0.95)
        for share in ("compute", "communication", "overlapped"):
            ours, theirs = row[f"{share}_share"], row[f"timeline_{share}_share"]
            assert isinstance(ours, float)
            assert isinstance(theirs, float)
            assert row[f"{share}_difference"] == pytest.approx(ours - theirs)


def test_without_a_profile_nothing_is_said_of_it(tmp_path: Path) -> None:
    run = make_run(tmp_path, [MadeCell("single", 1)])
    assert "profile" not in [section.id for section in sections(analyse(load_run(run)))]
    page = write_report(run)
    assert "perfetto" not in page.read_text()
    assert not list(page.parent.glob("trace-*"))


def test_the_made_process_is_no_rank(tmp_path: Path) -> None:
    """The number of the process that was traced must not come through: ranks on two hosts may share one."""
    write_traces(tmp_path, [rank_of(0), rank_of(1)])
    assert PROCESS not in {each["pid"] for each in merged(tmp_path)["traceEvents"]}
