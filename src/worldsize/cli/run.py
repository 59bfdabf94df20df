"""What `train` and `study` share: run, show, write the report, print the results, choose the exit status."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from worldsize.cli import BEGAN_S

if TYPE_CHECKING:
    from worldsize.config import LaunchSettings, StudySettings
    from worldsize.study.resuming import Resume


def started(given: dict[str, Any]) -> int | None:
    """How many workers others have started, this process among them; None if the user started it directly.

    `given` are flags of a start by hand. Raises UsageError where only some of those that it needs are given.
    """
    from worldsize.config import ByHandSettings, validated
    from worldsize.errors import UsageError
    from worldsize.launch.by_hand import join_by_hand, name_interface, started_workers

    if given:
        needed = [name for name, field in ByHandSettings.model_fields.items() if field.is_required()]
        missing = [f"--{name.replace('_', '-')}" for name in needed if name not in given]
        if missing:
            raise UsageError(f"a start by hand needs {', '.join(missing)} as well")
        node = validated(ByHandSettings, given)
        join_by_hand(node.master_ip, node.num_nodes, node.rank, node.master_port)
    else:
        name_interface()
    return started_workers()


def run_and_show(
    settings: "StudySettings",
    out: Path | None,
    launch: "LaunchSettings",
    *,
    name: str,
    resume: "Resume",
    as_json: bool,
) -> None:
    """Run a study with a display, write its report, print the results; exit with 1 if a cell failed, 4 for damage."""
    from worldsize.cli.display import Display
    from worldsize.cli.results import exit_for_damage, exit_for_failures, exit_for_gate, report_and_print
    from worldsize.errors import RunError
    from worldsize.launch.launcher import cluster_for
    from worldsize.launch.slurm.cluster import inside_a_job
    from worldsize.results.folder import load_run, new_run_folder
    from worldsize.study.experiment import run_experiment

    out = out or new_run_folder(name)
    stopped: RunError | None = None
    largest = max(settings.world_sizes or (), default=None)
    if launch.launcher == "slurm" and (launch.print_script or not inside_a_job()):
        from worldsize.cli.submit import submit_and_follow

        submit_and_follow(launch, out, largest, resume=resume, as_json=as_json)
        return
    with cluster_for(launch.of_commands if settings.script else launch, largest) as cluster, Display() as display:
        try:
            run = run_experiment(settings, out, resume=resume, listener=display, cluster=cluster, began_s=BEGAN_S)
        except RunError as error:  # stopped by the user, or a sweep that cannot go on
            if not (out / "study.json").exists():
                raise  # nothing to report on yet
            stopped, run = error, load_run(out)
    shown = report_and_print(out, as_json=as_json)
    if stopped:
        raise stopped
    exit_for_failures(run)
    exit_for_gate(failed=shown.failed_gate)
    exit_for_damage(damaged=shown.damaged)


def run_inside_and_show(
    settings: "StudySettings", out: Path | None, *, name: str, resume: "Resume", as_json: bool
) -> None:
    """Be one rank of a run whose workers others have started; rank 0 writes the report and prints."""
    import os
    import sys
    from contextlib import redirect_stdout

    # What torch's profiler says of itself would stand on this terminal; it is read when torch is loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from worldsize.cli.display import Display
    from worldsize.cli.results import exit_for_damage, exit_for_failures, exit_for_gate, report_and_print
    from worldsize.errors import Interrupted, RunError
    from worldsize.study.inside import run_inside

    first = os.environ.get("RANK", "0") == "0"  # who hears how far the study is
    held: list[Path] = []
    """The run folder, once rank 0 has a study in it."""
    # A user's model or data may print in this very process; stdout is for the results.
    try:
        with redirect_stdout(sys.stderr), Display(beating=first) as display:
            run = run_inside(settings, out, sys.argv, display, name=name, resume=resume, opened=held.append)
    except RunError as ended:  # stopped by the user, or a rank failed; what was measured is reported all the same
        if held and first:
            report_and_print(held[0], as_json=as_json)
        if not isinstance(ended, Interrupted):
            raise
        print(f"worldsize: {ended}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not by the interpreter's own end: a thread may be within a collective for ever.
        os._exit(ended.exit_status)
    if run is not None:
        shown = report_and_print(run.folder, as_json=as_json)
        exit_for_failures(run)
        exit_for_gate(failed=shown.failed_gate)
        exit_for_damage(damaged=shown.damaged)
