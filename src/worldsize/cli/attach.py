"""`worldsize attach`: follow a study that was submitted to a cluster, from any login shell."""

from worldsize.cli import options as o


def attach(run: o.Run, as_json: o.Json = False) -> None:
    """Follow a study that was submitted to Slurm.

    When it ends, writes its report and prints its results.
    """
    from worldsize.cli.submit import follow_and_show
    from worldsize.errors import UsageError
    from worldsize.launch.slurm.files import submitted

    jobs = submitted(run)
    if not jobs:
        raise UsageError(f"no job was submitted for {run}; `worldsize report` shows what is in a run folder")
    follow_and_show(run, jobs[-1].job_id, as_json=as_json)
