"""`worldsize sweep`: the largest batch that fits, and the smallest that is worth it."""

from worldsize.cli import options as o
from worldsize.cli.flags import ONE_CELL, Flags, takes

OF_SWEEPS = """model data train_samples data_dir precision compile seed loader strategy world_size steps epochs
    find_unused_parameters accumulate
    backend threads_per_worker hosts link link_latency"""
FIRST = "batch_size growth largest_batch resolution memory_limit hang_timeout"
"""What a sweep is about."""


@takes("SweepSettings", only=f"{OF_SWEEPS} {FIRST}", first=FIRST, **ONE_CELL)
def sweep(
    flags: Flags,
    resume: o.Resume = False,
    anew: o.Anew = False,
    out: o.Out = None,
    as_json: o.Json = False,
) -> None:
    """Find the largest local batch that fits, and the best one.

    Grows the batch until memory or the data run out. Reports the largest batch, peak memory, step time, and the knee:
    the smallest batch within 5 % of the best throughput.
    """
    from worldsize.cli.run import run_and_show
    from worldsize.config import LaunchSettings, SweepSettings, validated
    from worldsize.study.resuming import settings_to_resume

    again = o.resuming(resume=resume, anew=anew)
    given = flags.of("SweepSettings")
    settings = settings_to_resume(out, given) if resume else validated(SweepSettings, given).study
    run_and_show(settings, out, LaunchSettings(), name="sweep", resume=again, as_json=as_json)
