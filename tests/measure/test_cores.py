"""Which logical CPUs are whole cores, and what control groups permit, on made /sys and /proc trees."""

from pathlib import Path

import pytest

from worldsize.launch.placement import default_threads, place
from worldsize.measure.cores import Cores, cpu_quota, usable_cores
from worldsize.measure.machine import allowed_cores

Cpus = dict[int, tuple[int, int, str]]
"""Logical CPU → its package, the number of its core there, and the logical CPUs of that core that are online."""
EIGHT: Cpus = {cpu: (0, cpu, f"{cpu}") for cpu in range(8)}
"""Eight cores with a thread each."""
APART: Cpus = {cpu: (0, cpu % 8, f"{cpu % 8},{cpu % 8 + 8}") for cpu in range(16)}
"""Eight with two threads each, first one of each core, as most desktops number them."""
SIDE_BY_SIDE: Cpus = {cpu: (0, cpu // 2, f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}") for cpu in range(16)}
RK3588: Cpus = {
    **{cpu: (0, cpu, f"{cpu}") for cpu in range(4)},
    **{cpu: (0, cpu - 4, f"{cpu}") for cpu in (4, 5)},
    **{cpu: (0, cpu - 6, f"{cpu}") for cpu in (6, 7)},
}
"""Clusters of four, two and two cores in one package: Linux 6.0 and later numbers the cores of each from 0."""
SECOND = "30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate"
FIRST = "31 25 0:27 {mounted} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"


def topology(root: Path, cpus: Cpus, *lists: str) -> Path:
    """What Linux says of logical CPUs; `lists` are the files that name those of a core, none in old kernels."""
    for cpu, (package, core, siblings) in cpus.items():
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")
        for name in lists:
            (folder / name).write_text(f"{siblings}\n")
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


LISTS = pytest.mark.parametrize(
    "lists", [(), ("thread_siblings_list",), ("core_cpus_list", "thread_siblings_list")], ids=["none", "old", "new"]
)
"""What kernels of different age tell of siblings."""


@LISTS
def test_siblings_come_last_whichever_way_they_are_numbered(tmp_path: Path, lists: tuple[str, ...]) -> None:
    apart = topology(tmp_path / "apart", APART, *lists)
    side_by_side = topology(tmp_path / "side", SIDE_BY_SIDE, *lists)
    assert usable_cores(range(16), apart) == Cores((*range(16),), whole=8)
    assert usable_cores(range(16), side_by_side) == Cores((*range(0, 16, 2), *range(1, 16, 2)), whole=8)
    assert usable_cores((1, 2, 3, 5), side_by_side) == Cores((1, 2, 5, 3), whole=3)


@LISTS
def test_four_threads_of_a_core_take_turns(tmp_path: Path, lists: tuple[str, ...]) -> None:
    fours = {cpu: (0, cpu // 4, "0-3" if cpu < 4 else "4-7") for cpu in range(8)}
    assert usable_cores(range(8), topology(tmp_path, fours, *lists)) == Cores((0, 4, 1, 5, 2, 6, 3, 7), whole=2)


@LISTS
def test_two_packages_may_number_their_cores_alike(tmp_path: Path, lists: tuple[str, ...]) -> None:
    packages = {cpu: (cpu % 4 // 2, cpu % 2, f"{cpu % 4},{cpu % 4 + 4}") for cpu in range(8)}
    root = topology(tmp_path, packages, *lists)
    assert [usable_cores(own, root).whole for own in ((*range(8),), (0, 4), (0, 2, 4), (0, 1))] == [4, 1, 2, 2]


@pytest.mark.parametrize("lists", [("thread_siblings_list",), ("core_cpus_list",)])
def test_clusters_may_number_their_cores_alike(tmp_path: Path, lists: tuple[str, ...]) -> None:
    """cpu0, cpu4 and cpu6 are core 0 of one package, and three cores: eight workers have a core each."""
    cores = usable_cores(range(8), topology(tmp_path, RK3588, *lists))
    assert cores == Cores((*range(8),), whole=8)
    placed = place(world_size=8, processes=8, threads_per_worker=1, cores=cores, gpus=0, backend="gloo")
    assert (placed.oversubscribed, placed.on_siblings, placed.room_cores) == (False, (), 8)


@pytest.mark.parametrize(
    ("cpus", "found"),
    [
        ({cpu: (0, cpu // 2, f"{cpu}") for cpu in (0, 2, 4, 6)}, Cores((0, 2, 4, 6), whole=4)),
        ({0: (0, 0, "0"), 2: (0, 1, "2-3"), 3: (0, 1, "2-3")}, Cores((0, 2, 3), whole=2)),
        ({0: (0, 0, "0,8-9"), 1: (0, 1, "1"), 8: (0, 0, "0,8-9"), 9: (0, 0, "0,8-9")}, Cores((0, 1, 8, 9), whole=2)),
        ({cpu: (0, cpu, f"{cpu},{cpu + 8}") for cpu in range(4)}, Cores((0, 1, 2, 3), whole=4)),
    ],
    ids=["every second thread is off", "one is off", "three of a core", "a container without the siblings"],
)
def test_lists_name_what_is_online_be_it_allowed_or_not(tmp_path: Path, cpus: Cpus, found: Cores) -> None:
    assert usable_cores((*cpus,), topology(tmp_path, cpus, "core_cpus_list")) == found


@pytest.mark.parametrize("said", ["", "none", "0-", "4"])
def test_a_list_that_says_nothing_of_its_cpu_is_none(tmp_path: Path, said: str) -> None:
    root = topology(tmp_path, {0: (0, 0, "0,2"), 1: (0, 1, said), 2: (0, 0, "0,2")}, "core_cpus_list")
    assert usable_cores((0, 1, 2), root) == Cores((0, 1, 2), whole=2)


def test_cores_of_which_nothing_is_told_count_as_one_each(tmp_path: Path) -> None:
    root = topology(tmp_path, {0: (0, 0, ""), 1: (0, 0, "")})
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
    cores = usable_cores(range(16), topology(tmp_path, SIDE_BY_SIDE))
    assert default_threads(cores.threads, 4) == 2
    of_two = place(world_size=4, processes=4, threads_per_worker=2, cores=cores, gpus=0, backend="gloo")
    assert of_two.cores == ((0, 2), (4, 6), (8, 10), (12, 14))
    assert (of_two.oversubscribed, of_two.on_siblings, of_two.room_cores) == (False, (), 8)
    of_three = place(world_size=4, processes=4, threads_per_worker=3, cores=cores, gpus=0, backend="gloo")
    assert of_three.cores == ((0, 2, 4), (6, 8, 10), (12, 14, 1), (3, 5, 7))
    assert (of_three.oversubscribed, of_three.on_siblings) == (True, (2, 3))


def test_two_workers_of_one_core_say_that_they_share_it(tmp_path: Path) -> None:
    cores = usable_cores((0, 1), topology(tmp_path, {0: (0, 0, "0-1"), 1: (0, 0, "0-1")}))
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
