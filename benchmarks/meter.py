"""What a meter costs a loop, and the hook of a study of commands: µs a step and a collective, the share of 50 ms.

Beside torch.profiler, and TraceML as it comes from PyPI, on the same loop.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from common import keep, say
from worldsize.analysis.statistics import mean_estimate
from worldsize.results.records import Estimate

BLOCKS = 20
TRACEML = ("traceml-ai==0.5.0", "msgspec", "nvidia-ml-py", "pyyaml")
"""TraceML, and what it needs that is not installed anyway."""
STEP_S = 0.05
"""The step of which the meter may take LIMIT."""
LIMIT = 0.005
STEP_LIMIT_US, COLLECTIVE_LIMIT_US = 50.0, 20.0
HOOK_STEP_LIMIT_US, HOOK_COLLECTIVE_LIMIT_US = 20.0, 10.0


def run(data_dir: str | None) -> None:
    """Measure and print; exits never, for a limit that is exceeded is a result."""
    say("")
    alone = _blocks(joined=False)
    step, hook, profiler = (_more(alone, name, "bare") for name in ("meter", "hook", "profiler"))
    traced = _traced()
    joined = _blocks(joined=True)
    message, hook_message = (_of_message(joined, alone, name) for name in ("meter", "hook"))
    print("a meter in a loop, one process; loops in turn, 95 % intervals")
    print(f"  {_us(step)} µs a step with five stretches and six parameters (asked: at most {STEP_LIMIT_US:g})")
    print(f"  {step.value / STEP_S:.3%} of a step of 50 ms (asked: at most {LIMIT:.1%})")
    print(f"  the hook of a study: {_us(hook)} µs a step (asked: at most {HOOK_STEP_LIMIT_US:g})")
    print(f"  torch.profiler, 5 of 100 steps active: {_us(profiler)} µs a step")
    told = "not measured: it cannot be installed here" if traced is None else f"{_us(traced)} µs a step"
    print(f"  TraceML, its context around each step: {told}")
    print(f"  {_us(message)} µs a collective, in a group of one rank (asked: at most {COLLECTIVE_LIMIT_US:g})")
    print(f"  the hook of a study: {_us(hook_message)} µs a collective (asked: at most {HOOK_COLLECTIVE_LIMIT_US:g})")
    found = {"step_s": step, "hook_step_s": hook, "profiler_step_s": profiler}
    found |= {"collective_s": message, "hook_collective_s": hook_message}
    found |= {} if traced is None else {"traceml_step_s": traced}
    keep("meter", {name: value.model_dump() for name, value in found.items()})


def _of_message(joined: dict[str, Any], alone: dict[str, list[float]], name: str) -> Estimate:
    """What a collective takes longer, of a step with several: without what the step itself does."""
    per_step = np.array(joined[name]) - np.array(joined["bare"])
    one_step = float(np.mean(np.array(alone[name]) - np.array(alone["bare"])))
    return mean_estimate((per_step - one_step) / joined["messages"])


def _blocks(*, joined: bool) -> dict[str, Any]:
    """Seconds a step of each variant, block by block; what `metered_loop.py` says.

    `joined`: with collectives, in a group of one rank. Between two, each call waits for the other rank, which varies
    by more than a hook takes.
    """
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).parent / "metered_loop.py"
        command = [sys.executable, *(torchrun if joined else ()), str(script), folder, str(BLOCKS)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # torch's profiler says a lot
        if done.returncode:
            raise RuntimeError(done.stderr)
        found: dict[str, Any] = json.loads((Path(folder) / "seconds.json").read_text())
    return found


def _traced() -> Estimate | None:
    """What TraceML's context costs a step, in a process of its launcher; None where it cannot be installed."""
    with tempfile.TemporaryDirectory() as folder:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", f"{folder}/site", *TRACEML)
        if subprocess.run(pip, check=False, capture_output=True).returncode:
            return None
        loop = str(Path(__file__).parent / "metered_loop.py")
        run = (f"{folder}/site/bin/traceml", "run", loop, "--logs-dir", f"{folder}/logs")
        command = (sys.executable, *run, "--args", folder, str(BLOCKS), "TRACEML")
        paths = os.pathsep.join((f"{folder}/site", *sys.path))
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": paths}
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return _more(json.loads((Path(folder) / "seconds.json").read_text()), "traceml", "bare")


def _more(samples: dict[str, list[float]], with_it: str, without: str) -> Estimate:
    return mean_estimate(np.array(samples[with_it]) - np.array(samples[without]))


def _us(value: Estimate) -> str:
    low, high = (1e6 * each if each is not None else float("nan") for each in (value.low, value.high))
    return f"{1e6 * value.value:.1f} [{low:.1f}, {high:.1f}]"
