"""A meter beside torch.compile: it sees the steps, and the compiler sees nothing of it."""

from pathlib import Path

import pytest

from own_loops import WarmLoops, step_lines

LOOP = """
graphs = []
def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4)
    def forward(self, x):
        return self.layer(x).relu()

model = Net()
BEFORE
mine = model.__dict__.get("_compiled_call_impl")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
meter = worldsize.meter(model, optimizer)
AFTER
for x in meter([torch.randn(6, 16)] * 12):
    cross_entropy(model(x), torch.zeros(6, dtype=torch.long)).backward()
    optimizer.step()
    optimizer.zero_grad()
meter.close()
assert len(graphs) == 1, len(graphs)
if mine is not None:
    assert model._compiled_call_impl is mine
model(x)
assert len(graphs) == 1, len(graphs)
"""
IN_PLACE = "model.compile(backend=backend, fullgraph=True)"


@pytest.mark.parametrize(
    ("before", "after", "phases"),
    [
        ("model = torch.compile(model, backend=backend, fullgraph=True)", "", ["forward"]),
        (IN_PLACE, "", ["forward"]),
        ("", IN_PLACE, []),
    ],
)
def test_a_compiled_model(loops: WarmLoops, tmp_path: Path, before: str, after: str, phases: list[str]) -> None:
    loops.ran(tmp_path, LOOP.replace("BEFORE", before).replace("AFTER", after))

    lines = step_lines(tmp_path / "run")
    assert len(lines) == 12
    assert {line["samples"] for line in lines} == {6}
    for line in lines:
        assert [phase for phase in line["phases"] if phase == "forward"] == phases
