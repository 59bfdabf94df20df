"""Room for another cell on the GPUs: by what the workers of those that wait have said."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fake_cells import planned
from worldsize.config import StudySettings
from worldsize.ranks.turns import Reply
from worldsize.study.job_executor import JobExecutor
from worldsize.study.memory import CONTEXT_BYTES, DeviceRoom

GIB = 2**30


def reply(free: float, reserved: float, peak: float | None = None) -> Reply:
    memory = {
        "free_bytes": round(free * GIB),
        "reserved_bytes": round(reserved * GIB),
        "peak_reserved_bytes": round((peak or reserved) * GIB),
    }
    return Reply.model_validate({"device_memory": memory})


def test_on_a_cpu_nothing_is_short() -> None:
    room = DeviceRoom()
    room.note("a", [Reply(device_memory=None), Reply()])
    assert not room.is_short()


def test_memory_of_the_fullest_gpu_counts() -> None:
    room = DeviceRoom()
    room.note("a", [reply(free=60, reserved=20), reply(free=19, reserved=20)])
    assert room.is_short(), "the second GPU has room for no further 20 GiB"
    room.note("a", [reply(free=60, reserved=20), reply(free=21, reserved=20)])
    assert not room.is_short()


def test_the_context_of_a_process_takes_room_as_well() -> None:
    room = DeviceRoom()
    room.note("a", [reply(free=20, reserved=20)])
    assert room.is_short()
    room.note("a", [reply(free=20 + CONTEXT_BYTES / GIB, reserved=20)])
    assert not room.is_short()


def test_a_cell_needs_its_peak_though_it_holds_less_now() -> None:
    room = DeviceRoom()
    room.note("a", [reply(free=20, reserved=5, peak=30)])
    assert room.is_short()


def test_what_has_ended_has_left_its_memory() -> None:
    room = DeviceRoom()
    room.note("a", [reply(free=50, reserved=30)])
    room.note("b", [reply(free=10, reserved=30)])
    assert room.is_short()
    room.left(["a"])
    assert not room.is_short()
    room.left(["a", "never seen"])
    room.note("c", [reply(free=10, reserved=1)])
    assert room.is_short(), "what a worker says now counts, whatever was said before"


@pytest.mark.parametrize(("free", "stays"), [(25, True), (15, False)])
def test_cells_that_wait_end_where_the_gpu_has_no_room_for_another(tmp_path: Path, free: float, stays: bool) -> None:
    """The host has memory enough in both cases."""
    executor = JobExecutor(tmp_path, 0)
    closed: list[str] = []
    cell = planned("single", 1, StudySettings(steps=4))
    executor._of(cell).job = cast(Any, SimpleNamespace(close=lambda: closed.append(cell.id)))
    executor._devices.note(cell.id, [reply(free=free, reserved=20)])
    executor._make_room()
    assert (executor.alive(cell), closed) == ((True, []) if stays else (False, [cell.id]))
    executor._make_room()
    assert not executor._devices.is_short(), "what has ended is not counted twice"
