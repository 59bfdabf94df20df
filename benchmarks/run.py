"""`make bench`: speed of the input pipeline, memory layout, polling and training; the price of the instruments.

Ratios within one run, variants in turn, with 95 % intervals. No other work may run meanwhile.
"""

import argparse
import importlib

NAMES = ("pipeline", "layout", "polling", "training", "instruments")


def main() -> None:
    """Run the benchmarks that were asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}; default all")
    parser.add_argument("--data-dir", help="folder of the real CIFAR-10; without it images are synthetic")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    for name in arguments.names:
        importlib.import_module(name).run(arguments.data_dir)


if __name__ == "__main__":
    main()
