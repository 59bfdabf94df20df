"""What `train` and `study` share: run, show, write the report, print the results, choose the exit status."""

from pathlib import Path
from typing import Any

import typer


def stored_settings(out: Path | None) -> dict[str, Any]:
    """The settings of the study to resume; raise UsageError without --out, OutputError if it holds none."""
    from worldsize.errors import UsageError
    from worldsize.results.folder import read_record
    from worldsize.results.records import StudyRecord

    if out is None:
        raise UsageError("--resume needs --out: the folder of the study to go on with")
    return read_record(StudyRecord, out / "study.json").settings.model_dump()


def run_and_show(
    values: dict[str, Any], out: Path | None, *, name: str, resume: bool, as_json: bool, source: str = ""
) -> None:
    """Run a study with a display, write its report, print the results; exit with 1 if a cell failed."""
    from worldsize.cli.display import Display, print_json, print_results
    from worldsize.config import StudySettings, validated
    from worldsize.errors import RunError
    from worldsize.report.write import write_report
    from worldsize.results.folder import load_run, new_run_folder
    from worldsize.study.experiment import run_experiment

    settings = validated(StudySettings, values, source)
    out = out or new_run_folder(name)
    stopped: RunError | None = None
    with Display(quiet=as_json) as display:
        try:
            run = run_experiment(settings, out, resume=resume, listener=display)
        except RunError as error:  # stopped by the user, or a sweep that cannot go on
            if not (out / "study.json").exists():
                raise  # nothing to report on yet
            stopped, run = error, load_run(out)
    page = write_report(out)
    if as_json:
        print_json(out, page)
    else:
        print_results(out, page)
    if stopped:
        raise stopped
    cells = [cell.record for part in (run, *run.parts.values()) for cell in part.cells.values()]
    failed = [record.error for record in cells if record.state == "failed"]
    if any(not (settings.sweep and error and error.kind == "OutOfMemory") for error in failed):
        raise typer.Exit(1)  # a batch that does not fit is what a sweep looks for


def run_inside_and_show(values: dict[str, Any], out: Path | None, *, name: str, resume: bool, as_json: bool) -> None:
    """Be one rank of a run whose workers others have started; rank 0 writes the report and prints."""
    import os
    import sys

    # What torch's profiler says of itself would stand on this terminal; it is read when torch is loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from worldsize.cli.display import Display, print_json, print_results
    from worldsize.config import StudySettings, validated
    from worldsize.report.write import write_report
    from worldsize.study.inside import run_inside

    settings = validated(StudySettings, values)
    with Display(quiet=as_json) as display:
        run = run_inside(settings, out, sys.argv, display, name=name, resume=resume)
    if run is None:
        return
    page = write_report(run.folder)
    if as_json:
        print_json(run.folder, page)
    else:
        print_results(run.folder, page)
