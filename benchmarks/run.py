"""`make bench`: what worldsize claims of its own speed, one file per claim.

Ratios within one run, variants in turn, with 95 % intervals. No other work may run meanwhile.
"""

import argparse
import importlib

from worldsize.errors import UsageError

NAMES = (
    "start",
    "control_variate",
    "pipeline",
    "layout",
    "polling",
    "training",
    "instruments",
    "meter",
    "slow_link",
    "slow_link_rungs",
    "rung_accuracy",
    "rehearse",
    "diagnosis",
    "predict",
    "predict_rehearsed",
    "sampling",
    "interval_coverage",
    "compare_aa",
    "compare_known",
    "script_gate",
    "audit",
    "large_run",
    "accuracy",
    "soak",
)


def main() -> None:
    """Run the benchmarks that were asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}; default all")
    parser.add_argument("--data-dir", help="folder of the real CIFAR-10; without it images are synthetic")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    for name in arguments.names:
        try:
            importlib.import_module(name).run(arguments.data_dir)
        except UsageError as error:  # this machine has not what it needs; the others go on
            print(f"{name}: not measured: {error}")


if __name__ == "__main__":
    main()
