"""Which messages of a user's own loop a meter sees, with their bytes; what it withholds where it saw too few."""

import json
from pathlib import Path

from in_process import worldsize
from own_loops import ACCUMULATED, DATA, WarmLoops, only_cell, ran, span_lines, step_lines


def test_all_messages_of_ddp_are_seen_with_their_bytes(tmp_path: Path) -> None:
    ran(tmp_path, ACCUMULATED, workers=2)
    run = tmp_path / "run"
    assert only_cell(run).record.strategy == "ddp"
    assert {warning.code for warning in only_cell(run).record.warnings} == {"samples-counted"}
    last = span_lines(run)[-1]
    gradients = 4 * (16 * 32 + 32 + 32 + 32 + 32 * 4 + 4)
    buffers = 4 * (32 + 32) + 8
    assert last["kind"] == ["broadcast", "all_reduce"] * 4, "this loop synchronises in each micro-step"
    assert last["payload_bytes"] == [buffers, gradients] * 4
    assert last["blocking"] == [True, False] * 4
    assert [ready is None for ready in last["ready_s"]] == [True, False] * 4


def test_a_ddp_is_copied_and_saved_while_it_is_metered_and_afterwards(loops: WarmLoops, tmp_path: Path) -> None:
    code = (
        DATA
        + """
import copy, io
meter = worldsize.meter(model, optimizer)
def copied():
    average = copy.deepcopy(model)
    average(torch.randn(4, 16)).sum().backward()
    saved = io.BytesIO()
    torch.save(model, saved)
    assert b"worldsize" not in saved.getvalue().replace(b"worldsize.hook.patches", b""), "but for an empty hook"
for x, y in meter(loader):
    cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    copied()
meter.close()
copied()
assert "worldsize" not in type(model).register_comm_hook.__module__
end()
"""
    )
    loops.ran(tmp_path, code, workers=2)
    run = tmp_path / "run"
    assert only_cell(run).record.state == "complete"
    assert [kind for line in span_lines(run) for kind in line["kind"]][-2:] == ["broadcast", "all_reduce"]


def test_what_the_user_registers_afterwards_is_called_and_seen(loops: WarmLoops, tmp_path: Path) -> None:
    code = (
        DATA
        + """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
meter = worldsize.meter(model, optimizer)
calls = []
def hook(state, bucket):
    calls.append(state)
    return fp16_compress_hook(None, bucket)
model.register_comm_hook("mine", hook)
for x, y in meter(loader):
    cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
assert calls and set(calls) == {"mine"}
end()
"""
    )
    loops.ran(tmp_path, code, workers=2)
    assert span_lines(tmp_path / "run")[-1]["kind"] == ["broadcast", "all_reduce"]


def test_exposed_communication_is_withheld_where_messages_were_not_seen(loops: WarmLoops, tmp_path: Path) -> None:
    code = (
        DATA
        + """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
model.register_comm_hook(None, allreduce_hook)
from torch.distributed import _functional_collectives as functional
meter = worldsize.meter(model, optimizer)
for x, y in meter(loader):
    loss = cross_entropy(model(x), y)
    loss.backward()
    functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD).sum()
    optimizer.step()
    optimizer.zero_grad()
end()
"""
    )
    loops.ran(tmp_path, code, workers=2)
    run = tmp_path / "run"
    told = {warning.code: warning.message for warning in only_cell(run).record.warnings}
    assert "collectives were seen, so no step is taken apart" in told["messages-not-seen"]
    assert step_lines(run)[-1]["phases"][-1] == "unknown"
    shown = worldsize("report", run, "--json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    [row] = json.loads(shown.stdout)["results"]
    assert row["state"] == "complete"
    assert row["exposed_share"] is None


def test_barriers_objects_and_metrics_of_a_loop_are_seen(loops: WarmLoops, tmp_path: Path) -> None:
    code = (
        DATA
        + """
meter = worldsize.meter(model, optimizer)
os.makedirs("elsewhere", exist_ok=True)
os.chdir("elsewhere")
for x, y in meter(loader):
    loss = cross_entropy(model(x), y)
    loss.backward()
    dist.all_reduce(loss.detach())
    dist.all_gather_object([None] * WORLD, {"loss": float(loss)})
    dist.barrier()
    optimizer.step()
    optimizer.zero_grad()
end()
"""
    )
    loops.ran(tmp_path, code, workers=2)
    run = tmp_path / "run"
    assert {warning.code for warning in only_cell(run).record.warnings} == {"samples-counted"}
    kinds = span_lines(run)[-1]["kind"]
    assert kinds == ["broadcast", "all_reduce", "all_reduce", "all_gather", "all_gather", "barrier"]
    shown = worldsize("report", run, "--json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
