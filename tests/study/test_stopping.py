"""What is said when a study is stopped."""

from pathlib import Path

import pytest

from made_runs import MadeCell, make_run
from worldsize.errors import Interrupted
from worldsize.results.files import cell_folder
from worldsize.study.running import stoppable


def stop(run: Path) -> str:
    with pytest.raises(Interrupted) as stopped, stoppable(lambda: run):
        raise KeyboardInterrupt
    return str(stopped.value)


@pytest.mark.parametrize("damaged", ["nothing", "study", "record", "lines"])
def test_it_is_said_whatever_is_damaged(tmp_path: Path, damaged: str) -> None:
    cell = MadeCell("single", 1, 32, step_s=0.1)
    run = make_run(tmp_path / "run", [cell])
    place = cell_folder(run, cell.id)
    files = {"study": run / "study.json", "record": place / "cell.json", "lines": place / "rank0.jsonl"}
    if damaged in files:
        files[damaged].write_text("{")
    said = stop(run)
    assert said.startswith("stopped; ")
    assert said.endswith(f"Go on with --resume --out {run}.")


def test_before_anything_was_measured(tmp_path: Path) -> None:
    assert stop(tmp_path / "nothing") == "stopped before anything was measured"
