"""Runs that are joined: what is other work is refused, and what failed, goes on or cannot be read is told."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from in_process import worldsize
from made_runs import MadeCell, make_run, usual_cells
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.errors import DAMAGED
from worldsize.results.columns import pack
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_cell, write_study
from worldsize.results.provenance import UserCode, UserFile
from worldsize.results.records import RankPlace

SINGLE, DDP = (cell for cell in usual_cells(blocks=2) if cell.id in ("single-w1-b32", "ddp-w2-b32"))
CELLS = [SINGLE, DDP]
TIMED = 2 * 3
"""Two blocks of three steps."""


def scale(folder: Path) -> "CompletedProcess[str]":
    return worldsize("scale", "a", "b", "--out", "joined", "--json", cwd=folder)


def refused(folder: Path) -> str:
    """Why they are not joined; nothing was written."""
    done = scale(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    assert not (folder / "joined").exists()
    return done.stderr


def joined(folder: Path, status: int = 0) -> StudyAnalysis:
    done = scale(folder)
    assert done.returncode == status, done.stderr
    return analyse(load_run(folder / "joined"))


def told(analysis: StudyAnalysis) -> dict[str, str]:
    return {warning.code: warning.message for warning in analysis.record.warnings}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two equal runs."""
    for name in ("a", "b"):
        make_run(tmp_path / name, CELLS)
    return tmp_path


def with_code(run: Path, *digests: str) -> None:
    study = load_run(run).study
    files = [UserFile(name=f"net{number}.py", path="/x", sha256=digest) for number, digest in enumerate(digests)]
    study.provenance.user_code = UserCode(files=files)
    write_study(run, study)


def with_settings(run: Path, **changes: Any) -> None:
    cell = load_run(run).cells[DDP.id].record
    assert cell.settings is not None
    write_cell(run, cell.model_copy(update={"settings": cell.settings.model_copy(update=changes)}))


def with_record(run: Path, **changes: Any) -> None:
    write_cell(run, load_run(run).cells[DDP.id].record.model_copy(update=changes))


def as_metered(run: Path, threads: int) -> None:
    """Without what a meter does not know; its first rank has said how many threads it has."""
    place = RankPlace(host="node", cores=(0, 1), threads=threads)
    for cell in load_run(run).cells.values():
        write_cell(run, cell.record.model_copy(update={"settings": None, "placement": None, "ranks": [place]}))
    write_study(run, load_run(run).study.model_copy(update={"settings": None, "data": None, "model": None}))


def with_environment(run: Path, **variables: str) -> None:
    study = load_run(run).study
    study.provenance.environment = variables
    write_study(run, study)


def accumulated(run: Path, times: int) -> None:
    """Its steps had so many micro-batches."""
    for cell in load_run(run).cells.values():
        assert cell.record.settings is not None
        here = cell.record.settings.model_copy(update={"accumulate": times})
        write_cell(run, cell.record.model_copy(update={"settings": here}))
        for path in cell.folder.glob("rank?.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            path.write_text("".join(f"{json.dumps({**each, 'samples': times * each['samples']})}\n" for each in lines))


def test_equal_runs_are_launches_of_one_cell(place: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        with_code(place / name, "1", "2")
        with_settings(place / name, seed=seed, steps=18 + seed)
    found = joined(place)
    assert [(cell.id, cell.state, cell.summary and cell.summary.timed_steps) for cell in found.cells] == [
        (SINGLE.id, "complete", 2 * TIMED),
        (DDP.id, "complete", 2 * TIMED),
    ]
    assert set(told(found)) == {"unpaired"}


def test_sessions_of_a_study_that_was_resumed_stay_apart(tmp_path: Path) -> None:
    """Steps are counted anew in each: of two with one number neither would be a step of all ranks."""
    make_run(tmp_path / "a", CELLS)
    make_run(tmp_path / "b", CELLS)
    for path in (tmp_path / "b").glob("cells/*/rank?.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        again = [{**line, "session": 1} for line in lines]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, *again]))
    assert [cell.summary and cell.summary.timed_steps for cell in joined(tmp_path).cells] == [3 * TIMED] * 2


def test_other_models_are_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "a", CELLS, model="resnet18")
    make_run(tmp_path / "b", CELLS, model="vgg11")
    assert "a and b differ in their model: resnet18 of 11,173,962 parameters, and vgg11 of" in refused(tmp_path)


def test_samples_of_two_codes_are_never_in_one_cell(place: Path) -> None:
    with_code(place / "a", "1", "2")
    with_code(place / "b", "1", "3")
    assert f"a and b both hold {SINGLE.id}, with other code of yours: net1.py" in refused(place)


def test_nor_those_of_two_settings(place: Path) -> None:
    with_settings(place / "b", precision="bf16")
    assert f"a and b both hold {DDP.id}, with other settings: precision" in refused(place)


def test_other_code_in_another_cell_is_told(tmp_path: Path) -> None:
    for name, cell, digest in (("a", SINGLE, "1"), ("b", DDP, "2")):
        make_run(tmp_path / name, [cell])
        with_code(tmp_path / name, digest)
    assert "your code" in told(joined(tmp_path))["runs-differ"]


@pytest.mark.parametrize(("threads", "withheld"), [(2, True), (1, False)])
def test_a_speed_up_over_a_run_of_other_threads_is_withheld(tmp_path: Path, threads: int, withheld: bool) -> None:
    """`python train.py` takes all cores, torchrun gives each of two workers one thread."""
    for name, cell, count in (("a", SINGLE, threads), ("b", DDP, 1)):
        as_metered(make_run(tmp_path / name, [cell]), count)
    [row] = joined(tmp_path).scaling
    assert row.withheld == (f"withheld: 1 threads per worker, but 2 in {SINGLE.id}" if withheld else None)
    assert (row.speedup is None) == withheld


def test_samples_of_other_threads_are_never_in_one_cell(place: Path) -> None:
    for name, threads in (("a", 2), ("b", 1)):
        as_metered(place / name, threads)
    assert f"a and b both hold {SINGLE.id}, with other threads per worker: 2, and 1" in refused(place)


def test_settings_and_threads_that_differ_from_cell_to_cell_are_told(tmp_path: Path) -> None:
    for name, cell, variables in (("a", SINGLE, {}), ("b", DDP, {"OMP_NUM_THREADS": "1"})):
        with_environment(make_run(tmp_path / name, [cell]), **variables)
    with_settings(tmp_path / "b", precision="bf16", seed=1)
    assert "Not the same in all runs: OMP_NUM_THREADS, precision. " in told(joined(tmp_path))["runs-differ"]


def test_micro_batches_are_kept(tmp_path: Path) -> None:
    for name, cell in (("a", SINGLE), ("b", DDP)):
        accumulated(make_run(tmp_path / name, [cell]), 4)
    found = joined(tmp_path)
    assert [cell.global_batch for cell in found.cells] == [4 * 32, 2 * 4 * 32]
    assert [cell.samples_per_step for cell in found.cells] == [4 * 32, 2 * 4 * 32]
    assert "batches-vary" not in {warning.code for _, warning in found.warnings}


@pytest.mark.parametrize("state", ["failed", "running", "interrupted"])
def test_a_launch_that_did_not_end_well_is_not_complete(place: Path, state: str) -> None:
    with_record(place / "b", state=state)
    cells = {cell.id: cell for cell in joined(place).cells}
    assert (cells[SINGLE.id].state, cells[DDP.id].state) == ("complete", state)
    assert (cells[DDP.id].summary is None) == (state == "failed"), "steps of one that failed may be unlike"


def lost_record(cell: Path) -> None:
    (cell / "cell.json").unlink()


def garbled_line(cell: Path) -> None:
    path = cell / "rank1.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:1000] + b"\0" * 300 + content[1300:])


def lost_rank(cell: Path) -> None:
    (cell / "rank1.jsonl").unlink()


def lost_lines_beside_columns(cell: Path) -> None:
    pack(cell)
    lost_rank(cell)


UNREAD = {
    lost_record: "cell.json is gone",
    garbled_line: "rank1.jsonl holds lines that are not step records",
    lost_rank: "no sample of rank 1 is left",
    lost_lines_beside_columns: "are gone, and those that columns still have are not joined",
}


@pytest.mark.parametrize("damage", UNREAD, ids=lambda damage: damage.__name__)
def test_what_cannot_be_read_is_named_and_the_rest_is_joined(place: Path, damage: Any) -> None:
    damage(cell_folder(place / "b", DDP.id))
    found = joined(place, DAMAGED)
    assert told(found)["unreadable"].startswith(f"{DDP.id} of b was not joined: ")
    assert UNREAD[damage] in told(found)["unreadable"]
    timed = {cell.id: cell.summary.timed_steps for cell in found.cells if cell.summary}
    assert timed == {SINGLE.id: 2 * TIMED, DDP.id: TIMED}
    assert worldsize("report", "joined", cwd=place).returncode == DAMAGED, "and so it stays"


def test_nothing_to_join_is_one_plain_line(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name, [MadeCell("single", 1)])
        (cell_folder(tmp_path / name, SINGLE.id) / "cell.json").unlink()
    done = scale(tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert f"{SINGLE.id} of a was not joined" in done.stderr
