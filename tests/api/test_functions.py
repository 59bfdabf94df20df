"""What is public is pinned here: a name or a signature that changes is a change of version."""

import importlib
import inspect
import re
import time
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import worldsize
from made_runs import make_run, usual_cells
from worldsize import errors
from worldsize.api.options import AuditOptions, CommOptions, RehearseOptions, StudyOptions, VerifyOptions
from worldsize.config import AuditSettings, CommSettings, RehearseSettings, StudySettings, VerifySettings
from worldsize.config.base import Settings
from worldsize.config.text import READERS, numbers
from worldsize.results.folder import Run

PUBLIC = {
    "DataError",
    "FactoryError",
    "Interrupted",
    "LossNotFiniteError",
    "OutputError",
    "Run",
    "RunError",
    "SettingsError",
    "UnknownNameError",
    "UsageError",
    "WorkerError",
    "WorldsizeError",
    "__version__",
    "audit",
    "comm",
    "compare",
    "load_run",
    "meter",
    "predict",
    "rehearse",
    "report",
    "study",
    "sweep",
    "train",
    "verify",
}
ONE_CELL = "strategy: str | None = None, world_size: int | None = None, batch_size: int | None = None, "
HOW = "out: PathLike | None = None, resume: Resume = False, report: bool = True, progress: bool = True, "
SIGNATURES = {
    "study": f"(preset: PathLike | None = None, *, {HOW}**settings: Unpack[StudyOptions]) -> Run",
    "train": f"(*, {ONE_CELL}{HOW}**settings: Unpack[TrainOptions]) -> Run",
    "sweep": f"(*, {ONE_CELL}{HOW}**settings: Unpack[SweepOptions]) -> Run",
    "comm": "(*, progress: bool = True, **settings: Unpack[CommOptions]) -> CommReport",
    "verify": "(*, out: PathLike | None = None, **settings: Unpack[VerifyOptions]) -> ProofRecord",
    "rehearse": "(run: PathLike, *, hosts: int, out: PathLike | None = None, report: bool = True, "
    "progress: bool = True, **settings: Unpack[RehearseOptions]) -> Run",
    "audit": "(source: PathLike | None = None, *, text: str | None = None, "
    "**settings: Unpack[AuditOptions]) -> Audited",
    "load_run": "(path: PathLike) -> Run",
    "meter": "(model: nn.Module | None = None, optimizer: Optimizer | None = None, *, out: PathLike | None = None, "
    "samples_per_step: int | None = None) -> Meter",
    "report": "(path: PathLike) -> Path",
    "predict": "(run: PathLike, *, world_sizes: tuple[int, ...] | int | str | None = None, "
    "strategy: str | Sequence[str] | None = None, batch_size: int | None = None, "
    "bucket_mb: float | str | None = None, link: str | None = None, "
    "link_latency: str | None = None) -> ForecastReport",
    "compare": "(a: PathLike | Sequence[PathLike], b: PathLike | Sequence[PathLike], *, "
    "fail_above: float | str | None = None, strict: bool = False, "
    "judge_by: Literal[auto, relative, plain, normalised] = auto) -> ComparisonRecord",
}
OPTIONS = (
    (StudyOptions, StudySettings),
    (VerifyOptions, VerifySettings),
    (CommOptions, CommSettings),
)


def test_public_names() -> None:
    assert set(worldsize.__all__) == PUBLIC
    assert len(worldsize.__all__) == len(PUBLIC)
    for name in PUBLIC:
        assert hasattr(worldsize, name)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    function = getattr(worldsize, name)
    written = re.sub("['\"]", "", str(inspect.signature(function)))
    assert written == SIGNATURES[name]
    assert function.__doc__


def test_a_rehearsal_takes_its_settings_beside_the_number_of_hosts() -> None:
    assert get_type_hints(RehearseOptions).keys() | {"hosts"} == RehearseSettings.model_fields.keys()


def test_an_audit_takes_its_settings() -> None:
    assert get_type_hints(AuditOptions).keys() == AuditSettings.model_fields.keys()


@pytest.mark.parametrize(("options", "settings"), OPTIONS)
def test_the_typed_settings_are_the_fields(options: Any, settings: type[Settings]) -> None:
    """Text is allowed beside the type of the field where config/text.py reads it, and for a path."""
    typed, fields = get_type_hints(options), get_type_hints(settings)
    assert typed.keys() == settings.model_fields.keys()
    for name, kind in typed.items():
        allowed = {*(get_args(fields[name]) or (fields[name],))} if is_union(fields[name]) else {fields[name]}
        read: set[type] = {str} if name in READERS or Path in allowed else set()
        read |= {int} if READERS.get(name) is numbers else set()
        assert ({*get_args(kind)} if is_union(kind) else {kind}) == allowed | read, name


def is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def test_functions_stay_functions_after_the_packages_of_their_names_are_loaded() -> None:
    """`worldsize.study` is a function and a package; the import of a package binds its name in its parent."""
    importlib.import_module("worldsize.study.run")
    for name in SIGNATURES:
        assert inspect.isfunction(getattr(worldsize, name))


def test_the_tree_of_errors_and_their_exit_statuses() -> None:
    tree = {
        name: (kind.__mro__[1].__name__, kind.exit_status)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.WorldsizeError)
    }
    assert tree == {
        "WorldsizeError": ("Exception", 1),
        "UsageError": ("WorldsizeError", 2),
        "SettingsError": ("UsageError", 2),
        "UnknownNameError": ("UsageError", 2),
        "DataError": ("UsageError", 2),
        "FactoryError": ("UsageError", 2),
        "OutputError": ("UsageError", 2),
        "RunError": ("WorldsizeError", 1),
        "LossNotFiniteError": ("RunError", 1),
        "WorkerError": ("RunError", 1),
        "Interrupted": ("RunError", 130),
    }
    assert tree.keys() <= PUBLIC


def test_load_run_takes_a_path_or_its_text(tmp_path: Path) -> None:
    make_run(tmp_path, usual_cells(blocks=1))
    for path in (tmp_path, str(tmp_path)):
        run = worldsize.load_run(path)
        assert isinstance(run, Run)
        assert run.study.name == "made"
    with pytest.raises(worldsize.OutputError, match="is not a worldsize run folder"):
        worldsize.load_run(tmp_path / "cells")


def test_a_budget_begins_with_the_call_not_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of a notebook is older than any budget; so is this process made to be."""
    asked: list[CommSettings] = []

    def seen(settings: CommSettings, *_: Any, **__: Any) -> None:
        asked.append(settings)
        raise worldsize.RunError("seen")

    monkeypatch.setattr(importlib.import_module("worldsize.study.comm"), "run_comm", seen)
    monkeypatch.setattr("psutil.Process.create_time", lambda _: time.time() - 3600)
    with pytest.raises(worldsize.RunError, match="seen"):
        worldsize.comm(budget="20s", progress=False)
    assert asked[0].budget_s == pytest.approx(20, abs=3)


def test_the_benchmark_and_a_sweep_of_real_workers(tmp_path: Path) -> None:
    report = worldsize.comm(collectives="all-reduce", world_size=2, top_bytes="64KiB", budget="6s", progress=False)
    assert {point.collective for point in report.table} == {"all-reduce"}
    run = worldsize.sweep(batch_size=4, largest_batch=8, steps=2, out=tmp_path / "run", progress=False)
    assert [found.strategy for found in run.analysis.sweeps] == ["single"]
    assert run.results.height
    assert "<table>" in run._repr_html_()


def test_mistakes_are_raised_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(worldsize.UsageError, match="unknown key 'strategy'"):
        worldsize.study(out=tmp_path / "run", strategy="ddp")  # type: ignore[call-arg]
    with pytest.raises(worldsize.UsageError, match="unknown key 'batchsize'"):
        worldsize.train(out=tmp_path / "run", batchsize=4)  # type: ignore[call-arg]
    with pytest.raises(worldsize.UsageError, match="world_sizes: 0 was given"):
        worldsize.train(out=str(tmp_path / "run"), world_size=0)
    with pytest.raises(worldsize.UsageError, match="epochs and steps exclude each other"):
        worldsize.train(out=tmp_path / "run", epochs=1, steps=3)
    with pytest.raises(worldsize.UsageError, match=r"study\.json is missing"):
        worldsize.study(out=tmp_path / "run", resume=True)
    with pytest.raises(worldsize.UsageError, match="no-such-preset"):
        worldsize.study("no-such-preset", out=tmp_path / "run", resume=True)
    with pytest.raises(worldsize.UsageError, match="--resume needs --out"):
        worldsize.train(resume=True)
    with pytest.raises(worldsize.UsageError, match="unknown key 'strategies'; did you mean 'strategy'"):
        worldsize.train(out=tmp_path / "run", strategies="single,ddp")  # type: ignore[call-arg]
    with pytest.raises(worldsize.UsageError, match="unknown key 'cells'"):
        worldsize.train(out=tmp_path / "run", cells=())  # type: ignore[call-arg]
    with pytest.raises(worldsize.UsageError, match="resume='x' was given; True, False or 'anew' is allowed"):
        worldsize.study(out=tmp_path / "run", resume="x")  # type: ignore[arg-type]
    with pytest.raises(worldsize.UsageError, match="hosts: '²' was given"):
        worldsize.comm(hosts="²")
    assert not (tmp_path / "run").exists()
