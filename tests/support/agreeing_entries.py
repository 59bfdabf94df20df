"""An entry of jobs in which rank 0 decides, and the other ranks hear of it (study/agreeing.py)."""

from pathlib import Path
from typing import Any

import torch.distributed as dist

from launch_entries import Answer
from worldsize.errors import UsageError
from worldsize.ranks.turns import Turns
from worldsize.study.agreeing import from_rank_0, locked


def deciding(payload: dict[str, Any], turns: Turns) -> None:
    """Say what this rank hears of each folder that is to be held, and of what rank 0 alone finds."""
    dist.init_process_group("gloo")
    said: list[Any] = [from_rank_0(lambda: [dist.get_rank(), None, 0.5])]
    for folder in payload["folders"]:
        try:
            with locked(Path(folder)):
                said.append("held")
        except UsageError as error:
            said.append(str(error))
    turns.reply(Answer(said=said))
    turns.next()
