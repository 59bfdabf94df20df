"""`integrations.accelerate.meter` in a loop with Accelerate: the real optimizer is watched, through all wrappers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from adapted import (
    EPOCHS,
    SAMPLES,
    Net,
    check_run,
    hooks_of,
    lines,
    loader,
    nothing_left,
    same,
)

accelerate = pytest.importorskip("accelerate", reason="needs worldsize[accelerate]")
from worldsize.integrations.accelerate import meter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore", "error:worldsize")


def train(accumulated: int, out: Path | None, *, end: bool = True) -> tuple[Net, Any]:
    torch.manual_seed(2)
    # Accelerators share their state, accumulation included.
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    net = Net()
    stochastic = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, batches = accelerator.prepare(net, stochastic, loader())
    metered = meter(accelerator, model, optimizer, out=out)
    for _ in range(EPOCHS):
        model.train()
        for batch in metered(batches):
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        for batch in batches:
            model(**batch)
    if end:
        accelerator.end_training()
    else:
        metered.close()
    assert hooks_of(stochastic) == 0
    assert "end_training" not in vars(accelerator)
    return net, metered


@pytest.mark.parametrize("accumulated", [1, 4])
def test_each_step_has_all_its_batches(accumulated: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    plain, _ = train(accumulated, None)
    with nothing_left(plain):
        metered, _ = train(accumulated, out)
    assert same(plain, metered)
    check_run(out, accumulated, metered.evaluated)


def test_off_unless_asked() -> None:
    _, metered = train(1, None)
    assert not metered.on


def test_closing_the_meter_is_enough(tmp_path: Path) -> None:
    train(1, tmp_path / "run", end=False)
    assert len(lines(tmp_path / "run")) == len(SAMPLES[1])
