"""What `train` and `study` share: run, show, write the report, print the results, choose the exit status."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from worldsize.cli import BEGAN_S

if TYPE_CHECKING:
    from worldsize.config import LaunchSettings
    from worldsize.results.folder import Run


def stored_settings(out: Path | None) -> dict[str, Any]:
    """The settings of the study to resume; raise UsageError without --out, OutputError if it holds none."""
    from worldsize.errors import UsageError
    from worldsize.results.folder import read_record
    from worldsize.results.records import StudyRecord

    if out is None:
        raise UsageError("--resume needs --out: the folder of the study to go on with")
    return read_record(StudyRecord, out / "study.json").settings.model_dump()


def run_and_show(
    values: dict[str, Any],
    out: Path | None,
    launch: "LaunchSettings",
    *,
    name: str,
    resume: bool,
    as_json: bool,
    source: str = "",
) -> None:
    """Run a study with a display, write its report, print the results; exit with 1 if a cell failed."""
    from worldsize.cli.display import Display
    from worldsize.cli.results import report_and_print
    from worldsize.config import StudySettings, validated
    from worldsize.errors import RunError
    from worldsize.launch.clusters import cluster_for
    from worldsize.launch.slurm.cluster import inside_a_job
    from worldsize.results.folder import load_run, new_run_folder
    from worldsize.study.experiment import run_experiment

    settings = validated(StudySettings, values, source)
    out = out or new_run_folder(name)
    stopped: RunError | None = None
    largest = max(settings.world_sizes or (), default=None)
    if launch.launcher == "slurm" and (launch.print_script or not inside_a_job()):
        from worldsize.cli.submit import submit_and_follow

        submit_and_follow(launch, out, largest, resume=resume, as_json=as_json)
        return
    with cluster_for(launch, largest) as cluster, Display(quiet=as_json) as display:
        try:
            run = run_experiment(settings, out, resume=resume, listener=display, cluster=cluster, began_s=BEGAN_S)
        except RunError as error:  # stopped by the user, or a sweep that cannot go on
            if not (out / "study.json").exists():
                raise  # nothing to report on yet
            stopped, run = error, load_run(out)
    report_and_print(out, as_json=as_json)
    if stopped:
        raise stopped
    exit_for_failures(run)


def exit_for_failures(run: "Run") -> None:
    """Exit with 1 if a cell failed; a batch that does not fit is what a sweep looks for."""
    sweep = run.study.settings.sweep
    cells = [cell.record for part in (run, *run.parts.values()) for cell in part.cells.values()]
    failed = [record.error for record in cells if record.state == "failed"]
    if any(not (sweep and error and error.kind == "OutOfMemory") for error in failed):
        raise typer.Exit(1)


def run_inside_and_show(values: dict[str, Any], out: Path | None, *, name: str, resume: bool, as_json: bool) -> None:
    """Be one rank of a run whose workers others have started; rank 0 writes the report and prints."""
    import os
    import sys
    from contextlib import redirect_stdout

    # What torch's profiler says of itself would stand on this terminal; it is read when torch is loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from worldsize.cli.display import Display
    from worldsize.cli.results import report_and_print
    from worldsize.config import StudySettings, validated
    from worldsize.study.inside import run_inside

    settings = validated(StudySettings, values)
    # A user's model or data may print in this very process; stdout is for the results.
    with redirect_stdout(sys.stderr), Display(quiet=as_json) as display:
        run = run_inside(settings, out, sys.argv, display, name=name, resume=resume)
    if run is not None:
        report_and_print(run.folder, as_json=as_json)
