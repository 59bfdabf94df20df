"""The index of a checkpoint and its parts, as they are checked before anything is started."""

from pathlib import Path

import pytest

from fake_cells import step_line
from worldsize.config import CellSettings
from worldsize.errors import OutputError, UsageError
from worldsize.results.checkpoints import (
    CheckpointRecord,
    check_checkpoint,
    check_parts,
    find_checkpoint,
    remove_others,
    write_index,
    write_part,
)
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord

SETTINGS = CellSettings(strategy="ddp", world_size=2, batch_size=4, epochs=3, checkpoint=True)


def written(folder: Path) -> CheckpointRecord:
    parts = [[write_part(folder / f"rank{rank}-8.pt", lambda file: file.write(b"state"))] for rank in range(2)]
    record = CheckpointRecord(settings=SETTINGS, processes=2, device="cpu", step=8, epoch=2, epoch_step=0, parts=parts)
    write_index(folder, record)
    return record


def test_what_is_written_is_found(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path / "checkpoint") is None
    record = written(tmp_path / "checkpoint")
    assert find_checkpoint(tmp_path / "checkpoint") == record
    check_parts(tmp_path / "checkpoint", record.parts)
    check_checkpoint(tmp_path / "checkpoint", record, SETTINGS, processes=2, device="cpu")


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"stat", "4 bytes of 5"), (b"stale", "its digest differs"), (None, "No such file")],
)
def test_a_part_that_is_not_what_the_index_says_is_told(tmp_path: Path, content: bytes | None, told: str) -> None:
    record = written(tmp_path)
    file = tmp_path / "rank1-8.pt"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(OutputError, match=rf"rank1-8.pt.*({told}).*\nRemove {tmp_path} to train this cell"):
        check_parts(tmp_path, record.parts)
    check_parts(tmp_path, record.parts[:1])


@pytest.mark.parametrize("content", ["", "{", '{"step": 8}', "\0" * 100])
def test_an_index_that_is_none_is_told(tmp_path: Path, content: str) -> None:
    written(tmp_path)
    (tmp_path / "checkpoint.json").write_text(content)
    with pytest.raises(OutputError, match=rf"checkpoint.json is not a valid .*\nRemove {tmp_path} to train"):
        find_checkpoint(tmp_path)


def test_a_checkpoint_of_another_training_is_told_with_what_differs(tmp_path: Path) -> None:
    record = written(tmp_path)
    other = SETTINGS.model_copy(update={"world_size": 4, "momentum": 0.5})
    with pytest.raises(UsageError, match=r"another training: momentum 0.9 there, 0.5 here, world_size 2 there, 4 here"):
        check_checkpoint(tmp_path, record, other, processes=2, device="cpu")
    with pytest.raises(UsageError, match="device cpu there, cuda here"):
        check_checkpoint(tmp_path, record, SETTINGS, processes=2, device="cuda")


def test_what_is_left_of_others_is_removed(tmp_path: Path) -> None:
    record = written(tmp_path)
    old = ("model-4.pt", "rank0-4.pt", "rank1-4.pt", ".rank1-8.pt.123")
    for name in old:
        (tmp_path / name).write_bytes(b"old")
    remove_others(tmp_path, record.parts[0] + record.parts[1], "rank1-")
    assert [(tmp_path / name).exists() for name in old] == [True, True, False, False]
    remove_others(tmp_path, record.parts[0] + record.parts[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.json", "rank0-8.pt", "rank1-8.pt"]


def steps_of(folder: Path, settings: CellSettings, lines: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(session, step) of the steps that count, of those that were written."""
    folder.mkdir()
    (folder / "rank0.jsonl").write_text("".join(step_line(step, 0.5, session=session) for session, step in lines))
    cell = Cell(folder, CellRecord.of(settings, id="cell"))
    return cell.steps.select("session", "step").rows()


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        pytest.param([(0, 0), (0, 1), (0, 2)], [(0, 0), (0, 1), (0, 2)], id="one session"),
        pytest.param([(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)], [(0, 0), (1, 1), (1, 2)], id="from a checkpoint"),
        pytest.param([(0, 0), (0, 1), (0, 2), (1, 1)], [(0, 0), (1, 1)], id="and killed before it was as far"),
        pytest.param([(0, 0), (0, 1), (0, 2), (1, 0)], [(1, 0)], id="from the start"),
        pytest.param([(0, 0), (0, 1), (1, 2), (3, 1)], [(0, 0), (3, 1)], id="twice"),
        pytest.param([(0, 0), (0, 1), (0, 1), (0, 2)], [(0, 0), (0, 1), (0, 2)], id="again in one session"),
    ],
)
def test_of_steps_that_were_run_twice_the_newest_counts(
    tmp_path: Path, lines: list[tuple[int, int]], kept: list[tuple[int, int]]
) -> None:
    assert steps_of(tmp_path / "cell", SETTINGS, lines) == kept


def test_each_session_of_the_steps_protocol_has_steps_of_its_own(tmp_path: Path) -> None:
    lines = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert steps_of(tmp_path / "cell", CellSettings(steps=8), lines) == lines
