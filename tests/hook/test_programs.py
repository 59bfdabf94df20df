"""Programs with the hook in them: what it writes of them, and that they go on whatever becomes of it."""

import json
import signal
from pathlib import Path

import pytest

from hooked import TRAINING, Ran, ran

FORKS = """
import multiprocessing
def train():
    for _ in range(50): step()
    torch.save(model, os.devnull)
for _ in range(4): step()
child = os.fork()
if child == 0:
    train()
    sys.exit(0)  # with all that Python does at its end
os.waitpid(child, 0)
other = multiprocessing.get_context("fork").Process(target=train)
other.start()
other.join()
for _ in range(3): step()
print("ENDED", other.exitcode)
"""


def test_a_process_that_is_forked_writes_nothing(tmp_path: Path) -> None:
    found = ran(tmp_path, TRAINING + FORKS)
    assert (found.status, found.trouble) == (0, "")
    assert "ENDED 0" in found.out
    marks = found.marks()
    assert [step.number for step in marks.steps] == [*range(1, 8)]
    assert all(step.samples == 6 for step in marks.steps)
    assert [step.begin_ns for step in marks.steps[1:]] == [step.end_ns for step in marks.steps[:-1]]
    facts = marks.facts()
    assert (facts["pid"], facts["rank"], facts["world_size"], facts["synchronises"]) == (marks.pid, 0, 1, "nothing")
    assert found.files == {"stack", "marks", "json"}
    assert len(list(found.folder.iterdir())) == 3, "nothing of a child"


BROKEN: dict[str, tuple[str, str, int]] = {
    "what it calls of itself": ("import _worldsize_hook.watch as ours\nours.leading = None\n", "TypeError", 0),
    "its file has no room": (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n",
        "OSError: [Errno 27] File too large",
        0,
    ),
    "it cannot write its facts": (
        "import _worldsize_hook.program as ours\ndef fail(*_): raise ValueError('no boot')\nours._own_modules = fail\n",
        "ValueError: no boot",
        1,
    ),
}
SAYS = """
for _ in range(10): step()
print("WEIGHTS", model.weight.sum().item().hex())
print(torch.Tensor.backward.__module__, torch.save.__module__, print.__module__)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("alone"), TRAINING + SAYS, hooked=False)


@pytest.mark.parametrize(("breaks", "told", "steps"), BROKEN.values(), ids=BROKEN)
def test_trouble_of_ours_is_told_and_the_program_goes_on(
    tmp_path: Path, alone: Ran, breaks: str, told: str, steps: int
) -> None:
    found = ran(tmp_path / "here", TRAINING + breaks + SAYS)
    assert (found.status, found.err) == (0, "")
    assert found.out == alone.out, "and nothing of ours is left in it"
    assert found.trouble.startswith(told)
    assert len(set(found.trouble.splitlines())) == 1
    if steps:
        assert len(found.marks().steps) == steps, "what was seen before stays"


KILLED = """
begun = []
for number in range(400):
    time.sleep(0.0005 if number % 50 else 0.01)
    begun.append(time.monotonic_ns())
    step()
os.write(1, repr(begun).encode())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_program_that_is_killed_no_step_is_lost(tmp_path: Path) -> None:
    found = ran(tmp_path, TRAINING + KILLED)
    assert found.status == -signal.SIGKILL
    begun = json.loads(found.out)
    steps = found.marks().steps
    assert len(steps) == len(begun)
    assert [step.number for step in steps] == [*range(1, len(steps) + 1)]
    assert all(begin <= step.end_ns for begin, step in zip(begun, steps, strict=False))
