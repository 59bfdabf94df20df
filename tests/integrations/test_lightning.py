"""`MeterCallback` in trainings of Lightning: all batches of a step are counted, evaluation is not, nothing changes."""

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from adapted import (
    BATCHES,
    EPOCHS,
    SAMPLES,
    Net,
    check_run,
    hooks_of,
    interrupted,
    lines,
    loader,
    nothing_left,
    same,
)

PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
"""The two names that Lightning is installed under."""

if None in [importlib.util.find_spec(name) for name in PACKAGES]:
    pytest.skip("needs worldsize[lightning]", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore", "error:worldsize")


@pytest.fixture(scope="module", autouse=True)
def packages() -> dict[str, Any]:
    """What takes seconds to load: in the process that runs these tests, not in each that collects them."""
    before = set(os.environ)
    import worldsize.integrations.lightning  # noqa: F401

    found = {name: importlib.import_module(module) for name, module in PACKAGES.items()}
    for name in set(os.environ) - before:  # with what Lightning sets, commands of later tests would find no server
        del os.environ[name]
    return found


@pytest.fixture
def lightning(packages: dict[str, Any]) -> Any:
    return packages["lightning"]


def metering(**settings: Any) -> Any:
    """The callback with these settings."""
    from worldsize.integrations.lightning import MeterCallback

    return MeterCallback(**settings)


def module_of(package: Any) -> Any:
    class Tiny(package.LightningModule):  # type: ignore[misc] # may not be installed
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(**batch)["loss"]
            return loss

        def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
            self.net(**batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    return Tiny()


def fit(package: Any, accumulated: int, callbacks: list[Any], **more: Any) -> Any:
    module = module_of(package)
    torch.manual_seed(2)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet["enable_model_summary"] = False
    settings: dict[str, Any] = {**quiet, "max_epochs": EPOCHS, "accelerator": "cpu", "num_sanity_val_steps": 1, **more}
    trainer = package.Trainer(accumulate_grad_batches=accumulated, callbacks=callbacks, **settings)
    start = trainer.profiler.start
    try:
        trainer.fit(module, loader(), loader())
    finally:
        assert trainer.profiler.start == start
        assert [hooks_of(optimizer) for optimizer in trainer.optimizers] == [0]
    return module


@pytest.mark.parametrize("accumulated", [1, 4])
@pytest.mark.parametrize("name", PACKAGES)
def test_each_step_has_all_its_batches(packages: dict[str, Any], name: str, accumulated: int, tmp_path: Path) -> None:
    package, out = packages[name], tmp_path / "run"
    plain = fit(package, accumulated, [])
    with nothing_left(plain):
        metered = fit(package, accumulated, [metering(out=out)])
    assert same(plain, metered)
    check_run(out, accumulated, metered.net.evaluated)
    assert len(metered.net.evaluated) > BATCHES * EPOCHS


def test_a_step_in_whose_middle_it_evaluates_counts_and_is_not_timed(lightning: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    module = fit(lightning, 4, [metering(out=out)], val_check_interval=6)
    steps = lines(out)
    assert [step["samples"] for step in steps] == SAMPLES[4]
    assert interrupted(steps, module.net.evaluated) == [False, True, False] * EPOCHS
    assert [step["timed"] for step in steps[3:]] == [True, False, True]


def test_the_hooks_go_when_a_training_fails(lightning: Any, tmp_path: Path) -> None:
    callback: Any = lightning.Callback

    class Fails(callback):  # type: ignore[misc] # may not be installed
        def on_train_batch_end(self, *given: Any) -> None:
            if given[-1] == 1:
                raise RuntimeError("on purpose")

    with nothing_left(Net()), pytest.raises(RuntimeError, match="on purpose"):
        fit(lightning, 1, [Fails(), metering(out=tmp_path / "run")])


def test_off_unless_asked(lightning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = metering()
    fit(lightning, 1, [callback], max_epochs=1)
    monkeypatch.setenv("WORLDSIZE_METER", str(tmp_path / "run"))
    fit(lightning, 1, [callback], max_epochs=1)
    assert len(lines(tmp_path / "run")) == BATCHES


def test_what_goes_wrong_in_us_is_a_warning(lightning: Any, tmp_path: Path) -> None:
    profiler: Any = lightning.profilers.Profiler

    class Odd(profiler):  # type: ignore[misc] # may not be installed
        def start(self, action_name: str) -> None: ...
        def stop(self, action_name: str) -> None: ...
        def __setattr__(self, name: str, value: object) -> None:
            if name in ("start", "stop"):
                raise AttributeError(name)
            super().__setattr__(name, value)

    with pytest.warns(UserWarning, match="worldsize: (metering ended, training goes on|no step)"):
        fit(lightning, 1, [metering(out=tmp_path / "run")], max_epochs=1, profiler=Odd())
