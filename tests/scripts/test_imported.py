"""Files that a script imports by names that its text does not tell: steps of two of them are never in one cell."""

from pathlib import Path

from in_process import worldsize
from user_scripts import put, run_of, studied, typed
from worldsize.results.folder import load_run
from worldsize.results.imported import imported

CHOSEN = """
import importlib
net = importlib.import_module(f"models.{'net'}")
"""
NET = "WIDTH = 4\n"


def test_an_edit_between_two_commands_is_refused_or_measured_anew(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    net = tmp_path / "models" / "net.py"
    net.write_text(NET)
    put(tmp_path, f"import torch.distributed as dist\ndist.init_process_group('gloo')\n{CHOSEN}while True: step()")
    run_of(tmp_path, studied(tmp_path, typed("train.py", torchrun=True), sizes="1"))
    assert "models/net.py" in {file.name for file in imported(tmp_path / "run")}, "rank 0 of each cell tells"

    net.write_text(NET.replace("4", "8"))
    refused = worldsize("study", "--resume", "--out", "run", cwd=tmp_path)
    assert refused.returncode == 2
    assert "run was measured with other code of yours: models/net.py has changed since" in refused.stderr
    anew = worldsize("study", "--resume", "--anew", "--out", "run", cwd=tmp_path)
    assert anew.returncode == 0, anew.stderr
    assert [file.sha256 for file in imported(tmp_path / "run")] != [
        file.sha256 for file in imported(tmp_path / "run" / "earlier" / "1")
    ]


def test_an_edit_between_two_launches_ends_the_cell(tmp_path: Path) -> None:
    """The script comes to its end, and is started again for the rest of its steps; what it writes is no copy."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text(NET)
    edit = "for _ in range(14): step(0.05)\nwith open(net.__file__, 'a') as file: file.write('# more\\n')\n"
    put(tmp_path, CHOSEN + edit)
    done = studied(tmp_path, typed("train.py"), "--in-place", sizes="1")

    assert done.returncode == 1, done.stderr
    [cell] = load_run(tmp_path / "run").cells.values()
    assert cell.record.error is not None
    assert cell.record.error.message.startswith("models/net.py has changed since the study began")
    assert set(cell.steps["launch"]) == {0}
