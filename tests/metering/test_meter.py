"""What a meter sees of loops that people write: steps, micro-steps, samples; and that it leaves no trace."""

from pathlib import Path

import pytest

from in_process import worldsize
from own_loops import ACCUMULATED, DATA, WarmLoops, only_cell, step_lines
from worldsize.analysis.cells import analyse_cell
from worldsize.analysis.study import analyse
from worldsize.results.folder import load_run

MICRO = ["data_wait", "other", "forward", "backward"]


def test_accumulated_gradients_are_one_step_of_all_its_samples(loops: WarmLoops, tmp_path: Path) -> None:
    loops.ran(tmp_path, ACCUMULATED)
    lines = step_lines(tmp_path / "run")
    # Ten batches an epoch make two steps of four; two are left, and this loop adds them to the first step that follows.
    assert [line["samples"] for line in lines] == [16, 16, 24, 16, 24, 16]
    cell = only_cell(tmp_path / "run")
    assert (cell.record.strategy, cell.record.world_size, cell.record.batch_size) == ("single", 1, 16)
    assert cell.record.state == "complete"
    between = ["other", "data_wait", *MICRO[1:]]
    assert lines[0]["phases"] == [*MICRO, *between * 3, "other", "optimizer"]


def test_without_out_and_variable_nothing_is_metered_or_changed(loops: WarmLoops, tmp_path: Path) -> None:
    code = ACCUMULATED.replace("end()\n", "assert meter(loader) is loader\nend()\n")
    code += "assert not meter.on and 'backward' not in torch.Tensor.backward.__module__"
    loops.ran(tmp_path, code, out=None)
    assert [path.name for path in tmp_path.iterdir()] == ["loop.py"]


@pytest.mark.parametrize("workers", [1, 2])
def test_weights_are_the_same_to_the_bit_with_a_meter_and_without(
    loops: WarmLoops, tmp_path: Path, workers: int
) -> None:
    said = [loops.ran(tmp_path, ACCUMULATED, workers=workers, out=out) for out in ("run", None)]
    weights = [[line for line in each.splitlines() if "WEIGHTS" in line] for each in said]
    assert len(weights[0]) == workers
    assert sorted(weights[0]) == sorted(weights[1])


@pytest.mark.parametrize(
    ("name", "body", "samples"),
    [
        (
            "no loader, a model",
            """
meter = worldsize.meter(model, optimizer)
for step in range(6):
    mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
            8,
        ),
        (
            "neither",
            """
meter = worldsize.meter(samples_per_step=5)
for step in range(6):
    mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
            5,
        ),
        (
            "a context for each step",
            """
meter = worldsize.meter(model, optimizer)
for step in range(6):
    with meter.step():
        mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 4)).backward()
        optimizer.step()
        optimizer.zero_grad()
    time.sleep(0.05)
""",
            8,
        ),
        (
            "a dict of batches, two losses, two optimizers",
            """
other = nn.Linear(16, 4)
second = torch.optim.SGD(other.parameters(), lr=0.1)
meter = worldsize.meter(model, optimizer)
for batch in meter([{"ids": torch.ones(3, 16), "name": "x"}] * 6):
    mse_loss(other(batch["ids"]), torch.zeros(3, 4)).backward()
    second.step()
    mse_loss(model(batch["ids"]), torch.zeros(3, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
            3,
        ),
    ],
)
def test_other_kinds_of_loops(loops: WarmLoops, tmp_path: Path, name: str, body: str, samples: int) -> None:
    loops.ran(tmp_path, DATA + body)
    lines = step_lines(tmp_path / "run")
    assert len(lines) == (5 if name == "neither" else 6), "without a model the first step begins after an optimizer's"
    assert {line["samples"] for line in lines[1:]} == {samples}, name
    for line in lines:
        assert line["phase_ends_s"] == sorted(line["phase_ends_s"])
        assert "backward" in line["phases"]
        assert line["phases"][-1] == "optimizer"


def test_pauses_between_steps_in_a_context_are_in_no_step(loops: WarmLoops, tmp_path: Path) -> None:
    body = """
meter = worldsize.meter(model, optimizer)
for step in range(6):
    with meter.step():
        mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 4)).backward()
        optimizer.step()
    time.sleep(0.5)
"""
    loops.ran(tmp_path, DATA + body)
    shown = worldsize("report", tmp_path / "run", "--json", cwd=tmp_path)
    assert max(line["step_s"] for line in step_lines(tmp_path / "run")[1:]) < 0.4
    assert '"step_s": 0.5' not in shown.stdout


def test_nothing_of_ours_is_left_after_close(loops: WarmLoops, tmp_path: Path) -> None:
    code = (
        DATA
        + """
from torch.distributed import all_reduce, distributed_c10d
before = torch.Tensor.backward, dist.all_reduce, all_reduce, distributed_c10d.all_reduce
meter = worldsize.meter(model, optimizer)
assert torch.Tensor.backward is not before[0] and all_reduce is not before[2]
for x, y in meter(loader):
    cross_entropy(model(x), y).backward()
    optimizer.step()
meter.close()
assert (torch.Tensor.backward, dist.all_reduce, all_reduce, distributed_c10d.all_reduce) == before
assert not optimizer._optimizer_step_post_hooks and not optimizer._optimizer_step_pre_hooks
assert not model._forward_pre_hooks
assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
for x, y in meter(loader):
    cross_entropy(model(x), y).backward()
    optimizer.step()
end()
"""
    )
    loops.ran(tmp_path, code, workers=2)
    assert len(step_lines(tmp_path / "run")) == 10


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("os.makedirs('run'); open('run/study.json', 'w').write('{}')", "holds a run already"),
        ("open('run', 'w').close()", "cannot write in"),
        (
            "__import__('sys').modules['worldsize.hook.watch'].leading = None",
            "TypeError",
        ),
    ],
)
def test_trouble_of_ours_is_one_warning_and_training_goes_on(
    loops: WarmLoops, tmp_path: Path, before: str, told: str
) -> None:
    said = loops.ran(tmp_path, "import worldsize.hook.watch\n" + before + ACCUMULATED)
    assert said.count("worldsize: metering ended, training goes on") == 1
    assert told in said
    assert "WEIGHTS" in said


ENDED = """
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
meter = worldsize.meter(model, optimizer)
for number, batch in enumerate(meter([torch.randn(8, 16)] * 40)):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if number in (28, 30):
        {ends}
print("WEIGHTS", model.weight.sum().item())
"""


def test_what_was_metered_before_trouble_of_ours_stays_and_says_why(loops: WarmLoops, tmp_path: Path) -> None:
    said = loops.ran(tmp_path, ENDED.format(ends="__import__('sys').modules['worldsize.hook.watch'].leading = None"))
    assert "metering ended, training goes on: TypeError" in said
    assert "WEIGHTS" in said
    record = only_cell(tmp_path / "run").record
    assert (record.state, record.batch_size, len(step_lines(tmp_path / "run"))) == ("complete", 8, 29)
    [told] = [each.message for each in record.warnings if each.code == "cut-short"]
    assert told.startswith("Metering ended: TypeError: ")


def test_samples_of_batches_that_vary_all_count(loops: WarmLoops, tmp_path: Path) -> None:
    """Most batches are small, and have but a tenth of all samples."""
    code = """
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
meter = worldsize.meter(model, optimizer)
for batch in meter([torch.randn(size, 16) for size in [4, 4, 4, 98] * 12]):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    loops.ran(tmp_path, code)
    found = analyse(load_run(tmp_path / "run"))
    [cell] = found.cells
    assert cell.summary is not None
    timed = [line["samples"] for line in step_lines(tmp_path / "run") if line["timed"]]
    assert cell.batch_size == 4
    counted = cell.summary.samples_per_s.value * cell.summary.step_s.value
    assert counted == pytest.approx(sum(timed) / len(timed))
    assert "batches-vary" in {warning.code for _, warning in found.warnings}


def test_batches_that_another_thread_fetches_end_the_metering(loops: WarmLoops, tmp_path: Path) -> None:
    """What it waits for is no part of the step that trains meanwhile."""
    code = """
import queue, threading
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
meter, ahead = worldsize.meter(model, optimizer), queue.Queue(2)
def fetch():
    for batch in meter([torch.randn(8, 16)] * 9):
        ahead.put(batch)
threading.Thread(target=fetch).start()
for _ in range(9):
    model(ahead.get()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("WEIGHTS")
"""
    said = loops.ran(tmp_path, code)
    assert "batches are fetched outside the training thread" in said
    assert "WEIGHTS" in said


def test_a_collective_that_we_cannot_note_is_made_all_the_same(loops: WarmLoops, tmp_path: Path) -> None:
    break_it = "__import__('sys').modules['worldsize.hook.collectives'].bytes_of = None\n"
    said = loops.ran(tmp_path, "import worldsize.hook.watch\n" + break_it + ACCUMULATED, workers=2)
    assert "metering ended, training goes on: TypeError" in said
    assert said.count("WEIGHTS") == 2


def test_a_loop_that_is_killed_has_its_batch_and_says_that_it_did_not_end(loops: WarmLoops, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):  # it has no good end
        loops.ran(tmp_path, ENDED.format(ends="time.sleep(1.1) if number == 28 else os.kill(os.getpid(), 9)"))
    cell = only_cell(tmp_path / "run")
    assert (cell.record.state, cell.record.batch_size) == ("running", 8)
    found = analyse(load_run(tmp_path / "run"))
    [told] = [warning.message for _, warning in found.warnings if warning.code == "not-ended"]
    assert told.startswith("It did not end: ")


def test_a_loop_that_is_left_keeps_its_last_step(loops: WarmLoops, tmp_path: Path) -> None:
    code = (
        DATA
        + """
meter = worldsize.meter(model, optimizer)
for number, (x, y) in enumerate(meter(loader)):
    cross_entropy(model(x), y).backward()
    optimizer.step()
    if number == 6:
        break
time.sleep(1.0)
"""
    )
    loops.ran(tmp_path, code)
    lines = step_lines(tmp_path / "run")
    assert len(lines) == 7
    assert lines[-1]["step_s"] < 0.9


def test_a_warning_that_is_an_exception_ends_no_training(loops: WarmLoops, tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    said = loops.ran(tmp_path, "warnings.filterwarnings('error', 'worldsize')\n" + ACCUMULATED)
    assert "WEIGHTS" in said


def test_a_script_that_takes_no_step_is_told_so(loops: WarmLoops, tmp_path: Path) -> None:
    said = loops.ran(tmp_path, DATA + "meter = worldsize.meter(model, optimizer)\n")
    assert "no step of an optimizer was seen" in said
    assert not (tmp_path / "run").exists()


def test_no_rank_writes_into_the_folder_of_another_run(loops: WarmLoops, tmp_path: Path) -> None:
    loops.ran(tmp_path, ACCUMULATED)
    before = sorted(path for path in (tmp_path / "run").rglob("*"))
    said = loops.ran(tmp_path, ACCUMULATED, workers=2)
    assert said.count("holds a run already") == 2
    assert sorted(path for path in (tmp_path / "run").rglob("*")) == before


def test_runs_of_one_and_two_workers_become_a_scaling_study(loops: WarmLoops, tmp_path: Path) -> None:
    every = ACCUMULATED.replace("(number + 1) % 4", "(number + 1) % 1").replace("range(3)", "range(4)")
    for out in ("n1", "n1-again"):
        loops.ran(tmp_path, every, out=out)
    loops.ran(tmp_path, every, workers=2, out="n2")
    done = worldsize("scale", "n1", "n1-again", "n2", "--out", "joined", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "joined")
    assert [*run.cells] == ["single-w1-b4", "ddp-w2-b4"]
    assert set(analyse_cell(run.cells["single-w1-b4"]).launches) >= {(0, 1), (1, 1)}, "a run is a launch of its own"
    [source] = load_run(tmp_path / "n1").study.provenance.user_code.files  # type: ignore[union-attr]
    assert source.name == "loop.py"
    assert {warning.code for warning in run.study.warnings} == {"unpaired"}
    assert '"speedup"' in done.stdout
    twice = worldsize("scale", "n1", "n1", cwd=tmp_path)
    assert twice.returncode == 2
    assert "at least two are needed" in twice.stderr
    again = worldsize("scale", "n1", "n2", "--out", "joined", cwd=tmp_path)
    assert again.returncode == 2
    assert "holds a study already" in again.stderr


def test_the_garbage_collector_has_nothing_to_do_for_a_meter(loops: WarmLoops, tmp_path: Path) -> None:
    """A full collection takes 0.2 s in a loop with torch; marks kept for a second brought one on now and then."""
    code = """
import gc
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begun = []
gc.collect()
gc.callbacks.append(lambda phase, info: begun.append(info) if phase == "start" else None)
meter = worldsize.meter(model, optimizer, samples_per_step=8)
batch, goal = torch.randn(8, 16), torch.zeros(8, 4)
for step in range(1100):
    if step == 100:
        gc.collect()  # how many were due by then depends on all that was done before
        begun.clear()
    mse_loss(model(batch), goal).backward()
    optimizer.step()
    optimizer.zero_grad()
print("COLLECTIONS", len(begun))
"""
    said = loops.ran(tmp_path, code)
    [line] = [line for line in said.splitlines() if "COLLECTIONS" in line]
    assert int(line.split()[-1]) <= 1  # in such a loop without a meter there is none
    assert len(step_lines(tmp_path / "run")) >= 1000
