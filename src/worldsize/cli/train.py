"""`worldsize train`: one configuration."""

from worldsize.cli import options as o
from worldsize.cli.flags import ONE_CELL, Flags, takes

OF_STUDIES = """global_batch growth largest_batch resolution budget target_interval warmup_steps block_steps
    baseline allow_oversubscribed seeds target_accuracy accuracy_epochs accuracy_batch accuracy_base_batch
    script samples_per_step keep_outputs in_place tuned one_at_a_time fail_above"""
"""What is of use only for several cells or trainings."""


@takes("TrainSettings", "LaunchSettings", "ByHandSettings", without=OF_STUDIES, first="epochs", **ONE_CELL)
def train(
    flags: Flags,
    resume: o.Resume = False,
    anew: o.Anew = False,
    out: o.Out = None,
    as_json: o.Json = False,
) -> None:
    """Train one configuration and report on it.

    Trains one epoch by default. Also runs under torchrun.
    """
    from worldsize.cli.run import run_and_show, run_inside_and_show, started
    from worldsize.config import LaunchSettings, TrainSettings, validated
    from worldsize.study.resuming import settings_to_resume

    workers = started(flags.of("ByHandSettings"))
    again = o.resuming(resume=resume, anew=anew)
    given = flags.of("TrainSettings")
    launch = validated(LaunchSettings, flags.of("LaunchSettings"))
    if not resume and "world_sizes" not in given and (workers is not None or launch.nodes or launch.workers_per_node):
        given["world_sizes"] = (workers or launch.workers,)
    settings = settings_to_resume(out, given) if resume else validated(TrainSettings, given).study
    if workers is None:
        run_and_show(settings, out, launch, name="train", resume=again, as_json=as_json)
    else:
        run_inside_and_show(settings, out, name="train", resume=again, as_json=as_json)
