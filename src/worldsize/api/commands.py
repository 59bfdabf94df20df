"""What the commands do, as functions: the same settings, defaults and errors (docs/python.md).

Nothing heavy is imported here: `import worldsize` must cost nothing. Progress goes to stderr, as that of the commands.
"""

from __future__ import annotations

import difflib
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_type_hints

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from worldsize.api.options import CommOptions, PathLike, StudyOptions, SweepOptions, TrainOptions, VerifyOptions
    from worldsize.api.run import Run
    from worldsize.config import StudySettings
    from worldsize.metering.meter import Meter
    from worldsize.results.comm_records import CommReport
    from worldsize.results.comparison_records import ComparisonRecord
    from worldsize.results.forecast_records import ForecastReport
    from worldsize.results.verify_records import ProofRecord

Resume = bool | Literal["anew"]


def study(
    preset: PathLike | None = None,
    *,
    out: PathLike | None = None,
    resume: Resume = False,
    report: bool = True,
    progress: bool = True,
    **settings: Unpack[StudyOptions],
) -> Run:
    """Run a study, write its report and return it.

    `preset` is one of the experiments (`"dp-scaling"`) or a TOML file; the settings are the fields of
    `config.StudySettings`, and lie over it. `out` is the run folder, a new one under runs/ if not given; with `resume`,
    what is not given is as it was there, and `resume="anew"` measures all again where the user's own code has changed
    since. Raises the errors of `worldsize.errors`; a cell that fails is in the result with its reason.
    """
    from worldsize.config import StudySettings, laid_over, preset_names, read_study, validated
    from worldsize.errors import UsageError

    if "experiment" in settings:
        raise UsageError(
            f"experiment={settings['experiment']!r} was given, which only names tables of a report\n"
            f"Give a preset first, as in worldsize.study('dp-scaling'); known: {', '.join(preset_names())}."
        )
    given = laid_over(read_study(str(preset)) if preset is not None else {}, dict(settings))
    wanted = _resumed(resume, out, given) if resume else validated(StudySettings, given, str(preset or ""))
    name = Path(preset).name.removesuffix(".toml") if preset is not None else "study"
    return _run(name, wanted, out, resume=resume, report=report, progress=progress)


def train(
    *,
    strategy: str | None = None,
    world_size: int | None = None,
    batch_size: int | None = None,
    out: PathLike | None = None,
    resume: Resume = False,
    report: bool = True,
    progress: bool = True,
    **settings: Unpack[TrainOptions],
) -> Run:
    """Train one configuration and return its run.

    The settings are the fields of `config.TrainSettings`, and what is not given is as it says there: one epoch of one
    worker, DDP where there are several. `resume` goes on from the last checkpoint in `out`; `resume="anew"` trains from
    the beginning where the user's own code has changed since. Raises the errors of `worldsize.errors`, RunError if the
    training failed.
    """
    from worldsize.api.options import TrainOptions
    from worldsize.config import TrainSettings, validated
    from worldsize.errors import RunError

    given = _one_cell(TrainOptions, dict(settings), strategy, world_size, batch_size)
    wanted = _resumed(resume, out, given) if resume else validated(TrainSettings, given).study
    run = _run("train", wanted, out, resume=resume, report=report, progress=progress)
    for cell in run.cells.values():
        if cell.record.error:
            raise RunError(cell.record.error.message)
    return run


def sweep(
    *,
    strategy: str | None = None,
    world_size: int | None = None,
    batch_size: int | None = None,
    out: PathLike | None = None,
    resume: Resume = False,
    report: bool = True,
    progress: bool = True,
    **settings: Unpack[SweepOptions],
) -> Run:
    """Find the largest local batch that fits, from `batch_size` on, and the smallest that is worth it; return the run.

    The settings are the fields of `config.SweepSettings`. What was found is in `run.analysis.sweeps` and `run.tables`.
    Raises the errors of `worldsize.errors`.
    """
    from worldsize.api.options import SweepOptions
    from worldsize.config import SweepSettings, validated

    given = _one_cell(SweepOptions, dict(settings), strategy, world_size, batch_size)
    wanted = _resumed(resume, out, given) if resume else validated(SweepSettings, given).study
    return _run("sweep", wanted, out, resume=resume, report=report, progress=progress)


def comm(*, progress: bool = True, **settings: Unpack[CommOptions]) -> CommReport:
    """Time the collectives between workers; return the table (algbw, busbw, intervals) and the α–β model.

    The settings are the fields of `config.CommSettings`. Raises the errors of `worldsize.errors`.
    """
    from worldsize.analysis.comm_report import comm_report
    from worldsize.cli.comm_display import CommDisplay
    from worldsize.config import CommSettings, validated
    from worldsize.launch.warm import WARM
    from worldsize.study.comm import run_comm
    from worldsize.study.comm_budget import check_budget, within
    from worldsize.study.comm_devices import gpus_for

    begun_s = time.monotonic()  # not when the process began: a notebook's may be hours old
    given: dict[str, Any] = dict(settings)
    if "world_size" not in given and str(given.get("hosts", "")).isdecimal():
        given["world_size"] = int(given["hosts"])
    wanted = validated(CommSettings, given)
    check_budget(wanted)
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder, ExitStack() as stack:
        stack.enter_context(WARM.held())  # what has counted the GPUs starts the workers, too
        gpus = gpus_for(wanted)
        listener = stack.enter_context(CommDisplay(wanted.budget_s)) if progress else None
        record = run_comm(within(wanted, begun_s), Path(folder), sys.argv, gpus=gpus, listener=listener)
        return comm_report(record)


def verify(*, out: PathLike | None = None, **settings: Unpack[VerifyOptions]) -> ProofRecord:
    """Prove that every strategy trains as one process would.

    The settings are the fields of `config.VerifySettings`; `out` keeps the proof and the logs of its workers. What
    differs is in the result. Raises the errors of `worldsize.errors`.
    """
    from worldsize.config import VerifySettings, validated
    from worldsize.study.verify import run_verify, write_proof

    wanted = validated(VerifySettings, dict(settings))
    if out is None:
        with tempfile.TemporaryDirectory(prefix="worldsize-") as folder:
            return run_verify(wanted, Path(folder), sys.argv)
    record = run_verify(wanted, Path(out), sys.argv)
    write_proof(Path(out), record)
    return record


def load_run(path: PathLike) -> Run:
    """Read a run folder; raises OutputError if it is none."""
    from worldsize.api.run import Run
    from worldsize.results.folder import load_run as load

    return Run.of(load(Path(path)))


def report(path: PathLike) -> Path:
    """Write the report of a run folder again, and return the path of its page; raises OutputError if it is none."""
    from worldsize.report.write import write_report

    return write_report(Path(path))


def compare(
    a: PathLike | Sequence[PathLike],
    b: PathLike | Sequence[PathLike],
    *,
    fail_above: float | str | None = None,
    strict: bool = False,
    judge_by: Literal["auto", "relative", "plain", "normalised"] = "auto",
) -> ComparisonRecord:
    """Compare the runs of B with those of A: ratios B ÷ A.

    Each side is a run folder or a stored baseline, or several, as a sequence or comma-separated; the settings are the
    fields of `config.CompareSettings`. A gate that fails is in the result. Raises OutputError for what is neither,
    UsageError for a `fail_above` that is no share, and for a side with a run twice or with runs of other work.
    """
    from worldsize.analysis.compare.comparison import compare_runs
    from worldsize.analysis.compare.sides import paths_of, read_side
    from worldsize.config import CompareSettings, validated

    wanted = validated(CompareSettings, {"fail_above": fail_above, "strict": strict, "judge_by": judge_by})
    path_a, path_b = (",".join(str(path) for path in paths_of(side)) for side in (a, b))
    return compare_runs(read_side(a), read_side(b), wanted, (path_a, path_b))


def predict(
    run: PathLike,
    *,
    world_sizes: tuple[int, ...] | int | str | None = None,
    strategy: str | Sequence[str] | None = None,
    batch_size: int | None = None,
    bucket_mb: float | str | None = None,
    link: str | None = None,
    link_latency: str | None = None,
) -> ForecastReport:
    """Predict what a run folder did not measure, keep the forecast there, and return it; nothing is run.

    The settings are the fields of `config.PredictSettings`. Raises OutputError for a folder that is no run, UsageError
    for what the run does not tell, with the run that would.
    """
    from worldsize.analysis.predict.answer import answer
    from worldsize.analysis.study import analyse
    from worldsize.config import PredictSettings, validated
    from worldsize.results.folder import load_run as load
    from worldsize.results.forecast_records import write_forecast

    given = {
        "world_sizes": world_sizes,
        "strategies": (strategy,) if isinstance(strategy, str) else strategy,
        "batch_size": batch_size,
        "bucket_mb": bucket_mb,
        "link": link,
        "link_latency": link_latency,
    }
    wanted = validated(PredictSettings, {name: value for name, value in given.items() if value is not None})
    report = answer(analyse(load(Path(run))), wanted)
    write_forecast(Path(run), report)
    return report


def _one_cell(
    options: type[Any], settings: dict[str, Any], strategy: str | None, world_size: int | None, batch_size: int | None
) -> dict[str, Any]:
    """The settings of a study of one cell; raise UsageError for what belongs to several."""
    from worldsize.errors import UsageError

    one = {"strategies": strategy, "world_sizes": world_size, "batch_sizes": batch_size}
    known = [*get_type_hints(options), "strategy", "world_size", "batch_size"]
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.65)
            hint = f"did you mean {near[0]!r}?" if near else "of several configurations worldsize.study takes it"
            raise UsageError(f"unknown key {key!r}; {hint}")
    return {**settings, **{name: (value,) for name, value in one.items() if value is not None}}


def _resumed(resume: Resume, out: PathLike | None, given: dict[str, Any]) -> StudySettings:
    """The settings of the study in `out`, with what is given on top."""
    from worldsize.errors import UsageError
    from worldsize.study.resuming import settings_to_resume

    if resume not in (True, "anew"):
        raise UsageError(f"resume={resume!r} was given; True, False or 'anew' is allowed")
    return settings_to_resume(_path(out), given)


def _run(
    name: str, settings: StudySettings, out: PathLike | None, *, resume: Resume, report: bool, progress: bool
) -> Run:
    """Run `settings` in `out`, or in a new folder of this name, and write its report."""
    from worldsize.api.run import Run
    from worldsize.cli.display import Display
    from worldsize.report.write import write_report
    from worldsize.results.folder import new_run_folder
    from worldsize.study.experiment import run_experiment

    folder = _path(out) or new_run_folder(name)
    with ExitStack() as stack:
        listener = stack.enter_context(Display()) if progress else None
        run = Run.of(run_experiment(settings, folder, resume=resume, listener=listener))
    if report:
        write_report(folder, run.analysis)
    return run


def _path(path: PathLike | None) -> Path | None:
    return Path(path) if path else None


def meter(
    model: nn.Module | None = None,
    optimizer: Optimizer | None = None,
    *,
    out: PathLike | None = None,
    samples_per_step: int | None = None,
) -> Meter:
    """Return a meter for a training loop of one's own, which wraps its loader or each of its steps.

    Off unless `out` or the variable WORLDSIZE_METER names a run folder. `samples_per_step` are those of this process
    in each step of the optimizer; without it they are counted by the first dimension of the first tensor. Raises
    nothing: what goes wrong is a warning, and ends the metering (docs/own-training.md).
    """
    from worldsize.metering.meter import Meter

    return Meter(model, optimizer, out=out, samples_per_step=samples_per_step)
