"""The kernel's own counter of processes that it has killed because memory ran out."""

from pathlib import Path

from worldsize.measure.conditions import memory_kills


def test_the_counter_is_read(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("nr_free_pages 5\noom_kill 7\noom_kill_x 9\n")
    assert memory_kills(tmp_path / "vmstat") == 7


def test_a_machine_that_does_not_tell(tmp_path: Path) -> None:
    assert memory_kills(tmp_path / "absent") is None
    (tmp_path / "vmstat").write_text("nr_free_pages 5\n")
    assert memory_kills(tmp_path / "vmstat") is None
