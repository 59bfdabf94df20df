"""A job whose ranks train the same model as it is written and compiled, and tell what differs."""

import copy
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from case_jobs import CaseOnRank, do_cases
from parity import digest, gradients
from worldsize.data import load_data
from worldsize.measure.timeline import read
from worldsize.ranks.turns import Turns
from worldsize.training.check import check
from worldsize.training.evaluate import evaluate
from worldsize.training.trainer import Trainer
from worldsize.training.workload import RolledBack

WIDTH = 192
LAYERS = 6
BUCKET_MB = 0.25
"""Of nearly two layers, whose gradients take 0.15 MB each."""


def net(classes: int) -> nn.Module:
    """Layers of one size, so that buckets are full in the middle of backward."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.SiLU()) for _ in range(LAYERS)]
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), *layers, nn.Linear(WIDTH, classes))


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Entry of the job: each case trains with the same compiler."""
    from worldsize.training import compiled  # not where tests are only collected: it loads torch's compiler

    compiled.BACKEND = payload["backend"]
    do_cases(payload, turns, _found)


def _found(case: CaseOnRank) -> dict[str, Any]:
    plain, ours = case.trainer(compile=False), case.trainer(compile=True)
    before = copy.deepcopy(ours.strategy.unwrap().state_dict())
    random = torch.get_rng_state()
    compile_s = ours.compile()
    kept = all(torch.equal(value, before[name]) for name, value in ours.strategy.unwrap().state_dict().items())
    kept &= torch.equal(random, torch.get_rng_state())
    wanted, _ = _steps(plain, 1)
    found, interrupted = _steps(ours, 3)
    marks = read(ours.timeline.take(), ours.timeline.clock)
    messages = [(m.kind, m.payload_bytes) for m in marks.messages]
    assert marks.last_gradient is not None
    early = sum(m.issued < marks.last_gradient for m in marks.messages if m.ready is not None)
    interrupted += _rolled_back_steps(ours)
    return {
        "wanted": wanted[0],
        "found": found[0],
        "compile_s": compile_s,
        "kept": kept,
        "interrupted": interrupted,
        "messages": messages,
        "early": early,
        "weights": digest(ours.strategy.unwrap()),
        "children": [child.name() for child in psutil.Process().children(recursive=True)],
    }


def _steps(trainer: Trainer, count: int) -> tuple[list[list[Tensor]], list[bool]]:
    seen: list[list[Tensor]] = []
    model = trainer.strategy.unwrap()
    hook = trainer.optimizer.register_step_pre_hook(lambda *_: seen.append(gradients(model)))
    interrupted = [trainer.step().interrupted for _ in range(count)]
    hook.remove()
    return seen, interrupted


def _rolled_back_steps(trainer: Trainer) -> list[bool]:
    """Whether anything compiles in a step after, or within, what is measured and done beside training."""
    seen = []
    rolled_back = RolledBack(trainer)
    for _ in range(2):
        with rolled_back():
            found = check(trainer, 1)
            assert found.gradients is None or not trainer.strategy.traits.exact
            trainer.try_step()
        with rolled_back():
            seen.append(trainer.step(synchronise=False).interrupted)
        with trainer.uninstrumented(room=True), rolled_back():
            seen += [trainer.step().interrupted for _ in range(2)]
        evaluate(trainer, load_data(trainer.settings), epoch=0)
        trainer.sizes()
        seen += [trainer.step().interrupted for _ in range(2)]
    return seen
