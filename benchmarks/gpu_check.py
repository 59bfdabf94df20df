"""`make gpu-check`: the paths that only a GPU can run, each as a user would start it.

Copies, clock, yardsticks and memory of the device (gpu_parts.py). Every strategy at world size 1 (and at as many as
there are GPUs), bf16, a profile, a short budget, the batch sweep to out-of-memory, and one epoch of ResNet-18. Says
plainly what passed and what did not; exit status 1 if anything failed, 2 without a GPU.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from common import keep
from gpu_parts import check_parts

STRATEGIES = "single,data-parallel,gather-scatter,all-reduce,ddp"
WORLDSIZE = [sys.executable, "-m", "worldsize"]


def main() -> int:
    """Run all checks; the results go to benchmarks/results/gpu.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="folder of the real CIFAR-10; without it images are synthetic")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing was checked", file=sys.stderr)
        return 2
    data = ["--data", "cifar10", "--data-dir", arguments.data_dir] if arguments.data_dir else ["--data", "synthetic"]
    sizes = ",".join(str(n) for n in sorted({1, min(2, torch.cuda.device_count()), torch.cuda.device_count()}))
    timing = ["--steps", "60", "--block-steps", "10", "--warmup-steps", "10", "--batch-sizes", "128"]
    grid = ["study", "--strategies", STRATEGIES, "--world-sizes", sizes, *timing, *data]
    checks = {
        "strategies-fp32": grid,
        "strategies-bf16": [*grid, "--precision", "bf16"],
        "budget": ["study", "--strategies", "single,ddp", "--budget", "60s", "--batch-sizes", "128", *data],
        "profile": ["train", "--strategy", "ddp", "--steps", "10", "--batch-size", "128", "--profile", *data],
        "batch-sweep": ["sweep", "--batch-size", "512", "--steps", "10", "--precision", "bf16", *data],
        "one-epoch": ["train", "--epochs", "2", "--batch-size", "512", "--precision", "bf16", *data],
    }
    with tempfile.TemporaryDirectory() as folder:
        results = {"parts": _parts_checked()}
        results |= {name: _check(command, Path(folder) / name) for name, command in checks.items()}
    for name, result in results.items():
        print(f"{'ok    ' if result['passed'] else 'FAILED'}  {name}")
        for cell, found in result["cells"].items():
            print(f"        {cell}: {found}")
    keep("gpu", {"device": torch.cuda.get_device_name(), "checks": results})
    return 0 if all(result["passed"] for result in results.values()) else 1


def _parts_checked() -> dict[str, Any]:
    found = check_parts(torch.device("cuda", torch.cuda.current_device()))
    return {"passed": not any(found.values()), "cells": {name: wrong or "right" for name, wrong in found.items()}}


def _check(command: list[str], out: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*WORLDSIZE, *command, "--out", str(out), "--json"], capture_output=True, text=True, check=False
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {"passed": False, "cells": {"-": done.stderr.strip()[-2000:]}}
    cells = {name: _found(cell) for name, cell in answer["cells"].items()}
    passed = done.returncode == 0 and all(_is_of_a_gpu(cell) for cell in answer["cells"].values())
    return {"passed": passed, "cells": cells, "verdict": answer["verdict"]}


def _is_of_a_gpu(cell: dict[str, Any]) -> bool:
    """Whether a cell ran there, its yardstick is of its own arithmetic, and reserved memory stands beside allocated."""
    if cell["placement"]["device"] != "cuda":
        return False
    if cell["error"] or not cell["summary"]:
        return True
    own = ("bf16",) if cell["settings"]["precision"] == "bf16" else ("fp32", "tf32")
    return cell["matmul_precision"] in own and cell["peak_reserved_bytes"] >= cell["peak_memory_bytes"]


def _found(cell: dict[str, Any]) -> str:
    if cell["error"]:
        return f"{cell['state']}: {cell['error']['kind']}: {cell['error']['message']}"
    summary = cell["summary"]
    if summary is None:
        return "fits, not timed"
    text = f"{summary['samples_per_s']['value']:.0f} samples/s, parts {_parts(summary['parts_s'])}"
    if cell["evaluations"]:
        text += f", test accuracy {cell['evaluations'][-1]['test_accuracy']:.1%}"
    return text


def _parts(parts: dict[str, float]) -> str:
    return ", ".join(f"{name.removesuffix('_s')} {value * 1e3:.2f} ms" for name, value in parts.items())


if __name__ == "__main__":
    sys.exit(main())
