"""Where rank 0 decides for a group, the others do as it does: they go on with its answer, or end with its error."""

from pathlib import Path

from jobs import start
from worldsize.study.folder_lock import hold_folder


def test_all_ranks_hear_what_rank_0_finds_and_why_it_cannot_go_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    free, taken, impossible = tmp_path / "free", tmp_path / "taken", tmp_path / "file" / "run"
    with hold_folder(taken):
        job = start("agreeing_entries:deciding", 2, tmp_path, folders=[str(free), str(taken), str(impossible)])
        try:
            first, second = (reply["said"] for reply in job.receive())
        finally:
            job.close()
    assert first == second
    found, held, in_use, no_folder = first
    assert (found, held) == ([0, None, 0.5], "held")
    assert f"{taken} is in use: process" in in_use
    assert no_folder == f"cannot write in {impossible}: Not a directory; give another --out"
