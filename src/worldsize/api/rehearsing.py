"""What `worldsize rehearse` does, as a function, beside those of commands.py."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from worldsize.api.options import PathLike, RehearseOptions
    from worldsize.api.run import Run


def rehearse(
    run: PathLike,
    *,
    hosts: int,
    out: PathLike | None = None,
    report: bool = True,
    progress: bool = True,
    **settings: Unpack[RehearseOptions],
) -> Run:
    """Rehearse a measured run over emulated hosts, its computing replayed; return the run of the rehearsal.

    The settings are the fields of `config.RehearseSettings`. A cell whose ranks did not keep their times is in the
    result with its reason. Raises the errors of `worldsize.errors`: UsageError for what cannot be rehearsed, or not
    here.
    """
    from worldsize.api.run import Run
    from worldsize.cli.rehearse_display import RehearsalDisplay
    from worldsize.config import RehearseSettings, validated
    from worldsize.report.write import write_report
    from worldsize.results.folder import new_run_folder
    from worldsize.study.rehearse import rehearsal_of
    from worldsize.study.run import run_study

    wanted, replay = rehearsal_of(Path(run), validated(RehearseSettings, {"hosts": hosts, **settings}))
    folder = Path(out) if out else new_run_folder("rehearsal")
    with ExitStack() as stack:
        listener = stack.enter_context(RehearsalDisplay(wanted, folder)) if progress else None
        found = Run.of(run_study(wanted, folder, listener=listener, replay=replay))
    if report:
        write_report(folder, found.analysis)
    return found
