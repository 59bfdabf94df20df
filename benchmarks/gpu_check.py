"""`make gpu-check`: the paths that only a GPU can run, each as a user would start it.

Copies, clock, yardsticks and memory of the device (gpu_parts.py). Every strategy at world size 1 (and at as many as
there are GPUs), bf16, torch.compile, a profile, a short budget, the batch sweep to out-of-memory, one epoch of
ResNet-18, and trainings whose parts were planted (gpu_planted.py), also in frameworks (gpu_adapted.py). Two ranks over
NCCL run where there is one GPU as well: they are two nodes to NCCL, share it and talk through sockets, so their results
are right and their times mean nothing. Says plainly what passed and what did not; exit status 1 if
anything failed, 2 without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

import worldsize
from common import keep, say
from gpu_parts import check_parts
from gpu_planted import BACKWARD_MS, BATCH_MS, FORWARD_MS

ALL = (
    "single,data-parallel,gather-scatter,all-reduce,ddp,bucketed,ddp-fp16,ddp-bf16,powersgd,int8,bucketed-fp16,"
    "bucketed-bf16,bucketed-powersgd,bucketed-int8,local-sgd,diloco,fsdp"
)
ALONE = "single,data-parallel,gather-scatter,all-reduce,ddp,bucketed,local-sgd,fsdp"
"""Where there is one GPU: others do the same there as one of these, for a bucket is its own mean."""
SEVERAL = "gather-scatter,all-reduce,ddp,bucketed,ddp-fp16,powersgd,bucketed-powersgd,int8,bucketed-int8,local-sgd,fsdp"
"""Those that exchange gradients or weights, in each of their ways."""
TOGETHER = ("two-ranks", "compile", "profile")
"""Checks whose times nobody reads; they run first, beside each other."""
WORLDSIZE = [sys.executable, "-m", "worldsize"]
PLANTED, ADAPTED = (Path(__file__).parent / name for name in ("gpu_planted.py", "gpu_adapted.py"))
NEAR, NEAR_S = 0.05, 0.0005
"""By how much a planted part may be off: a twentieth, and half a millisecond of launching."""
Check = Callable[[Path], dict[str, Any]]


def main() -> int:
    """Run all checks, or those that are named; the results go to a file of benchmarks/results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="folder of the real CIFAR-10; without it images are synthetic")
    parser.add_argument("--results", default="gpu", help="name of the file in benchmarks/results [default: gpu]")
    parser.add_argument("names", nargs="*", help="checks to run; all of them if none is named")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing was checked", file=sys.stderr)
        return 2
    data = ["--data", "cifar10", "--data-dir", arguments.data_dir] if arguments.data_dir else ["--data", "synthetic"]
    checks = _checks(data)
    names = arguments.names or list(checks)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(TOGETHER)) as together:
        beside = {name: together.submit(checks[name], Path(folder) / name) for name in names if name in TOGETHER}
        for name in sorted(names, key=lambda name: name not in TOGETHER):
            say(f"  {name}")
            results[name] = beside[name].result() if name in beside else checks[name](Path(folder) / name)
            _print(name, results[name])
            # What was checked is kept also where this is broken off.
            keep(arguments.results, {"device": torch.cuda.get_device_name(), "checks": results})
    return 0 if all(result["passed"] for result in results.values()) else 1


def _print(name: str, result: dict[str, Any]) -> None:
    print(f"{'ok    ' if result['passed'] else 'FAILED'}  {name}", flush=True)
    for cell, found in result["cells"].items():
        print(f"        {cell}: {found}", flush=True)


def _checks(data: list[str]) -> dict[str, Check]:
    gpus = torch.cuda.device_count()
    sizes = ",".join(str(n) for n in sorted({1, min(2, gpus), gpus}))
    timing = ["--steps", "40", "--block-steps", "10", "--warmup-steps", "10", "--batch-sizes", "128", *data]
    strategies = ALONE if gpus == 1 else ALL
    two = ["study", "--strategies", SEVERAL, "--world-sizes", "2", "--batch-sizes", "8", "--steps", "4", *data]
    return {
        "parts": lambda _: _parts_checked(),
        "strategies-fp32": _command("study", "--strategies", strategies, "--world-sizes", sizes, *timing),
        "strategies-bf16": _command(
            "study", "--strategies", "single,ddp,fsdp", "--world-sizes", sizes, "--precision", "bf16", *timing
        ),
        "compile": _command("study", "--strategies", "single,ddp", "--world-sizes", sizes, "--compile", *timing),
        "budget": _command("study", "--strategies", "single,ddp", "--budget", "30s", "--batch-sizes", "128", *data),
        "profile": _command("train", "--strategy", "ddp", "--steps", "10", "--batch-size", "128", "--profile", *data),
        "batch-sweep": _command("sweep", "--batch-size", "8192", "--steps", "5", *data),
        "one-epoch": _command("train", "--epochs", "2", "--batch-size", "512", "--precision", "bf16", *data),
        "two-ranks": _command(*two) if gpus > 1 else lambda out: _on_two_nodes(two, out),
        "planted-compute-bound": lambda out: _planted(out, batch_ms=1),
        "planted-loader-bound": lambda out: _planted(out, batch_ms=30),
        "planted-script-compute-bound": lambda out: _planted(out, batch_ms=1, script=True),
        "planted-script-loader-bound": lambda out: _planted(out, batch_ms=30, script=True),
        **{
            f"planted-{adapter}-{bound}": partial(_adapted, batch_ms=batch_ms, adapter=adapter)
            for adapter in ("lightning", "hugging-face", "accelerate")
            for bound, batch_ms in (("compute-bound", 1), ("loader-bound", 30))
        },
    }


def _parts_checked() -> dict[str, Any]:
    found = check_parts(torch.device("cuda", torch.cuda.current_device()))
    return {"passed": not any(found.values()), "cells": {name: wrong or "right" for name, wrong in found.items()}}


def _command(*command: str) -> Check:
    """A command that ends well, whose cells were on a GPU and train as they should."""
    return lambda out: _judged(*_run(command, out))


def _on_two_nodes(command: list[str], out: Path) -> dict[str, Any]:
    """The command as on two nodes that share a GPU: NCCL takes processes of two hosts for such that cannot."""
    meeting = ["--master-ip", "127.0.0.1", "--master-port", "29581", "--num-nodes", "2", "--rank"]
    log = out.with_suffix(".log")
    with log.open("w") as written:
        second = subprocess.Popen(
            [*WORLDSIZE, *command, *meeting, "1", "--out", str(out.with_suffix(".second"))],
            stdout=written,
            stderr=written,
            env={**os.environ, "NCCL_HOSTID": "second"},
        )
        try:
            answer, error = _run([*command, *meeting, "0"], out, NCCL_HOSTID="first")
            second.wait(timeout=60)
        finally:
            second.kill()
    return _judged(answer, error or ("" if second.returncode == 0 else log.read_text()[-2000:]))


def _planted(out: Path, *, batch_ms: float, script: bool = False) -> dict[str, Any]:
    """The parts of a step against those that were planted."""
    if script:
        answer, error = _run(
            ["study", "--script", f"{PLANTED} {batch_ms}", "--world-sizes", "1", "--budget", "15s"], out
        )
    else:
        command = ["train", "--workload", f"{PLANTED}:Planted", "--steps", "60", "--batch-size", "16"]
        answer, error = _run(command, out, **{BATCH_MS: str(batch_ms)})
    result = _judged(answer, error)
    computing_ms = FORWARD_MS + BACKWARD_MS
    truth_ms = {
        "step_s": max(batch_ms, computing_ms),
        "data_wait_s": max(0, batch_ms - computing_ms),
        "forward_s": FORWARD_MS,
        "backward_s": BACKWARD_MS,
    }
    return result | _against(truth_ms, _parts_of(out)) if result["passed"] else result


def _adapted(out: Path, *, batch_ms: float, adapter: str) -> dict[str, Any]:
    """The same under a framework, metered by its adapter, against the step without the meter and what was planted."""
    log = out.with_suffix(".log")
    with log.open("w") as written:
        command = [sys.executable, str(ADAPTED), adapter, str(batch_ms), str(out)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=written, text=True, check=False)
    if done.returncode:
        return {"passed": False, "cells": {"-": log.read_text()[-2000:]}}
    result = _judged(*_run(["report", str(out)]))
    if not result["passed"]:
        return result
    parts, bare_ms = _parts_of(out), float(done.stdout.split()[-1]) * 1e3
    truth_ms = {"step_s": bare_ms, "forward_s": FORWARD_MS, "backward_s": BACKWARD_MS}
    # What the framework does itself between two batches is part of the rest, and nobody knows how long that takes.
    rest_ms = bare_ms - FORWARD_MS - BACKWARD_MS
    waited = parts["data_wait_s"] <= rest_ms / 1e3 + NEAR_S
    compared = _against(truth_ms, parts)
    compared["cells"]["data_wait_s"] = f"{parts['data_wait_s'] * 1e3:.2f} ms, should be {rest_ms:.2f} at most"
    return result | compared | {"passed": compared["passed"] and waited}


def _parts_of(out: Path) -> dict[str, float]:
    parts = worldsize.load_run(out).tables["parts"].row(0, named=True)
    return {**parts, "step_s": parts["mean_step_s"]}


def _against(truth_ms: dict[str, float], found: dict[str, float]) -> dict[str, Any]:
    """Whether each part is what it should be, in words and in seconds."""
    truth = {name: true / 1e3 for name, true in truth_ms.items()}
    wrong = [name for name, true in truth.items() if abs((found[name] or 0.0) - true) > NEAR * true + NEAR_S]
    cells = {name: f"{(found[name] or 0.0) * 1e3:.2f} ms, should be {true * 1e3:.2f}" for name, true in truth.items()}
    return {"passed": not wrong, "cells": cells, "truth_s": truth, "found_s": {name: found[name] for name in truth}}


def _run(
    command: list[str] | tuple[str, ...], out: Path | None = None, **environment: str
) -> tuple[dict[str, Any], str]:
    """What a command answers as JSON, and what it says where it ends badly."""
    done = subprocess.run(
        [*WORLDSIZE, *command, *(["--out", str(out)] if out else []), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    try:
        return json.loads(done.stdout), "" if done.returncode == 0 else f"exit status {done.returncode}"
    except ValueError:
        return {"cells": {}}, done.stderr.strip()[-2000:] or "no answer"


def _judged(answer: dict[str, Any], error: str) -> dict[str, Any]:
    cells = {name: _found(cell) for name, cell in answer["cells"].items()}
    if error:
        cells["-"] = error
    wrong = [each["message"] for each in answer.get("warnings", []) if each["code"] == "not-the-reference"]
    cells |= {f"wrong {number}": text for number, text in enumerate(wrong)}
    passed = not error and not wrong and all(_is_of_a_gpu(cell) for cell in answer["cells"].values())
    return {"passed": passed, "cells": cells, "verdict": answer.get("verdict")}


def _is_of_a_gpu(cell: dict[str, Any]) -> bool:
    """Whether a cell ran there, its yardstick is of its own arithmetic, and reserved memory stands beside allocated."""
    if cell["placement"] is None:  # metered: its parts tell, for on the host's clock they are a tenth of a millisecond
        return True
    if cell["placement"]["device"] != "cuda":
        return False
    if cell["error"] or not cell["summary"]:
        return True
    own = ("bf16",) if cell["settings"].get("precision") == "bf16" else ("fp32", "tf32", None)
    return cell["matmul_precision"] in own and (cell["peak_reserved_bytes"] or 0) >= (cell["peak_memory_bytes"] or 0)


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
