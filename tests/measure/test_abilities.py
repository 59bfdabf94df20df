"""Doctor's judgement: what a machine with these facts can run, and why not the rest."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldsize.errors import UsageError
from worldsize.measure import abilities
from worldsize.measure.abilities import Ability, Diagnosis, StrategyClass, core_ranges, diagnose
from worldsize.measure.facts import SystemFacts, TorchFacts
from worldsize.results.provenance import Host

CPU_TORCH = TorchFacts(version="2.13.0", build="CPU", cpu_capability="AVX2", gloo=True)
CUDA_TORCH = TorchFacts(version="2.13.0", build="CUDA 12.6", cpu_capability="AVX2", gloo=True, nccl=True)
BROKEN_TORCH = TorchFacts(version="2.13.0", error="libfoo.so: cannot open shared object file")


class Alone:
    """A strategy for one worker."""

    @classmethod
    def processes(cls, world_size: int) -> int:
        if world_size != 1:
            raise UsageError("only one")
        return 1


class Threads:
    """A strategy whose one process drives all workers."""

    @classmethod
    def processes(cls, world_size: int) -> int:
        return 1


class Processes:
    """A strategy with a process for each worker."""

    @classmethod
    def processes(cls, world_size: int) -> int:
        return world_size


STRATEGIES: Mapping[str, StrategyClass] = {"alone": Alone, "threads": Threads, "processes": Processes}


def make_host(**changes: Any) -> Host:
    values: dict[str, Any] = {
        "hostname": "here",
        "system": "Linux",
        "cpu_model": "A CPU",
        "logical_cores": 4,
        "physical_cores": 2,
        "allowed_cores": (0, 1, 2, 3),
        "memory_bytes": 8 * 2**30,
        "load_1min": 0.1,
        "interfaces": {"lo": ["127.0.0.1"]},
    }
    return Host(**values | changes)


def make_system(**changes: Any) -> SystemFacts:
    values: dict[str, Any] = {
        "available_memory_bytes": 4 * 2**30,
        "swap_bytes": 0,
        "nvidia_driver": False,
        "tcmalloc": "/lib/libtcmalloc_minimal.so.4",
        "preloaded": "",
        "huge_pages": "madvise",
        "huge_pages_request": None,
        "cpp_compiler": "/usr/bin/g++",
        "missing_capabilities": (),
        "missing_programs": (),
    }
    return SystemFacts(**values | changes)


def judge(
    name: str, *, host: Host | None = None, torch: TorchFacts = CPU_TORCH, system: SystemFacts | None = None
) -> Ability:
    diagnosis = diagnose(host or make_host(), torch, system or make_system(), STRATEGIES)
    (found,) = (ability for ability in diagnosis.abilities if ability.name == name)
    return found


def test_a_machine_with_everything_lacks_no_more_than_gpus_and_packages() -> None:
    diagnosis = diagnose(make_host(), CPU_TORCH, make_system(), STRATEGIES)
    missing = {a.name for a in diagnosis.abilities if a.available is False}
    assert missing - set(abilities.OPTIONAL_PACKAGES) == {"GPUs", "NCCL"}
    assert Diagnosis.model_validate_json(diagnosis.model_dump_json()) == diagnosis


@pytest.mark.parametrize(
    ("version", "hangs"),
    [("3.11.7", True), ("3.11.10", False), ("3.12.0", False), ("3.12.1+", False), ("3.14.0rc2", False)],
)
def test_a_python_whose_forked_processes_may_hang(monkeypatch: pytest.MonkeyPatch, version: str, hangs: bool) -> None:
    monkeypatch.setattr("platform.python_version", lambda: version)
    found = judge("Python")
    assert found.detail.startswith(version)
    assert ("may hang as they are forked" in found.detail) is hangs
    assert found.remedy == ("install Python 3.11.10 or later" if hangs else None)


@pytest.mark.parametrize(
    ("installed", "available", "detail"),
    [
        ({"mlflow-skinny": "3.1"}, True, "3.1; for --log mlflow"),
        ({"mlflow-skinny": "3.1", "mlflow": "3.2"}, True, "3.2; for --log mlflow"),
        ({}, False, "not installed; for --log mlflow"),
    ],
)
def test_a_client_of_the_history(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], available: bool, detail: str
) -> None:
    """MLflow comes whole or in a small part, under two names."""
    monkeypatch.setattr(abilities, "package_version", installed.get)
    found = judge("mlflow")
    assert (found.available, found.detail) == (available, detail)
    assert found.remedy == (None if available else "pip install 'worldsize[mlflow]'")


def test_each_name_stands_once() -> None:
    names = [(a.group, a.name) for a in diagnose(make_host(), CPU_TORCH, make_system(), STRATEGIES).abilities]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("alone", "one worker, by its nature"),
        ("threads", "up to 4 workers, each with a core of its own"),
        ("processes", "up to 4 workers, each with a core of its own; gloo"),
    ],
)
def test_strategies_on_cores(name: str, detail: str) -> None:
    assert (judge(name).available, judge(name).detail) == (True, detail)


def test_strategies_on_gpus() -> None:
    two = make_host(gpus=("G", "G"))
    assert judge("processes", host=two, torch=CUDA_TORCH).detail == "up to 2 workers, each with a GPU of its own; NCCL"
    assert judge("GPUs", host=two, torch=CUDA_TORCH).detail == "2 × G"
    assert judge("NCCL", host=two, torch=CUDA_TORCH).available


def test_gpus_without_nccl_leave_processes_on_the_cores() -> None:
    torch = CUDA_TORCH.model_copy(update={"nccl": False})
    assert judge("processes", host=make_host(gpus=("G",)), torch=torch).detail.endswith("a core of its own; gloo")


def test_more_workers_than_the_only_core_would_share_it() -> None:
    assert "oversubscribed" in judge("processes", host=make_host(allowed_cores=(3,))).detail


def test_processes_need_a_backend_and_threads_do_not() -> None:
    torch = CPU_TORCH.model_copy(update={"gloo": False})
    assert judge("processes", torch=torch).available is False
    assert "gloo" in judge("processes", torch=torch).detail
    assert judge("threads", torch=torch).available
    assert judge("gloo", torch=torch).available is False


def test_nothing_runs_on_a_torch_that_cannot_be_imported() -> None:
    assert [judge(name, torch=BROKEN_TORCH).available for name in STRATEGIES] == [False] * 3
    assert "libfoo.so" in judge("torch", torch=BROKEN_TORCH).detail
    assert judge("torch", torch=BROKEN_TORCH).remedy


@pytest.mark.parametrize(
    ("torch", "driver", "words"),
    [
        (CPU_TORCH, False, "no NVIDIA driver"),
        (CPU_TORCH, True, "built for CPUs alone"),
        (CUDA_TORCH, True, "sees no GPU"),
    ],
)
def test_without_gpus_the_reason_is_given(torch: TorchFacts, driver: bool, words: str) -> None:
    gpus = judge("GPUs", torch=torch, system=make_system(nvidia_driver=driver))
    assert gpus.available is False
    assert words in gpus.detail
    assert (gpus.remedy is not None) == driver


def test_built_in_nccl_is_of_no_use_without_gpus() -> None:
    assert judge("NCCL", torch=CUDA_TORCH).available is False
    assert "no GPU" in judge("NCCL", torch=CUDA_TORCH).detail


@pytest.mark.parametrize(
    ("facts", "available", "words"),
    [
        ({}, True, "/lib/libtcmalloc_minimal.so.4"),
        ({"preloaded": "/opt/libtcmalloc.so.4"}, True, "preloaded"),
        ({"tcmalloc": None}, False, "not installed"),
        ({"preloaded": "/lib/libjemalloc.so.2"}, False, "your LD_PRELOAD"),
    ],
)
def test_tcmalloc(facts: dict[str, Any], available: bool, words: str) -> None:
    ability = judge("tcmalloc", system=make_system(**facts))
    assert ability.available is available
    assert words in ability.detail
    assert (ability.remedy is None) == available


def test_torch_compile_needs_a_compiler_and_promises_nothing_that_was_not_measured() -> None:
    ability = judge("torch.compile")
    assert ability.available
    assert "not tried" in ability.detail
    assert ability.expected_gain is None
    missing = judge("torch.compile", system=make_system(cpp_compiler=None))
    assert not missing.available
    assert missing.remedy is not None
    assert "g++" in missing.remedy


def test_tcmalloc_that_is_missing_names_its_debian_package() -> None:
    assert judge("tcmalloc", system=make_system(tcmalloc=None)).remedy == "apt-get install libtcmalloc-minimal4"


@pytest.mark.parametrize(
    ("mode", "request_", "available"),
    [
        ("madvise", None, True),
        ("madvise", "1", True),
        ("madvise", "0", False),
        ("always", "0", True),
        ("never", "1", False),
        (None, "1", False),
    ],
)
def test_huge_pages(mode: str | None, request_: str | None, available: bool) -> None:
    assert judge("huge pages", system=make_system(huge_pages=mode, huge_pages_request=request_)).available is available


def test_network_namespaces_need_rights_and_programs() -> None:
    assert judge("network namespaces").available
    both = judge(
        "network namespaces", system=make_system(missing_capabilities=("CAP_NET_ADMIN",), missing_programs=("tc",))
    )
    assert both.available is False
    assert "CAP_NET_ADMIN" in both.detail
    assert "tc" in both.detail
    assert both.remedy is not None
    assert "root" in both.remedy
    assert "iproute2" in both.remedy


def test_loopback_that_is_down_is_missing() -> None:
    assert judge("loopback").available
    down = judge("loopback", host=make_host(interfaces={"eth0": ["192.0.2.7"]}))
    assert (down.available, down.remedy) == (False, "as root: ip link set lo up")


def test_a_busy_machine_is_not_quiet() -> None:
    assert judge("quiet", host=make_host(load_1min=2.0)).available
    busy = judge("quiet", host=make_host(load_1min=2.1))
    assert busy.available is False
    assert "load 2.10" in busy.detail


def test_a_narrow_affinity_mask_is_said() -> None:
    assert judge("cores").detail == "4 of 4 logical, 2 physical; numbers 0-3"
    narrow = judge("cores", host=make_host(allowed_cores=(1, 3), physical_cores=None)).detail
    assert narrow == "2 of 4 logical; numbers 1,3; the rest is closed to this process (affinity)"


@pytest.mark.parametrize(
    ("changes", "quota", "room", "workers"),
    [
        ({"allowed_physical_cores": 2}, "none", "2: one on each physical core", "up to 2 workers"),
        ({"allowed_physical_cores": 4}, "none", "4: one on each physical core", "up to 4 workers"),
        ({"quota_cores": 2.5}, "2.5 cores (control groups)", "2.5: the CPU quota", "up to 2 workers"),
        ({"quota_cores": 1.5, "allowed_physical_cores": 2}, "1.5 cores", "1.5: the CPU quota", "the only core"),
        ({"quota_cores": 0.5}, "0.5 cores", "0.5: the CPU quota", "the only core"),
        ({"quota_cores": 64.0}, "64 cores", "4: one on each physical core", "up to 4 workers"),
    ],
)
def test_room_is_for_physical_cores_and_within_the_quota(
    changes: dict[str, Any], quota: str, room: str, workers: str
) -> None:
    host = make_host(**changes)
    assert judge("CPU quota", host=host).detail.startswith(quota)
    assert judge("room for threads", host=host).detail.startswith(room)
    assert workers in judge("processes", host=host).detail


def test_each_optional_package_says_what_it_is_for_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "package_version", lambda name: None)
    assert judge("torchvision").available is False
    assert judge("torchvision").remedy == "pip install torchvision"
    assert judge("submitit").remedy == "pip install 'worldsize[slurm]'"
    assert "not installed; for --launcher slurm" in judge("submitit").detail
    assert judge("ray").remedy == "pip install 'worldsize[ray]'"
    assert "not installed; for --launcher ray" in judge("ray").detail
    monkeypatch.setattr(abilities, "package_version", lambda name: "9.9")
    assert judge("torchvision").available is True
    assert "9.9" in judge("torchvision").detail


def test_a_gain_is_printed_only_where_one_was_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "EXPECTED_GAIN", {"tcmalloc": "measured: so much"})
    assert judge("tcmalloc").expected_gain == "measured: so much"
    assert judge("huge pages").expected_gain is None


@given(st.sets(st.integers(0, 200)))
def test_core_ranges_name_each_core_once(cores: set[int]) -> None:
    named: list[int] = []
    for part in filter(None, core_ranges(sorted(cores)).split(",")):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(cores)
