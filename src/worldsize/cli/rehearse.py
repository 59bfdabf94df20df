"""`worldsize rehearse`: the collectives of a measured run over emulated hosts, its computing replayed."""

from pathlib import Path

from worldsize.cli import options as o
from worldsize.cli.flags import Flags, takes


@takes("RehearseSettings", first="hosts link link_latency slow_link slow_rank")
def rehearse(flags: Flags, run: o.Run, out: o.Out = None, as_json: o.Json = False) -> None:
    """Run a study's collectives on more hosts, its compute replayed.

    Real: the collectives of each strategy, over emulated hosts. Replayed: all compute; ranks sleep for as long as it
    took. Prints how well they kept their times, and the tables of a study (docs/rehearse.md).
    """
    from worldsize.cli import BEGAN_S
    from worldsize.cli.rehearse_display import RehearsalDisplay
    from worldsize.cli.results import exit_for_damage, exit_for_failures, report_and_print
    from worldsize.config import RehearseSettings, validated
    from worldsize.errors import RunError
    from worldsize.results.folder import load_run, new_run_folder
    from worldsize.study.rehearse import rehearsal_of
    from worldsize.study.run import run_study

    settings, replay = rehearsal_of(run, validated(RehearseSettings, flags.of("RehearseSettings")))
    folder: Path = out or new_run_folder("rehearsal")
    stopped: RunError | None = None
    with RehearsalDisplay(settings, folder) as display:
        try:
            found = run_study(settings, folder, listener=display, began_s=BEGAN_S, replay=replay)
        except RunError as error:  # stopped by the user
            if not (folder / "study.json").exists():
                raise
            stopped, found = error, load_run(folder)
    shown = report_and_print(folder, as_json=as_json)
    if stopped:
        raise type(stopped)(str(stopped).replace("Go on with --resume", "Go on with worldsize study --resume"))
    exit_for_failures(found)
    exit_for_damage(damaged=shown.damaged)
