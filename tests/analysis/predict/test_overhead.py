"""What messages beside backward make it take longer, from the samples of cells in which that was put."""

import json
from pathlib import Path

import pytest

from made_forecasts import Truth, made_forecast_run
from worldsize.analysis.predict.calibration import usual_slowdown
from worldsize.analysis.predict.model import Model
from worldsize.analysis.study import analyse
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run

TRUTH = Truth(spread=0.0, shared=0.0)
USUAL = usual_slowdown(TRUTH.bytes_per_s)
BATCHES = {32: 0.3, 256: 0.9}
"""Local batch → share of backward beside which messages are under way."""


def overlap(folder: Path, batch: int, work_s: float, slowdown: float) -> None:
    """All messages of a cell travel while backward goes on, which takes so much longer."""
    for rank in range(2):
        steps, spans = folder / f"rank{rank}.jsonl", folder / f"rank{rank}.spans.jsonl"
        made = [[json.loads(line) for line in path.read_text().splitlines()] for path in (steps, spans)]
        for number, (step, span) in enumerate(zip(*made, strict=True)):
            forward_s = step["forward_end_s"]
            alone_s = step["backward_end_s"] - forward_s
            beside_s = BATCHES[batch] * alone_s
            end_s = forward_s + alone_s + work_s + slowdown * beside_s
            ends = ("backward_end_s", "synchronise_end_s", "optimizer_end_s", "last_gradient_s", "step_s")
            step.update(dict.fromkeys(ends, end_s), start_ns=round(1e9 * number * end_s))
            span.update(blocking=[False], issued_s=[end_s - beside_s], done_s=[end_s])
        for path, records in zip((steps, spans), made, strict=True):
            path.write_text("".join(f"{json.dumps(each)}\n" for each in records))


@pytest.mark.parametrize("work_s", [0.0, 0.003])
@pytest.mark.parametrize("slowdown", [USUAL, 0.3, 0.0])
def test_work_and_slowdown_are_told_from_the_samples(tmp_path: Path, work_s: float, slowdown: float) -> None:
    """Beside what is usual, so a slowdown that is not is found to a tenth of its distance."""
    cells = [(strategy, n, batch) for strategy, n in (("single", 1), ("ddp", 2)) for batch in BATCHES]
    run = made_forecast_run(tmp_path / "run", TRUTH, tuple(cells))
    for batch in BATCHES:
        overlap(cell_folder(run, f"ddp-w2-b{batch}"), batch, work_s, slowdown)
    found = Model(analyse(load_run(run))).overhead
    assert found.slowdown == pytest.approx(slowdown, abs=0.01 + abs(slowdown - USUAL) / 10)
    assert found.work_s == pytest.approx(work_s, abs=0.0005)
