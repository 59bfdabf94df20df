"""worldsize tells how synchronous data-parallel training scales.

    import worldsize
    run = worldsize.study(strategies=("single", "ddp"), world_sizes=(1, 2))

What the commands do is callable here; nothing is printed. Importing this imports no torch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Loaded now, while the name is free: the first import of a package of this name would replace the function below.
from worldsize import study as _study_package  # noqa: F401
from worldsize.errors import (
    DataError,
    FactoryError,
    Interrupted,
    LossNotFiniteError,
    OutputError,
    RunError,
    UnknownNameError,
    UsageError,
    WorkerError,
    WorldsizeError,
)

__version__ = "0.1.0"

__all__ = [
    "DataError",
    "FactoryError",
    "Interrupted",
    "LossNotFiniteError",
    "OutputError",
    "RunError",
    "UnknownNameError",
    "UsageError",
    "WorkerError",
    "WorldsizeError",
    "__version__",
    "compare",
    "load_run",
    "study",
    "train",
    "verify",
]


def study(*, out: Path | str | None = None, resume: bool | str = False, report: bool = True, **settings: Any) -> Any:
    """Run a study and return its `results.folder.Run`; the settings are the fields of `config.StudySettings`.

    `out` is the run folder, a new one under runs/ if not given; with `resume`, what is not given is as it was there,
    and `resume="anew"` measures all again where the user's own code has changed since. Raises the errors of
    `worldsize.errors`; a cell that fails is in the result with its reason.
    """
    from worldsize.config import StudySettings, validated
    from worldsize.study.again import settings_to_resume

    wanted = settings_to_resume(out, settings) if resume else validated(StudySettings, settings)
    return _run("study", wanted, out, resume=resume, report=report)


def train(
    *,
    strategy: str | None = None,
    world_size: int | None = None,
    batch_size: int | None = None,
    out: Path | str | None = None,
    resume: bool | str = False,
    report: bool = True,
    **settings: Any,
) -> Any:
    """Train one configuration and return its `Run`.

    The settings are the fields of `config.TrainSettings`, and what is not given is as it says there: one epoch of one
    worker, DDP where there are several. `resume` goes on from the last checkpoint in `out`; `resume="anew"` trains from
    the begin where the user's own code has changed since. Raises the errors of `worldsize.errors`, RunError if the
    training failed.
    """
    from worldsize.config import TrainSettings, validated
    from worldsize.study.again import settings_to_resume

    one = {"strategies": strategy, "world_sizes": world_size, "batch_sizes": batch_size}
    settings |= {name: (value,) for name, value in one.items() if value is not None}
    wanted = settings_to_resume(out, settings) if resume else validated(TrainSettings, settings).study
    run = _run("train", wanted, out, resume=resume, report=report)
    for cell in run.cells.values():
        if cell.record.error:
            raise RunError(cell.record.error.message)
    return run


def _run(name: str, settings: Any, out: Path | str | None, *, resume: Any, report: bool) -> Any:
    """Run `settings` in `out`, or in a new folder of this name, and write its report."""
    from worldsize.report.write import write_report
    from worldsize.results.folder import new_run_folder
    from worldsize.study.experiment import run_experiment

    folder = Path(out) if out else new_run_folder(name)
    run = run_experiment(settings, folder, resume=resume)
    if report:
        write_report(folder)
    return run


def verify(*, out: Path | str | None = None, **settings: Any) -> Any:
    """Prove that every strategy trains as one process would; returns a `results.verify_records.ProofRecord`.

    The settings are the fields of `config.VerifySettings`; `out` keeps the proof and the logs of its workers. What
    differs is in the result. Raises the errors of `worldsize.errors`.
    """
    import sys
    import tempfile

    from worldsize.config import VerifySettings, validated
    from worldsize.study.verify import run_verify, write_proof

    wanted = validated(VerifySettings, settings)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="worldsize-") as folder:
            return run_verify(wanted, Path(folder), sys.argv)
    record = run_verify(wanted, Path(out), sys.argv)
    write_proof(Path(out), record)
    return record


def load_run(path: Path | str) -> Any:
    """Read a run folder as a `results.folder.Run`; raises OutputError if it is none."""
    from worldsize.results.folder import load_run as load

    return load(path)


def compare(
    a: Path | str | Sequence[Path | str],
    b: Path | str | Sequence[Path | str],
    *,
    fail_above: float | None = None,
    strict: bool = False,
    judge_by: str = "auto",
) -> Any:
    """Compare the runs of B with those of A; return a `results.comparison_records.ComparisonRecord` of ratios B ÷ A.

    Each side is a run folder or a stored baseline, or several, as a sequence or by commas; the settings are the fields
    of `config.CompareSettings`. A gate that fails is in the result. Raises OutputError for what is neither, UsageError
    for a `fail_above` that is no share, and for a side with a run twice or with runs of other work.
    """
    from worldsize.analysis.compare.comparison import compare_runs
    from worldsize.analysis.compare.snapshot import paths_of, read_side
    from worldsize.config import CompareSettings, validated

    wanted = validated(CompareSettings, {"fail_above": fail_above, "strict": strict, "judge_by": judge_by})
    path_a, path_b = (",".join(str(path) for path in paths_of(side)) for side in (a, b))
    return compare_runs(read_side(a), read_side(b), wanted, (path_a, path_b))
