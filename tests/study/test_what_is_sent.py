"""What the rule of each strategy says it sends is what real workers send: by kind, size and order."""

import shutil
from pathlib import Path

import pytest

import worldsize as package
from made_messages import add_link
from worldsize.analysis.collective_cost import bus_factor
from worldsize.analysis.predict.model import Model
from worldsize.api.run import Run
from worldsize.sending import INT8_BLOCK
from worldsize.traits import TRAITS

MODEL = """
from torch import nn

def net(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Flatten(), nn.Linear(8 * 16 * 16, 200), nn.ReLU(), nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, classes),
    )
"""
"""Two megabytes in ten tensors, with buffers."""
STRATEGIES = [
    name for name, traits in TRAITS.items() if traits.collectives and traits.sends and traits.travels == "gradients"
]
"""Those with a rule that tells each message."""

pytestmark = pytest.mark.usefixtures("no_link_benchmark")


@pytest.fixture(scope="module", params=[None, 0.2])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """With the strategies' own buckets, and with small ones."""
    folder = tmp_path_factory.mktemp("sent")
    (folder / "net.py").write_text(MODEL)
    return package.study(
        model=f"{folder}/net.py:net",
        data="synthetic:3x32x32:10:256",
        strategies=("single", *STRATEGIES),
        world_sizes=(1, 2),
        batch_sizes=(4,),
        baseline="single",
        bucket_mb=request.param,
        steps=6,
        evaluate="never",
        out=folder / "run",
        report=False,
        progress=False,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_step_sends_what_its_rule_says(run: Run, strategy: str) -> None:
    model = Model(run.analysis)
    cell = next(cell for cell in model.several if cell.strategy == strategy)
    sent = model.sent(strategy, model.buckets_of(cell), 1.0)
    assert sent is not None
    spans = run.cells[cell.id].spans
    last = spans.filter(spans["rank"] == 0).row(-1, named=True)
    assert last["kind"] == [each.collective.replace("-", "_") for each in sent]
    # The rule knows no N: of int8 every rank's share is filled up to whole blocks, by one for each at most.
    filled = 2 * (INT8_BLOCK + 4) if "all-to-all" in TRAITS[strategy].collectives else 0
    assert last["payload_bytes"] == pytest.approx([each.size_bytes for each in sent], rel=0, abs=filled)
    assert last["blocking"] == [each.blocking for each in sent]


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if not TRAITS[name].rooted])
def test_the_bytes_on_the_wire_are_those_of_its_messages(run: Run, strategy: str) -> None:
    """By the formula of its traits, and message by message with the factor of each collective (method.md §5).

    Of gather and scatter the factors are both directions of the root; each has its own.
    """
    cell = next(cell for cell in Model(run.analysis).several if cell.strategy == strategy)
    assert cell.record is not None
    assert cell.record.wire is not None
    spans = run.cells[cell.id].spans
    last = spans.filter(spans["rank"] == 0).row(-1, named=True)
    messages = list(zip(last["kind"], last["payload_bytes"], strict=True))
    sent = sum(size * bus_factor(kind.replace("_", "-"), 2) for kind, size in messages)
    # Blocks of int8 are whole in each bucket and for each rank: one of each may be filled up.
    filled = sum(2 * (INT8_BLOCK + 4) for kind, _ in messages if kind in ("all_to_all", "all_gather"))
    assert sent == pytest.approx(cell.record.wire.busiest_rank_bytes, abs=filled + len(messages))


def test_gradients_come_from_the_last_layer_to_the_first(run: Run) -> None:
    found = Model(run.analysis).gradients
    assert found is not None
    sizes = [4 * count for count in (216, 8, 8, 8, 409_600, 200, 60_000, 300, 3_000, 10)]
    assert list(found.sizes_bytes) == sizes
    assert found.buffer_bytes == 4 * 16 + 8
    assert max(found.ready_share) == 1.0
    first, last = found.ready_share[0], found.ready_share[-2]
    assert 0 <= last < found.ready_share[4] < first <= 1


def test_a_forecast_of_it_answers(run: Run, tmp_path: Path) -> None:
    """Two workers on one host tell what eight would be, and what other buckets would do.

    The link is a made one: on a busy machine the three seconds of a study's benchmark would end before each collective
    was timed at three sizes, and a strategy that sends by one that was not has no forecast (bounds.py says so).
    """
    shutil.copytree(run.folder, tmp_path / "run")
    add_link(tmp_path / "run", 2, others=("all-gather", "all-to-all", "broadcast", "gather", "scatter"), alpha_s=1e-4)
    report = package.predict(tmp_path / "run", world_sizes=(2, 8), bucket_mb=1.0)
    assert {row.strategy for row in report.rows} == {*STRATEGIES}
    assert all(row.step_s.low <= row.step_s.value <= row.step_s.high for row in report.rows)
    assert len(report.held_out) == len(STRATEGIES)
