"""A link that goes down between two emulated hosts while they train."""

import os
import subprocess
from pathlib import Path

from commands import finish, processes_of, worker
from failing import DATA, PAIR, Place, is_kept, wait_for
from rights import needs_rights
from soak_watch import networks

pytestmark = needs_rights

TRAIN = (
    *("train", *DATA, "--strategy", "all-reduce", "--world-size", 2, "--batch-size", 8, "--hosts", 2),
    *("--epochs", 3, "--checkpoint-steps", 2, "--out", "run", "--hang-timeout", "8s"),
)


def test_a_link_taken_down_in_the_middle(tmp_path: Path) -> None:
    """No rank hangs by itself, and nobody's connection breaks: the link is looked at."""
    place = Place(tmp_path)
    process = place.start(*TRAIN)
    wait_for(lambda: len(place.lines()) >= 5 or process.poll() is not None, "some steps")
    assert process.poll() is None, process.communicate()
    switch = worker(tmp_path, 0).parent().pid
    made = networks_of(place)
    assert len(made) == 3, "the switch and two hosts"
    subprocess.run(["nsenter", "--target", str(switch), "--net", "ip", "link", "set", "host1", "down"], check=True)
    seen = place.written()
    done = finish(process, tmp_path)
    assert done.returncode == 1
    error = place.record()["error"]
    assert (error["kind"], error["rank"]) == ("Hang", 1)
    assert "the link of rank 1 is down" in error["message"]
    assert is_kept(seen, place.written())
    assert place.left() == []
    wait_for(lambda: not networks() & made, "no network left")
    process = place.start("train", "--resume", "--out", "run", SLOW_S="0.02")
    wait_for(lambda: len(networks_of(place)) == 3 or process.poll() is not None, "networks of its own")
    made = networks_of(place)
    resumed = finish(process, tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert place.record(PAIR)["state"] == "complete"
    assert sorted(place.losses()) == list(range(24))
    assert is_kept(seen, place.written())
    assert len(made) == 3
    wait_for(lambda: not networks() & made, "no network left")


def networks_of(place: Place) -> set[str]:
    """Those that its processes live in, but for ours: other tests may have some beside."""
    return networks(*(process.pid for process in processes_of(place.folder))) - networks(os.getpid())
