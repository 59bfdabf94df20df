"""The machine's snapshot and the provenance of a result."""

import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldsize.measure import allocator, machine
from worldsize.results.provenance import Host, Provenance


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that is committed to a repository."""
    folder = tmp_path / "repository" / "src" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    git(tmp_path / "repository", "init", "--quiet")
    git(tmp_path / "repository", "add", ".")
    git(tmp_path / "repository", "commit", "--quiet", "--message", "first")
    return folder


def host(load: float, cores: int = 2) -> Host:
    return machine.snapshot_host(with_gpus=False).model_copy(
        update={"load_1min": load, "allowed_cores": tuple(range(cores))}
    )


def test_snapshot_agrees_with_the_operating_system() -> None:
    snapshot = machine.snapshot_host(with_gpus=False)
    assert snapshot.hostname == platform.node()
    assert snapshot.memory_bytes == psutil.virtual_memory().total
    assert snapshot.logical_cores >= len(snapshot.allowed_cores) >= 1
    assert snapshot.gpus == ()
    assert "127.0.0.1" in [address for addresses in snapshot.interfaces.values() for address in addresses]
    with socket.socket() as sender:
        used = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    assert snapshot.congestion_control == used.partition(b"\0")[0].decode()
    assert Host.model_validate_json(snapshot.model_dump_json()) == snapshot


def test_snapshot_names_the_gpus_that_torch_sees() -> None:
    import torch

    assert len(machine.snapshot_host(with_gpus=True).gpus) == torch.cuda.device_count()


def test_snapshot_and_provenance_without_gpus_import_no_torch() -> None:
    code = (
        "import sys; from worldsize.measure import machine as m;"
        "m.provenance(['x']); m.busy_warning(m.snapshot_host(with_gpus=False)); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
def test_allowed_cores_follow_the_affinity_mask() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        assert machine.allowed_cores() == (max(before),)
    finally:
        os.sched_setaffinity(0, before)
    assert machine.allowed_cores() == tuple(sorted(before))


def test_loopback_interface_reaches_this_machine_alone() -> None:
    assert "127.0.0.1" in machine.snapshot_host(with_gpus=False).interfaces[machine.loopback_interface()]


def test_provenance_is_complete_and_can_be_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("DEPLOY_PASSWORD", "hunter2")
    origin = machine.provenance(["worldsize", "study"], worker_environment={"OMP_NUM_THREADS": "1", "HOME": "/x"})
    assert origin.command == ("worldsize", "study")
    assert origin.created.endswith("+00:00")
    assert origin.python_version == platform.python_version()
    assert origin.torch_version == machine.package_version("torch")
    assert origin.environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert origin.environment["OMP_NUM_THREADS"] == "1"
    assert "hunter2" not in origin.model_dump_json()
    assert "HOME" not in origin.environment
    assert Provenance.model_validate_json(origin.model_dump_json()) == origin


def test_provenance_keeps_a_snapshot_that_was_taken_before() -> None:
    earlier = host(load=123.0)
    assert machine.provenance(["x"], host=earlier).host == earlier


@given(st.dictionaries(st.sampled_from(["PATH", "API_TOKEN", "MY_OMP_KEY", "omp_x", "LD_PRELOAD_2"]), st.text()))
def test_no_other_variable_is_recorded(others: dict[str, str]) -> None:
    assert machine.recorded_environment({**others, "KMP_AFFINITY": "none"}) == {"KMP_AFFINITY": "none"}


def test_commit_is_that_of_the_work_tree(package: Path) -> None:
    assert machine._commit(package) == git(package, "rev-parse", "HEAD")


def test_a_changed_or_a_new_file_makes_the_commit_dirty(package: Path) -> None:
    commit = git(package, "rev-parse", "HEAD")
    (package / "new.py").write_text("x = 1\n")
    assert machine._commit(package) == f"{commit}+dirty"
    (package / "new.py").unlink()
    (package / "__init__.py").write_text("x = 1\n")
    assert machine._commit(package) == f"{commit}+dirty"


def test_a_package_installed_inside_another_work_tree_has_no_commit(package: Path) -> None:
    installed = package.parents[1] / ".venv" / "site-packages" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert machine._commit(installed) is None


def test_outside_of_a_work_tree_there_is_no_commit(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("")
    assert machine._commit(tmp_path) is None


def test_commit_does_not_follow_the_variables_of_a_git_hook(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere/.git")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert machine._commit(package) == git(package, "rev-parse", "HEAD")


def test_without_git_there_is_no_commit(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert machine._commit(package) is None


LDCONFIG = """3 libs found in cache `/etc/ld.so.cache'
\tlibtcmalloc_minimal.so.4 (libc6) => /lib/i386-linux-gnu/libtcmalloc_minimal.so.4
\tlibtcmalloc_minimal.so.4 (libc6,x86-64) => /lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
\tlibz.so.1 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/x86_64-linux-gnu/libz.so.1
Cache generated by: ldconfig (Debian GLIBC 2.36-9) stable release version 2.36
"""


def test_linker_cache_keeps_the_libraries_of_the_own_architecture() -> None:
    known = allocator.parse_linker_cache(LDCONFIG, "x86-64")
    assert known == {
        "libtcmalloc_minimal.so.4": Path("/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"),
        "libz.so.1": Path("/lib/x86_64-linux-gnu/libz.so.1"),
    }


@pytest.mark.skipif(allocator.find_program("ldconfig") is None, reason="this machine has no ldconfig")
def test_linker_cache_of_this_machine_holds_the_c_library() -> None:
    libraries = allocator._linker_cache()
    assert libraries["libc.so.6"].exists()


def test_tcmalloc_that_is_found_can_be_preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_linker_cache", dict)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert allocator.find_tcmalloc() is None
    (tmp_path / "lib").mkdir()
    for soname in reversed(allocator.TCMALLOC_SONAMES):
        (tmp_path / "lib" / soname).touch()
        assert allocator.find_tcmalloc() == tmp_path / "lib" / soname


def test_a_quiet_machine_gets_no_warning() -> None:
    assert machine.busy_warning(host(load=1.0, cores=2)) is None


@pytest.mark.parametrize(
    ("others", "in_use", "said"),
    [
        ([("make", 1.5)], 0.0, "Busiest now: make (1.5 cores)"),
        ([], 1.1, "The cores are busy now, with nothing that is visible here"),
        ([], 1.0, None),
    ],
    ids=["named", "not visible", "it has ended: a load remembers a minute"],
)
def test_a_busy_machine_gets_a_warning_with_its_load(
    monkeypatch: pytest.MonkeyPatch, others: list[tuple[str, float]], in_use: float, said: str | None
) -> None:
    monkeypatch.setattr(machine, "busiest_others", lambda: others)
    monkeypatch.setattr(machine, "cores_in_use", lambda cores: in_use)
    warning = machine.busy_warning(host(load=1.1, cores=2))
    if said is None:
        assert warning is None
        return
    assert warning is not None
    assert warning.code == "busy-machine"
    assert "load was 1.1" in warning.message
    assert "2 cores" in warning.message
    assert said in warning.message


SPIN = "ulimit -t 20; while :; do :; done"  # ends by itself, should nobody be left to end it


@contextmanager
def busy_child(program: Path) -> Iterator[int]:
    with subprocess.Popen([program, "-c", SPIN]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextmanager
def busy_stranger(program: Path) -> Iterator[int]:
    """A process that is nobody's child here, because its parent has ended."""
    start = f"{program} -c '{SPIN}' >/dev/null 2>&1 & echo $!"
    pid = int(subprocess.run(["/bin/sh", "-c", start], check=True, capture_output=True, text=True).stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.quiet
def test_busiest_others_are_named_and_own_children_are_not(tmp_path: Path) -> None:
    for name in ("stranger", "child"):
        (tmp_path / name).symlink_to("/bin/sh")  # a process is named after the path it was started by
    with busy_child(tmp_path / "child"), busy_stranger(tmp_path / "stranger"):
        names = [name for name, _ in machine.busiest_others(sample_s=0.5, count=1000)]
    assert "stranger" in names
    assert "child" not in names


def test_a_core_that_somebody_uses_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "stranger").symlink_to("/bin/sh")
    with busy_stranger(tmp_path / "stranger") as pid:
        core = min(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, {core})
        assert machine.cores_in_use([core], sample_s=0.5) > 0.5
    assert machine.cores_in_use([]) == 0.0
