"""A metered run knows which files of the user's it measured, wherever they lie."""

from pathlib import Path

from own_loops import DATA, WarmLoops
from worldsize.results.folder import load_run

LOOP = """
meter = worldsize.meter(model, optimizer)
for x, y in meter(loader):
    cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def test_a_helper_from_another_folder_is_in_the_record(loops: WarmLoops, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper.py").write_text("x = 1\n")
    (tmp_path / "beside.py").write_text("")
    late = "\ndef later():\n    import beside\n"
    loops.ran(tmp_path, f"sys.path.insert(0, 'lib')\nimport helper\n{DATA}{LOOP}{late}")
    code = load_run(tmp_path / "run").study.provenance.user_code
    assert code is not None
    assert [file.name for file in code.files] == ["beside.py", "helper.py", "loop.py"]
