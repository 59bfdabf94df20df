"""Files of a rank that are gone must not change a number unseen: the numbers are planted, and so is what is lost."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from in_process import worldsize
from made_messages import add_messages
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.summary import summarise
from worldsize.errors import DAMAGED
from worldsize.metering.run_folder import NOT_ALIGNED
from worldsize.results.columns import pack
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_cell

STEP_S, EXPOSED_S = 0.1, 0.02
DDP = MadeCell(
    "ddp", 2, step_s=STEP_S, shares=synchronised(SHARES, EXPOSED_S / STEP_S), comm_s=EXPOSED_S, rank_spread=0.0
)
"""Both ranks have 32 samples a step, and both wait for 20 ms of messages."""
STEPS = DDP.warmup_steps + DDP.blocks * DDP.block_steps
CELL = DDP.id


def strip(path: Path, *names: str) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in content.items() if name not in names}))


def metered(run: Path, **changes: Any) -> Path:
    """The run without what a meter does not know: whose ranks wrote it, it does."""
    strip(run / "study.json", "settings", "data", "model")
    for path in run.glob("cells/*/cell.json"):
        strip(path, "settings", "wire", "steps_per_epoch", "placement")
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return run


def place(run: Path, name: str = "") -> Path:
    return cell_folder(run, CELL) / name


def only(analysis: StudyAnalysis) -> CellAnalysis:
    [cell] = analysis.cells
    return cell


def read(run: Path) -> CellAnalysis:
    return only(analyse(load_run(run)))


def reason(run: Path) -> str:
    """Why the cell cannot be read."""
    cell = read(run)
    assert (cell.state, cell.summary) == ("unreadable", None)
    return str(cell.reason)


def change_lines(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def damaged(lines: list[str], name: str) -> list[str]:
    """The lines, of which one lacks a value."""
    return [*lines[:9], json.dumps({**json.loads(lines[9]), name: None}) + "\n", *lines[10:]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", [DDP])


@pytest.fixture
def sending(run: Path) -> Path:
    add_messages(run, DDP, count=3)
    return run


class TestRanksOfAMeteredRun:
    def test_all_of_them_are_counted(self, run: Path) -> None:
        cell = read(metered(run))
        assert cell.samples_per_step == 64
        assert cell.summary is not None
        assert cell.summary.samples_per_s.value == pytest.approx(64 / STEP_S)

    def test_without_one_there_is_no_number_and_the_exit_status_says_so(self, run: Path) -> None:
        """Two nodes without a file system in common each keep the file of their own rank."""
        place(metered(run), "rank1.jsonl").unlink()
        told = reason(run)
        assert told.startswith(f"no sample of rank 1 is left in {place(run)}")
        assert told.endswith("copy those of all hosts into this folder.")
        assert worldsize("report", run, cwd=run.parent).returncode == DAMAGED

    def test_while_it_runs_a_rank_may_not_have_written_its_first_step(self, run: Path) -> None:
        metered(run, state="running")
        place(run, "rank1.jsonl").write_text("")
        assert read(run).state == "running"
        place(run, "rank1.jsonl").unlink()
        assert "no sample of rank 1" in reason(run)

    def test_one_process_may_drive_all_workers(self, tmp_path: Path) -> None:
        run = metered(make_run(tmp_path / "run", [MadeCell("data-parallel", 2, step_s=STEP_S)]))
        assert read(run).samples_per_step == 64
        for path in run.glob("cells/*/rank0.jsonl"):
            path.unlink()
        assert "no sample of rank 0 is left" in reason(run)


def without_file(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    change_lines(path, lambda lines: lines[:5])


def emptied(path: Path) -> None:
    path.write_text("")


def without_one_line(path: Path) -> None:
    change_lines(path, lambda lines: [*lines[:7], *lines[8:]])


GONE: dict[Callable[[Path], None], int] = {
    without_file: STEPS,
    cut_short: STEPS - 5,
    emptied: STEPS,
    without_one_line: 1,
}


class TestMessages:
    def test_all_are_there(self, sending: Path) -> None:
        exposed = read(sending).exposed_s
        assert exposed is not None
        assert exposed.value == pytest.approx(EXPOSED_S)

    @pytest.mark.parametrize("damage", GONE, ids=lambda damage: damage.__name__)
    def test_those_of_a_rank_that_are_gone_are_missed(self, sending: Path, damage: Callable[[Path], None]) -> None:
        """Exposed communication was half of what it is, for one of two ranks seemed to wait for nothing."""
        damage(place(sending, "rank1.spans.jsonl"))
        assert reason(sending).startswith(
            f"the messages of {GONE[damage]} of {STEPS} steps of rank 1 are gone from {place(sending)}"
        )

    def test_those_of_all_ranks_are_missed_where_the_record_says_that_there_were_some(self, sending: Path) -> None:
        summarised(sending)
        for rank in range(2):
            place(sending, f"rank{rank}.spans.jsonl").unlink()
        assert reason(sending).startswith("the messages of 18 of 18 steps of rank 0 are gone")

    def test_columns_that_were_made_of_what_was_left_do_not_hide_it(self, sending: Path) -> None:
        cut_short(place(sending, "rank1.spans.jsonl"))
        pack(place(sending))
        assert "steps of rank 1 are gone" in reason(sending)

    def test_a_rank_that_was_killed_has_messages_of_a_step_that_it_did_not_end(self, sending: Path) -> None:
        for rank in range(2):
            change_lines(place(sending, f"rank{rank}.jsonl"), lambda lines: lines[:-1])
        change_lines(place(sending, "rank1.jsonl"), lambda lines: lines[:-3])
        cell = read(sending)
        assert cell.exposed_s is not None
        assert cell.exposed_s.value == pytest.approx(EXPOSED_S)

    def test_steps_in_which_nobody_sends_anything_are_no_loss(self, sending: Path) -> None:
        """As with averaging every few steps."""
        for rank in range(2):
            change_lines(place(sending, f"rank{rank}.spans.jsonl"), lambda lines: lines[::4])
        assert read(sending).state == "complete"

    def test_a_damaged_line_is_left_out_and_hides_no_lost_ones(self, sending: Path) -> None:
        path = place(sending, "rank1.spans.jsonl")
        change_lines(path, lambda lines: damaged(lines, "kind"))
        analysis = analyse(load_run(sending))
        assert only(analysis).state == "complete"
        assert "damaged-samples" in [warning.code for _, warning in analysis.warnings]
        change_lines(path, lambda lines: lines[:-4])
        assert "the messages of 5 of 20 steps of rank 1 are gone" in reason(sending)


class TestWhoRecordsMessages:
    """In a loop of the user's own a rank may send nothing that is seen; it has a file all the same."""

    def test_a_rank_whose_file_is_empty_has_sent_nothing(self, sending: Path) -> None:
        emptied(place(metered(sending), "rank1.spans.jsonl"))
        assert read(sending).state == "complete"

    @pytest.mark.parametrize("damage", [without_file, cut_short, without_one_line])
    def test_one_that_had_some_is_missed(self, sending: Path, damage: Callable[[Path], None]) -> None:
        damage(place(metered(sending), "rank1.spans.jsonl"))
        told = reason(sending)
        assert "steps of rank 1 are gone" in told
        assert "--resume" not in told


def summarised(run: Path) -> None:
    """Let the record say what its samples add up to, as that of a study does."""
    cell = load_run(run).cells[CELL]
    write_cell(run, cell.record.model_copy(update={"summary": summarise(cell)}))


def test_a_damaged_step_hides_no_lost_ones(run: Path) -> None:
    summarised(run)
    path = place(run, "rank1.jsonl")
    change_lines(path, lambda lines: damaged(lines, "session"))
    assert read(run).state == "complete"
    change_lines(path, lambda lines: lines[:-4])
    assert "of its 18 timed steps are gone" in reason(run)


HOUR_NS = 3_600 * 10**9


def moved(path: Path, *, later_ns: int, **changes: int) -> None:
    """Let the steps of a rank begin so much later on its clock."""

    def change(lines: list[str]) -> list[str]:
        steps = (json.loads(line) for line in lines)
        return [json.dumps({**step, "start_ns": step["start_ns"] + later_ns, **changes}) + "\n" for step in steps]

    change_lines(path, change)


class TestFilesOfAnotherRun:
    """Those of a rank that were copied from an equal study have all steps, at other times."""

    def test_are_seen_by_when_the_ranks_took_their_turns(self, run: Path) -> None:
        moved(place(run, "rank1.jsonl"), later_ns=HOUR_NS)
        told = reason(run)
        assert told.startswith("rank 0 and rank 1 were not at work at one time: samples of one of them in ")
        assert told.endswith("are of another run. Remove its folder, and --resume measures it again.")
        assert worldsize("report", run, cwd=run.parent).returncode == DAMAGED

    @pytest.mark.parametrize("metering", [False, True], ids=["a study", "metered"])
    def test_are_seen_in_a_single_block(self, tmp_path: Path, metering: bool) -> None:
        run = make_run(tmp_path / "run", [replace(DDP, blocks=1)])
        moved(place(metered(run) if metering else run, "rank1.jsonl"), later_ns=HOUR_NS)
        assert "of another run" in reason(run)

    @pytest.mark.parametrize("late_s", [0, 5])
    def test_clocks_that_are_apart_by_what_is_known_say_nothing(self, run: Path, late_s: int) -> None:
        """Nor does a rank that is late, as far as the others can be a turn ahead."""
        later_ns = HOUR_NS + late_s * 10**9
        moved(place(run, "rank1.jsonl"), later_ns=later_ns, clock_offset_ns=-HOUR_NS, clock_error_ns=10**6)
        assert read(run).state == "complete"

    def test_clocks_that_were_never_aligned_say_nothing(self, run: Path) -> None:
        for rank in range(2):
            later_ns = 10**17 * rank
            moved(place(run, f"rank{rank}.jsonl"), later_ns=later_ns, clock_error_ns=NOT_ALIGNED.error_ns)
        assert read(metered(run)).state == "complete"

    def test_a_launch_is_warmed_up_in_block_0(self, run: Path) -> None:
        """Under torchrun it has no number of its own."""

        def warmed_up_again(lines: list[str]) -> list[str]:
            first = {**json.loads(lines[-3]), "block": 0, "timed": False}
            return [*lines[:-3], json.dumps(first) + "\n", *lines[-2:]]

        for rank in range(2):
            change_lines(place(run, f"rank{rank}.jsonl"), warmed_up_again)
        assert read(run).state == "complete"
