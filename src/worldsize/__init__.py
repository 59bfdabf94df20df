"""worldsize tells how synchronous data-parallel training scales.

    import worldsize
    run = worldsize.study(strategies=("single", "ddp"), world_sizes=(1, 2))

    print(run.verdict)

What the commands do is callable here (docs/python.md). Importing this imports no torch.
"""

from typing import TYPE_CHECKING, Any

# Loaded first, while their names are free: the first import of a package of such a name would replace the function.
from worldsize import report as _report_package  # noqa: F401
from worldsize import study as _study_package  # noqa: F401
from worldsize.api.auditing import audit
from worldsize.api.commands import comm, compare, load_run, meter, predict, report, study, sweep, train, verify
from worldsize.api.rehearsing import rehearse
from worldsize.errors import (
    DataError,
    FactoryError,
    Interrupted,
    LossNotFiniteError,
    OutputError,
    RunError,
    SettingsError,
    UnknownNameError,
    UsageError,
    WorkerError,
    WorldsizeError,
)

if TYPE_CHECKING:
    from worldsize.api.run import Run

__version__ = "0.1.0"

__all__ = [
    "DataError",
    "FactoryError",
    "Interrupted",
    "LossNotFiniteError",
    "OutputError",
    "Run",
    "RunError",
    "SettingsError",
    "UnknownNameError",
    "UsageError",
    "WorkerError",
    "WorldsizeError",
    "__version__",
    "audit",
    "comm",
    "compare",
    "load_run",
    "meter",
    "predict",
    "rehearse",
    "report",
    "study",
    "sweep",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    """`worldsize.Run` loads what makes tables and charts: only where it is asked for."""
    if name == "Run":
        from worldsize.api.run import Run

        return Run
    raise AttributeError(f"module 'worldsize' has no attribute {name!r}")
