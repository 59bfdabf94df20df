"""The records of a session's cells, and the progress that is read from the files of their ranks."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fake_cells import STEPS_PER_EPOCH, facts, planned, step_line, write_steps
from heard import Heard
from worldsize.config import StudySettings
from worldsize.errors import OutputError
from worldsize.ranks.turns import Reply
from worldsize.results.files import cell_folder, read_record
from worldsize.results.folder import Cell
from worldsize.results.memory_records import MemoryParts
from worldsize.results.rank_files import last_step
from worldsize.results.records import CellRecord, ErrorRecord
from worldsize.results.step_records import StepRecord
from worldsize.study import ledger as ledger_module
from worldsize.study.ledger import Ledger
from worldsize.study.plan import PlannedCell

STUDY = StudySettings(steps=6)
CELL = planned("ddp", 2, STUDY)
FACTS = [facts()] * 2


def rank0(run: Path, cell: PlannedCell = CELL) -> Path:
    file = cell_folder(run, cell.id) / "rank0.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def stored(run: Path) -> CellRecord:
    return read_record(CellRecord, cell_folder(run, CELL.id) / "cell.json")


@pytest.mark.parametrize(
    ("content", "step"),
    [
        pytest.param("", None, id="empty"),
        pytest.param(step_line(0, 0.5)[:40], None, id="only a torn line"),
        pytest.param(step_line(0, 0.5), 0, id="one line"),
        pytest.param(step_line(0, 0.5) + step_line(1, 0.5)[:40], 0, id="torn after a whole one"),
        pytest.param(step_line(0, 0.5) + step_line(1, 0.5)[:-1], 0, id="whole but for its end"),
        pytest.param("".join(step_line(n, 0.5) for n in range(100)), 99, id="many"),
        pytest.param("".join(step_line(n, 0.5) for n in range(100)) + '{"ses', 99, id="many and a torn one"),
        pytest.param(step_line(0, 0.5) + "garbage\n", None, id="garbage"),
        pytest.param(step_line(0, 0.5) + '{"step": 1}\n', None, id="not a step"),
        pytest.param(step_line(0, 0.5) + "\0" * 5000, None, id="zeros that a power cut left"),
    ],
)
def test_last_step_is_that_of_the_last_whole_line(tmp_path: Path, content: str, step: int | None) -> None:
    file = tmp_path / "rank0.jsonl"
    file.write_text(content)
    found = last_step(file)
    assert (found and found.step) == step
    assert isinstance(found, StepRecord | None)


def test_last_step_of_a_missing_file(tmp_path: Path) -> None:
    assert last_step(tmp_path / "rank0.jsonl") is None
    assert last_step(tmp_path) is None


@hypothesis_settings(deadline=None, max_examples=40)
@given(
    turns=st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4),
    torn=st.booleans(),
    before=st.integers(0, 5),
)
def test_progress_never_counts_a_step_twice(
    tmp_path_factory: pytest.TempPathFactory, turns: list[list[int]], torn: bool, before: int
) -> None:
    """Looks at any moment, also at a half-written line: the steps told are those that were run."""
    run = tmp_path_factory.mktemp("run")
    write_steps(run, CELL, [0.5] * before, session=0, block=0, first=0)
    ledger, heard = Ledger(run, 1, {}), Heard()
    ledger.expect(CELL, 100)
    number = 0
    for block, writes in enumerate(turns):
        follower = ledger.follow(CELL, heard)
        follower.look()
        for count in writes:
            for _ in range(count):
                line = step_line(number, 0.5, session=1, block=block)
                with rank0(run).open("a") as file:
                    if torn:
                        file.write(line[:30])
                        file.flush()
                        follower.look()
                        line = line[30:]
                    file.write(line)
                number += 1
            follower.look()
            assert heard.steps(CELL.id) == ledger.done_steps(CELL) == number
        follower.finish(sum(writes))
        assert heard.steps(CELL.id) == ledger.done_steps(CELL) == number
    assert all(steps > 0 for _, steps in heard.advances)


def test_progress_goes_on_after_rolled_back_steps(tmp_path: Path) -> None:
    """They are in the same file, and the next turn goes on with the numbers that they had."""
    ledger, heard = Ledger(tmp_path, 0, {}), Heard()
    ledger.expect(CELL, 100)
    for block in range(3):
        follower = ledger.follow(CELL, heard)
        write_steps(tmp_path, CELL, [0.5] * 2, session=0, block=block, first=4 * block)
        follower.look()
        assert ledger.done_steps(CELL) == 4 * block + 2, "told while the turn goes on"
        write_steps(tmp_path, CELL, [0.5] * 2, session=0, block=block, first=4 * block + 2)
        follower.finish(4)
        write_steps(tmp_path, CELL, [0.5] * 9, session=0, block=block, first=4 * block + 4, synchronised=False)
    assert heard.steps(CELL.id) == 12


def test_steps_that_were_not_seen_on_the_way_are_told_at_the_end(tmp_path: Path) -> None:
    """Workers that ran out of memory amid a turn are started anew, and number their steps from 0 again."""
    ledger, heard = Ledger(tmp_path, 0, {}), Heard()
    ledger.expect(CELL, 100)
    write_steps(tmp_path, CELL, [0.5] * 20, session=0, block=0, first=0)
    follower = ledger.follow(CELL, heard)
    write_steps(tmp_path, CELL, [0.5] * 2, session=0, block=1, first=20)
    follower.look()
    assert heard.steps(CELL.id) == 2
    for number in range(5):
        write_steps(tmp_path, CELL, [0.5], session=0, block=1, first=number)
        follower.look()
    follower.finish(5)
    assert heard.steps(CELL.id) == 5


def test_each_change_of_state_is_on_the_disk(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 0, {})
    ledger.started(CELL, FACTS)
    assert stored(tmp_path).state == "running"
    assert stored(tmp_path).steps_per_epoch == STEPS_PER_EPOCH
    assert stored(tmp_path).summary is None
    write_steps(tmp_path, CELL, [0.5, 0.5, 0.5], session=0, block=0, first=0)
    ledger.failed(CELL, ErrorRecord(kind="Signal", message="rank 1 was killed by SIGKILL", rank=1))
    record = stored(tmp_path)
    assert (record.state, record.error and record.error.rank) == ("failed", 1)
    assert record.summary is not None, "what was measured before is kept"
    assert record.summary.timed_steps == 3


def test_memory_is_the_largest_of_all_ranks_and_turns_reserved_beside_allocated(tmp_path: Path) -> None:
    """On a GPU no other process can have what the allocator holds, tensors in it or not; a CPU has no such number."""
    ledger = Ledger(tmp_path, 0, {})
    assert ledger.record(CELL).peak_reserved_bytes is None
    ledger.used_memory(CELL, [Reply(peak_memory_bytes=5, peak_reserved_bytes=None), Reply(peak_memory_bytes=7)])
    record = ledger.record(CELL)
    assert (record.peak_memory_bytes, record.peak_reserved_bytes) == (7, None)
    for peak, reserved in ((6, 20), (9, 30), (8, 10)):
        other = Reply(peak_memory_bytes=1, peak_reserved_bytes=2)
        ledger.used_memory(CELL, [other, Reply(peak_memory_bytes=peak, peak_reserved_bytes=reserved)])
    assert (record.peak_memory_bytes, record.peak_reserved_bytes) == (9, 30)


def test_only_cells_that_had_not_ended_are_interrupted(tmp_path: Path) -> None:
    single = planned("single", 1, STUDY)
    ledger = Ledger(tmp_path, 0, {})
    ledger.started(single, FACTS)
    ledger.completed(single, "cap")
    ledger.started(CELL, FACTS)
    assert [record.id for record in ledger.interrupted()] == [CELL.id]
    assert stored(tmp_path).state == "interrupted"
    assert read_record(CellRecord, cell_folder(tmp_path, single.id) / "cell.json").state == "complete"


def test_lines_that_cannot_be_read_keep_no_cell_from_being_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = planned("single", 1, STUDY)
    ledger = Ledger(tmp_path, 0, {})
    ledger.started(single, FACTS)
    ledger.started(CELL, FACTS)
    ledger.unobserved(single, 0, [0.5])

    def unreadable(cell: Cell) -> None:
        if cell.record.id == single.id:
            raise OutputError("line 3 is garbled")

    monkeypatch.setattr(ledger_module, "summarise", unreadable)
    assert {record.id for record in ledger.interrupted()} == {single.id, CELL.id}
    assert stored(tmp_path).state == "interrupted"
    record = read_record(CellRecord, cell_folder(tmp_path, single.id) / "cell.json")
    assert (record.state, [each.step_s for each in record.unobserved]) == ("interrupted", [[0.5]])


def test_what_is_known_of_blocks_is_on_disk_while_others_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill −9 loses no more than the last seconds of it."""
    now_s = 100.0
    monkeypatch.setattr(ledger_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    ledger = Ledger(tmp_path, 0, {})
    ledger.started(CELL, FACTS)
    for block in range(4):
        ledger.unobserved(CELL, block, [0.5])
        ledger.acted(CELL, block, [Reply()])
        now_s += 3.0
    assert [each.block for each in stored(tmp_path).unobserved] == [0, 1, 2]


def test_an_oversubscribed_cell_says_so(tmp_path: Path) -> None:
    cell = planned("ddp", 3, STUDY)
    assert cell.placement.oversubscribed
    ledger = Ledger(tmp_path, 0, {})
    ledger.started(cell, FACTS)
    [warning] = read_record(CellRecord, cell_folder(tmp_path, cell.id) / "cell.json").warnings
    assert warning.code == "oversubscribed"
    assert "3 threads on 2 core(s)" in warning.message
    assert "--allow-oversubscribed" in warning.message


def test_an_oversubscribed_cell_names_its_quota_and_its_siblings(tmp_path: Path) -> None:
    cell = planned("ddp", 3, STUDY)
    crowded = {"room_cores": 1.5, "on_siblings": (1, 2)}
    cell = PlannedCell(cell.settings, cell.placement.model_copy(update=crowded))
    ledger = Ledger(tmp_path, 0, {})
    ledger.started(cell, FACTS)
    [warning] = read_record(CellRecord, cell_folder(tmp_path, cell.id) / "cell.json").warnings
    assert "3 threads on 1.5 core(s); 2 worker(s) sit on second threads" in warning.message


def test_a_ledger_of_a_rank_that_does_not_write_leaves_no_file(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 0, {}, writing=False)
    ledger.started(CELL, FACTS)
    assert ledger.completed(CELL, "cap").state == "complete"
    assert list(tmp_path.iterdir()) == []


def test_memory_is_that_of_the_rank_with_the_largest_peak(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, 0, {})
    sizes = {"parameter_bytes": 1, "buffer_bytes": 0, "gradient_bytes": 1, "optimizer_bytes": 1, "copy_bytes": 0}
    replies = [
        Reply(peak_memory_bytes=peak, memory=MemoryParts(rank=rank, **sizes)) for rank, peak in enumerate((5, 7, 6))
    ]
    ledger.used_memory(CELL, replies)
    ledger.used_memory(CELL, [Reply(peak_memory_bytes=9), Reply(peak_memory_bytes=2)])
    ledger.used_memory(CELL, replies)
    record = ledger.record(CELL)
    assert (record.peak_memory_bytes, record.memory and record.memory.rank) == (9, 1)
