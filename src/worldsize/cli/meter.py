"""`worldsize meter`: a command of a person's own as it is, metered for as long as it runs."""

from typing import Annotated

from worldsize.cli import options as o

Words = Annotated[list[str], o.argument("The command, behind `--`: `-- torchrun --nproc-per-node 2 train.py`.")]


def meter(words: Words, out: o.Out = None, samples_per_step: o.SamplesPerStep = None, as_json: o.Json = False) -> None:
    """Run a command of your own as it is, and meter its training.

    No line of it changes, and nothing runs beside it. `worldsize scale` joins the runs of several numbers of workers.
    """
    import typer

    from worldsize.cli.results import exit_for_damage, report_and_print
    from worldsize.results.folder import new_run_folder
    from worldsize.study.metered_command import run_metered

    place = out or new_run_folder("meter")
    status = run_metered(words, place, samples_per_step)
    exit_for_damage(damaged=report_and_print(place, as_json=as_json).damaged)
    if status:
        raise typer.Exit(1)
