"""Ask a process with torch what the study will find: data, model, devices (training/probe.py).

Of commands that is commands/look.py.
"""

import json
from typing import Any

from worldsize.config import Question, Room, StudySettings
from worldsize.errors import RunError, UsageError
from worldsize.launch.cluster import Cluster, ThisMachine
from worldsize.results.records import Findings


def probe(settings: StudySettings, cluster: Cluster | None = None) -> Findings:
    """Look at data, model and devices in a process of its own, where the workers will run.

    Raises UsageError with the message of what is wrong, RunError if the process itself fails.
    """
    cluster = cluster or ThisMachine()
    question = Question(settings=settings, room=room_of(cluster))
    looks = "worldsize.commands.look" if settings.script else "worldsize.training.probe"
    status, said = cluster.ask(looks, question.model_dump_json())
    answer = _last_object(said)
    if answer is None:
        raise RunError(f"the look at data and model ended with status {status}; see above")
    if "error" in answer:
        raise (
            UsageError(answer["error"])
            if answer["exit_status"] == UsageError.exit_status
            else RunError(answer["error"])
        )
    return Findings.model_validate(answer)


def room_of(cluster: Cluster) -> Room:
    """How many workers the nodes of a cluster take, or the cores of this machine."""
    if cluster.nodes:
        return Room(on_nodes=sum(node.processes for node in cluster.nodes))
    return Room(cores=cluster.cores.threads)


def _last_object(text: str) -> dict[str, Any] | None:
    lines = text.strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        return None
    return answer
