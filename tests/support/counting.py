"""A worker as a study starts it that counts, step by step, what is broadcast and which code of the instruments runs."""

import json
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist

from worldsize.ranks.turns import Turns
from worldsize.training.rank import enter
from worldsize.training.trainer import TrainedStep, Trainer

HOOKS = {"_ready", "_reduce_bucket", "_broadcast_buffers", "issued", "done", "finish"}
"""Functions that are called for a gradient or a message."""


def enter_counting(payload: dict[str, Any], turns: Turns) -> None:
    """Leave `counts<rank>.json` in the run folder: a row [synchronise, broadcasts, calls of hooks] for each step."""
    rows: list[list[int]] = []
    now = [0, 0]
    file = Path(payload["run"], f"counts{os.environ['RANK']}.json")
    broadcast, step = dist._broadcast_coalesced, Trainer.step

    def counted(*args: Any, **kwargs: Any) -> Any:
        now[0] += 1
        return broadcast(*args, **kwargs)

    def seen(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name in HOOKS and "worldsize" in code.co_filename:
            now[1] += 1

    def watched(self: Trainer, *, synchronise: bool = True) -> TrainedStep:
        now[:] = [0, 0]
        sys.setprofile(seen)
        try:
            result = step(self, synchronise=synchronise)
        finally:
            sys.setprofile(None)
        rows.append([int(synchronise), *now])
        file.write_text(json.dumps(rows))
        return result

    dist._broadcast_coalesced = counted
    Trainer.step = watched  # type: ignore[method-assign]
    enter(payload, turns)
