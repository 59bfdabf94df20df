"""In what two runs differ: work, own code, software, machine, environment, settings, placement (method.md §11)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from worldsize.analysis.numbers import gib_text
from worldsize.results.baseline_records import StoredCell, StoredRun
from worldsize.results.comparison_records import Area, Change
from worldsize.results.provenance import SHOWN, Host, Provenance, UserCode, different_files, named, short_commit
from worldsize.results.records import Placement
from worldsize.results.training_records import DataRecord

ABSENT = "none"
MAX_FILES = 8
"""Files of the user's that are named, each with its digests."""
NAMED_AS_WORK = ("model", "data", "precision", "optimizer")
"""Settings that are named with the work that they set."""


def other_work(a: StoredRun, b: StoredRun) -> list[str]:
    """Why a step of one run is not the work of a step of the other; empty where it is."""
    changed = [change.what for change in _work(a, b)]
    return [word for word in NAMED_AS_WORK if any(what.startswith(word) for what in changed)]


def same_machine(a: Provenance, b: Provenance) -> bool:
    """Whether both ran on the same kind of machine; its name, address and load may differ."""
    kinds = [
        (host.cpu_model, host.logical_cores, len(host.allowed_cores), host.quota_cores, host.gpus)
        for host in (each.host for each in (a, b))
    ]
    return kinds[0] == kinds[1]


def changes_between(a: Sequence[StoredRun], b: Sequence[StoredRun], part: str = "") -> list[Change]:
    """What differs between each run of A and each of B; values that differ within a side are listed, old and new."""
    found: dict[tuple[str, str, str], list[Change]] = {}
    for one in a:
        for other in b:
            for change in changes(one, other, part):
                found.setdefault((change.area, change.what, change.where), []).append(change)
    return [
        each[0].model_copy(
            update={"old": _listed([one.old for one in each]), "new": _listed([one.new for one in each])}
        )
        for each in found.values()
        if len(each) == len(a) * len(b)
    ]


def _listed(values: Sequence[str]) -> str:
    return " / ".join(dict.fromkeys(values))


def changes(a: StoredRun, b: StoredRun, part: str = "") -> list[Change]:
    """Each difference of two runs, or of the same part of both, old and new; what explains most comes first."""
    found = [*_work(a, b), *_code(a.provenance.user_code, b.provenance.user_code)]
    for area, facts in _provenance(a.provenance, b.provenance):
        found += _named(area, *facts)
    found += _named("settings", _settings(a), _settings(b))
    found += _placements(a, b)
    found += _named("run", _run(a), _run(b))
    return [change.model_copy(update={"where": ", ".join(filter(None, [part, change.where]))}) for change in found]


def _work(a: StoredRun, b: StoredRun) -> list[Change]:
    found = _named("work", _work_facts(a), _work_facts(b))
    flops = tuple(run.model.flops_per_sample if run.model else None for run in (a, b))
    if None not in flops and flops[0] != flops[1]:
        old, new = (f"{each:,}" for each in flops)
        found.append(Change(area="work", what="model operations per sample", old=old, new=new))
    return found


def _code(a: UserCode | None, b: UserCode | None) -> Iterator[Change]:
    """The user's own files that are not the same, by their digests, and their commits."""
    if (a is None) != (b is None):
        yield Change(area="code", what="your own code", old=_files(a), new=_files(b))
        return
    if a is None or b is None:
        return
    files, old, new = different_files(a, b), a.digests, b.digests
    for name in files[:MAX_FILES]:
        yield Change(area="code", what=name, old=_digests(old.get(name)), new=_digests(new.get(name)))
    left = len(files) - MAX_FILES
    if left > 0:
        yield Change(area="code", what=f"{left} more files", old="…", new="…")
    if a.commit != b.commit:
        commits = (short_commit(each.commit) if each.commit else "unknown" for each in (a, b))
        yield Change(area="code", what="commit", **dict(zip(("old", "new"), commits, strict=True)))


def _files(code: UserCode | None) -> str:
    return "none, or not recorded" if code is None else named([file.name for file in code.files])


def _digests(found: tuple[str, ...] | None) -> str:
    return ", ".join(digest[:SHOWN] for digest in found) if found else ABSENT


def _work_facts(run: StoredRun) -> dict[str, str]:
    data, model, settings = run.data, run.model, run.settings
    if model is None or settings is None:
        return {}
    return {
        "model": model.name,
        "model parameters": f"{model.parameters:,}",
        "model parameter bytes": f"{model.parameter_bytes:,}",
        "model gradient tensors": f"{model.gradient_tensors:,}",
        **({} if data is None else _data_facts(data)),
        "precision": settings.precision,
        "optimizer": settings.optimizer,
    }


def _data_facts(data: DataRecord) -> dict[str, str]:
    return {
        "data": data.name,
        "data shape": "×".join(str(size) for size in data.shape),
        "data classes": f"{data.classes:,}",
    }


def _provenance(a: Provenance, b: Provenance) -> Iterator[tuple[Area, tuple[dict[str, str], dict[str, str]]]]:
    yield "software", (_software(a), _software(b))
    yield "machine", (_machine(a), _machine(b))
    yield "environment", (a.environment, b.environment)


def _software(provenance: Provenance) -> dict[str, str]:
    return {
        "worldsize": provenance.worldsize_version,
        "commit of worldsize": provenance.commit or "unknown",
        "Python": provenance.python_version,
        "torch": provenance.torch_version,
    }


def _machine(provenance: Provenance) -> dict[str, str]:
    host = provenance.host
    interfaces = "; ".join(f"{name}: {', '.join(addresses)}" for name, addresses in host.interfaces.items())
    return {
        "processor": host.cpu_model,
        "logical cores": str(host.logical_cores),
        "physical cores": str(host.physical_cores or "unknown"),
        "allowed cores": ", ".join(str(core) for core in host.allowed_cores),
        "CPU quota": _quota(host),
        "GPUs": ", ".join(host.gpus) or ABSENT,
        "memory": gib_text(host.memory_bytes),
        "system": host.system,
        "host": host.hostname,
        "network interfaces": interfaces or ABSENT,
        "TCP congestion control": host.congestion_control or "unknown",
        "load at the start": f"{host.load_1min:.2f}",
    }


def _quota(host: Host) -> str:
    return ABSENT if host.quota_cores is None else f"{host.quota_cores:g} cores"


def _settings(run: StoredRun) -> dict[str, str]:
    values = run.settings.model_dump() if run.settings else {}
    return {name: _text(value) for name, value in values.items() if name not in NAMED_AS_WORK}


def _run(run: StoredRun) -> dict[str, str]:
    sessions = {"sessions": str(1 + len(run.sessions))}
    if run.data is None:
        return sessions
    return {
        "training samples": f"{run.data.train_samples:,}",
        "test samples": f"{run.data.test_samples:,}",
        "data verification": run.data.verification,
        **sessions,
    }


def _placements(a: StoredRun, b: StoredRun) -> Iterator[Change]:
    """What differs in how cells were placed, with the cells in which it does."""
    places = {cell.id: cell.placement for cell in b.cells}
    pairs = [(cell, places[cell.id]) for cell in a.cells if cell.placement and places.get(cell.id)]
    cells: dict[tuple[str, str, str], list[str]] = {}
    for cell, place in pairs:
        for change in _placed(cell, place):
            cells.setdefault((change.what, change.old, change.new), []).append(cell.id)
    for (what, old, new), names in cells.items():
        where = "all common cells" if len(names) == len(pairs) else ", ".join(names)
        yield Change(area="placement", what=what, old=old, new=new, where=where)


def _placed(cell: StoredCell, other: Placement | None) -> list[Change]:
    assert cell.placement is not None
    assert other is not None
    return _named("placement", _place(cell.placement), _place(other))


def _place(placement: Placement) -> dict[str, str]:
    return {
        "threads per worker": str(placement.threads_per_worker),
        "processes": str(placement.processes),
        "device": placement.device,
        "backend": placement.backend,
        "oversubscribed": _text(placement.oversubscribed),
    }


def _named(area: Area, old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    """The names whose texts differ, those that only one side has included."""
    return [
        Change(area=area, what=name, old=old.get(name, ABSENT), new=new.get(name, ABSENT))
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _text(value: Any) -> str:
    """A setting as it would be typed, as far as that goes."""
    if value is None or value in ((), ""):
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{name}={_text(each)}" for name, each in value.items() if each is not None)
    if isinstance(value, tuple | list):
        return ", ".join(_text(each) for each in value)
    return str(value)
