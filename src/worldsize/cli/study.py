"""`worldsize study`: a grid of strategies × world sizes × local batches."""

from typing import Annotated

from worldsize.cli import complete
from worldsize.cli import options as o
from worldsize.cli.flags import Flags, takes


@takes("StudySettings", "LaunchSettings", "ByHandSettings")
def study(
    flags: Flags,
    preset: Annotated[
        str | None,
        o.argument(
            "default, batch-sweep, dp-scaling, ddp-large-batch, sync-ladder, or a TOML file with the flags as keys.",
            completion=complete.study,
        ),
    ] = None,
    resume: o.Resume = False,
    anew: o.Anew = False,
    out: o.Out = None,
    as_json: o.Json = False,
    print_toml: o.PrintToml = False,
) -> None:
    """Measure how training scales over a grid of cells.

    A cell is one configuration: strategy, world size and local batch. Prints a verdict, advice and a table, and writes
    a report. Also runs under torchrun.
    """
    from worldsize.cli.run import run_and_show, run_inside_and_show, started
    from worldsize.config import LaunchSettings, StudySettings, laid_over, read_study, validated
    from worldsize.study.resuming import settings_to_resume

    again = o.resuming(resume=resume, anew=anew)
    given = laid_over(read_study(preset) if preset else {}, flags.of("StudySettings"))
    settings = settings_to_resume(out, given) if resume else validated(StudySettings, given, preset or "")
    name = preset.rsplit("/", 1)[-1].removesuffix(".toml") if preset else "study"
    launch = validated(LaunchSettings, flags.of("LaunchSettings"))
    if print_toml:
        from worldsize.cli.print_toml import print_study

        print_study(settings, as_json=as_json)
        return
    if started(flags.of("ByHandSettings")) is None:
        run_and_show(settings, out, launch, name=name, resume=again, as_json=as_json)
    else:
        run_inside_and_show(settings, out, name=name, resume=again, as_json=as_json)
