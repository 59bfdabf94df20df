"""Messages in groups of fewer ranks than there are: seen, and of another kind than those of all ranks."""

from pathlib import Path

from own_loops import DATA, WarmLoops, only_cell, span_lines
from worldsize.analysis.cells import analyse_cell

GROUPS = (
    DATA.replace("DistributedDataParallel(net)", "DistributedDataParallel(net, process_group=mine)")
    + """
meter = worldsize.meter(model, optimizer)
for x, y in meter(loader):
    loss = cross_entropy(model(x), y)
    loss.backward()
    figure = loss.detach().clone()
    dist.all_reduce(figure, group=mine)
    dist.all_reduce(figure, dist.ReduceOp.SUM, mesh.get_group("inner"))
    dist.all_reduce(figure, group=everyone)
    dist.broadcast(figure, 0, pairs[0])  # ranks 2 and 3 are not in it, and send nothing
    dist.all_reduce(figure)
    optimizer.step()
    optimizer.zero_grad()
end()
"""
)
MAKE_GROUPS = """
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
mine = pairs[RANK // 2]
everyone = dist.new_group([0, 1, 2, 3])
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
"""


def test_a_message_of_some_ranks_is_of_another_kind(loops: WarmLoops, tmp_path: Path) -> None:
    loops.ran(tmp_path, MAKE_GROUPS + GROUPS, workers=4)
    run = tmp_path / "run"
    record = only_cell(run).record
    assert {warning.code for warning in record.warnings} == {"samples-counted"}, "all messages were seen"
    of_ddp = ["broadcast_of_some_ranks", "all_reduce_of_some_ranks"]
    own = ["all_reduce_of_some_ranks"] * 2
    assert span_lines(run, 0)[-1]["kind"] == [*of_ddp, *own, "all_reduce", "broadcast_of_some_ranks", "all_reduce"]
    assert span_lines(run, 3)[-1]["kind"] == [*of_ddp, *own, "all_reduce", "all_reduce"]
    sent = analyse_cell(only_cell(run)).communication
    assert sent is not None
    assert sent.messages["kind"].unique().to_list() == ["all_reduce"]
    assert set(sent.messages["number"]) == {0, 1}
    assert record.threads_per_worker == 1
