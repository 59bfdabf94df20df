"""Which logical CPUs are whole cores, and what control groups permit, on made /sys and /proc trees."""

from pathlib import Path

import pytest

from worldsize.launch.placement import default_threads, place
from worldsize.measure.cores import PLACE_OF_A_CORE, Cores, cpu_quota, usable_cores
from worldsize.measure.machine import allowed_cores

EIGHT = [(0, core) for core in range(8)]
"""The places of eight cores; twice: with two threads each."""
SECOND = "30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate"
FIRST = "31 25 0:27 {mounted} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"


def topology(root: Path, places: list[tuple[int, int]]) -> Path:
    """What Linux says of logical CPUs that are at these (package, core)."""
    for number, of_one in enumerate(places):
        folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        for name, value in zip(PLACE_OF_A_CORE, of_one, strict=True):
            (folder / name).write_text(f"{value}\n")
    return root


def groups(root: Path, *, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """What Linux says of the control groups of a process."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup + "\n")
    (root / "proc/self/mountinfo").write_text("22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n" + mounts + "\n")
    for name, content in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    return root


def test_siblings_come_last_whichever_way_they_are_numbered(tmp_path: Path) -> None:
    apart = topology(tmp_path / "apart", EIGHT * 2)
    side_by_side = topology(tmp_path / "side", [each for each in EIGHT for _ in range(2)])
    assert usable_cores(range(16), apart) == Cores((*range(16),), whole=8)
    assert usable_cores(range(16), side_by_side) == Cores((*range(0, 16, 2), *range(1, 16, 2)), whole=8)
    assert usable_cores((1, 2, 3, 5), side_by_side) == Cores((1, 2, 5, 3), whole=3)


def test_four_threads_of_a_core_take_turns(tmp_path: Path) -> None:
    root = topology(tmp_path, [(0, 0)] * 4 + [(1, 0)] * 4)
    assert usable_cores(range(8), root) == Cores((0, 4, 1, 5, 2, 6, 3, 7), whole=2)


def test_two_packages_may_number_their_cores_alike(tmp_path: Path) -> None:
    root = topology(tmp_path, [(0, 0), (0, 1), (1, 0), (1, 1)] * 2)
    assert [usable_cores(own, root).whole for own in ((*range(8),), (0, 4), (0, 2, 4), (0, 1))] == [4, 1, 2, 2]


def test_cores_of_which_nothing_is_told_count_as_one_each(tmp_path: Path) -> None:
    root = topology(tmp_path, [(0, 0), (0, 0)])
    assert usable_cores((0, 1, 2), root) == Cores((0, 1, 2), whole=3)
    (root / "sys/devices/system/cpu/cpu1/topology/core_id").write_text("none\n")
    assert usable_cores((0, 1), root).whole == 2


def test_cores_of_this_machine() -> None:
    allowed = allowed_cores()
    found = usable_cores(allowed)
    assert sorted(found.numbers) == list(allowed)
    assert 1 <= found.whole <= len(allowed)
    assert usable_cores(allowed[:1]).whole == 1


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("/", {"cpu.max": "250000 100000"}, 2.5),
        ("/", {"cpu.max": "max 100000"}, None),
        ("/", {}, None),
        ("/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000", "cpu.max": "400000 100000"}, 1.5),
        ("/a/b", {"a/b/cpu.max": "20000 10000", "a/cpu.max": "max 100000"}, 2.0),
        ("/../other", {"cpu.max": "50000 100000"}, 0.5),
        ("/a b", {"a b/cpu.max": "100000 100000"}, 1.0),
        ("/", {"cpu.max": "damaged"}, None),
    ],
)
def test_the_strictest_quota_on_the_way_up_counts(
    tmp_path: Path, own: str, files: dict[str, str], quota: float | None
) -> None:
    assert cpu_quota(groups(tmp_path, cgroup=f"0::{own}", mounts=SECOND, files=files)) == quota


@pytest.mark.parametrize(
    ("mounted", "folder", "own_us", "quota"),
    [
        ("/", "docker/one/", "300000", 2.0),  # the host's own tree: the group above permits less
        ("/docker/one", "", "300000", 3.0),  # what a container sees: its group is the mount itself
        ("/docker/one", "", "-1", None),
    ],
)
def test_control_groups_of_the_first_version(
    tmp_path: Path, mounted: str, folder: str, own_us: str, quota: float | None
) -> None:
    cpu = "cpu,cpuacct/"
    files = {f"{cpu}{folder}cpu.cfs_quota_us": own_us, f"{cpu}{folder}cpu.cfs_period_us": "100000"}
    if folder:
        files |= {f"{cpu}docker/cpu.cfs_quota_us": "200000", f"{cpu}docker/cpu.cfs_period_us": "100000"}
    root = groups(
        tmp_path,
        cgroup="9:name=systemd:/elsewhere\n4:cpu,cpuacct:/docker/one\n3:cpuset:/\n0::/",
        mounts=FIRST.format(mounted=mounted),
        files=files,
    )
    assert cpu_quota(root) == quota


def test_without_these_files_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


def test_eight_cores_with_sixteen_threads(tmp_path: Path) -> None:
    """Four workers of two threads have eight cores of their own; with three threads each some sit on siblings."""
    cores = usable_cores(range(16), topology(tmp_path, [each for each in EIGHT for _ in range(2)]))
    assert default_threads(cores.threads, 4) == 2
    of_two = place(world_size=4, processes=4, threads_per_worker=2, cores=cores, gpus=0, backend="gloo")
    assert of_two.cores == ((0, 2), (4, 6), (8, 10), (12, 14))
    assert (of_two.oversubscribed, of_two.on_siblings, of_two.room_cores) == (False, (), 8)
    of_three = place(world_size=4, processes=4, threads_per_worker=3, cores=cores, gpus=0, backend="gloo")
    assert of_three.cores == ((0, 2, 4), (6, 8, 10), (12, 14, 1), (3, 5, 7))
    assert (of_three.oversubscribed, of_three.on_siblings) == (True, (2, 3))


def test_two_workers_of_one_core_say_that_they_share_it(tmp_path: Path) -> None:
    cores = usable_cores((0, 1), topology(tmp_path, [(0, 0), (0, 0)]))
    pair = place(world_size=2, processes=2, threads_per_worker=1, cores=cores, gpus=0, backend="gloo")
    assert (pair.oversubscribed, pair.on_siblings, pair.room_cores) == (True, (1,), 1)


@pytest.mark.parametrize(
    ("quota_us", "workers", "oversubscribed"), [(150_000, 1, False), (150_000, 2, True), (50_000, 1, True)]
)
def test_a_quota_is_room_as_well(tmp_path: Path, quota_us: int, workers: int, oversubscribed: bool) -> None:
    topology(tmp_path, EIGHT)
    groups(tmp_path, cgroup="0::/", mounts=SECOND, files={"cpu.max": f"{quota_us} 100000"})
    cores = usable_cores(range(8), tmp_path)
    assert (cores.threads, default_threads(cores.threads, 1)) == (1, 1)
    placed = place(world_size=workers, processes=workers, threads_per_worker=1, cores=cores, gpus=0, backend="gloo")
    assert (placed.oversubscribed, placed.on_siblings, placed.room_cores) == (oversubscribed, (), quota_us / 100_000)
