"""`make bench`: what worldsize claims of its own speed, one file per claim.

Ratios within one run, variants in turn, with 95 % intervals. No other work may run meanwhile. Without a name those run
that take minutes; `--all` (`make bench-all`) runs the others as well, which takes most of a day.
"""

import argparse
import atexit
import importlib
import multiprocessing.util
import signal
import time
import traceback

from common import origin
from worldsize.errors import Interrupted, UsageError

QUICK = (
    "pipeline",
    "layout",
    "polling",
    "meter",
    "audit",
    "large_run",
    "compare_known",
    "cost_model",
)
LONG = (
    "training",
    "instruments",
    "control_variate",
    "sampling",
    "start",
    "slow_link",
    "slow_link_rungs",
    "rung_accuracy",
    "rehearse",
    "diagnosis",
    "predict",
    "predict_rehearsed",
    "interval_coverage",
    "compare_aa",
    "script_gate",
    "clock",
    "clock_models",
    "accuracy",
    "soak",
    "kills",
)
NAMES = QUICK + LONG


def main() -> int:
    """Run the benchmarks that were asked for, one after the other; 1 if one of them broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default the first {len(QUICK)}"
    )
    parser.add_argument("--all", action="store_true", help="those that take long as well")
    parser.add_argument("--data-dir", help="folder of the real CIFAR-10; without it images are synthetic")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    if arguments.all and arguments.names:
        parser.error("give names or --all, not both")
    names = arguments.names or (NAMES if arguments.all else QUICK)
    origin()
    broken = [name for name in names if not _ran(name, arguments.data_dir)]
    if broken:
        print(f"broken: {', '.join(broken)}")
    if names == QUICK:
        print(f"not run, for they take long: {', '.join(LONG)} (by name, or all of them: make bench-all)")
    return 1 if broken else 0


def _ran(name: str, data_dir: str | None) -> bool:
    """Whether a benchmark came to its end, or this machine has not what it needs; the others go on.

    Each has a process of its own: what one sets, as its cores or torch's threads, would slow those after it.
    """
    process = multiprocessing.get_context("fork").Process(target=_run, args=(name, data_dir), name=name)
    process.start()
    before = signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    try:
        process.join()
    except KeyboardInterrupt:  # Ctrl-C: it got the signal too, and ends by it
        process.join()
    signal.signal(signal.SIGTERM, before)
    if process.exitcode in (Interrupted.exit_status, -signal.SIGTERM):
        raise SystemExit(Interrupted.exit_status)
    return process.exitcode == 0


def _run(name: str, data_dir: str | None) -> None:
    began_s = time.monotonic()
    # multiprocessing ends a forked process without them, and they remove temporary folders.
    multiprocessing.util.Finalize(None, atexit._run_exitfuncs, exitpriority=0)
    try:
        importlib.import_module(name).run(data_dir)
    except UsageError as error:
        print(f"{name}: not measured: {error}")
        return
    except (Interrupted, KeyboardInterrupt) as stopped:
        print(f"{name}: {str(stopped) or 'interrupted'}")
        raise SystemExit(Interrupted.exit_status) from None
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None
    print(f"{name}: took {(time.monotonic() - began_s) / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
