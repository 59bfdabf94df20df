"""Ask a process with torch what the study will find: its data, its model, its devices (training/probe.py)."""

import json
import subprocess
import sys
from typing import Any

from worldsize.config import StudySettings
from worldsize.errors import RunError, UsageError
from worldsize.results.records import Findings


def probe(settings: StudySettings) -> Findings:
    """Look at data, model and devices in a process of its own.

    Raises UsageError with the message of what is wrong, RunError if the process itself fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "worldsize.training.probe"],
        input=settings.model_dump_json(),
        stdout=subprocess.PIPE,  # stderr stays the user's: a download shows its progress there
        text=True,
        check=False,
    )
    answer = _last_object(done.stdout)
    if answer is None:
        raise RunError(f"the look at data and model ended with status {done.returncode}; see above")
    if "error" in answer:
        raise (
            UsageError(answer["error"])
            if answer["exit_status"] == UsageError.exit_status
            else RunError(answer["error"])
        )
    return Findings.model_validate(answer)


def _last_object(text: str) -> dict[str, Any] | None:
    lines = text.strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        return None
    return answer
