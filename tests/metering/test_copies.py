"""A loop may copy its model or save it whole while it is metered, and a copy is not metered."""

import copy
import io
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss

import worldsize
from own_loops import step_lines


def test_a_model_is_copied_and_saved_while_it_is_metered(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = worldsize.meter(model, optimizer, out=tmp_path / "run")
    saved = io.BytesIO()
    for batch in meter([torch.ones(3, 2)] * 2):
        average = copy.deepcopy(model)
        average(torch.ones(100, 2))
        saved.seek(0)
        torch.save(model, saved)
        mse_loss(model(batch), torch.ones(3, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    meter.close()
    saved.seek(0)
    assert torch.load(saved, weights_only=False)(torch.ones(1, 2)).shape == (1, 1)
    assert [step["samples"] for step in step_lines(tmp_path / "run")] == [3, 3]
    assert not model._forward_pre_hooks


def test_a_process_that_the_loop_forks_writes_nothing(tmp_path: Path) -> None:
    """Such as one that saves in the background; it trains on here, and ends as Python does."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = worldsize.meter(model, optimizer, out=tmp_path / "run")
    for number, batch in enumerate(meter([torch.ones(3, 2)] * 6)):
        child = os.fork() if number == 3 else None
        mse_loss(model(batch), torch.ones(3, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if child:
            os.waitpid(child, 0)
        elif child == 0:
            meter.fetching()
            meter.close()
            os._exit(0)
    meter.close()
    assert [step["step"] for step in step_lines(tmp_path / "run")] == [*range(6)]
