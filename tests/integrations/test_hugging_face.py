"""`MeterCallback` in trainings of transformers' Trainer: all batches of a step are counted, evaluation is not."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from adapted import (
    BATCH,
    EPOCHS,
    SAMPLES,
    Net,
    Rows,
    check_run,
    hooks_of,
    interrupted,
    lines,
    nothing_left,
    same,
)

if None in (importlib.util.find_spec("transformers"), importlib.util.find_spec("accelerate")):
    pytest.skip("needs worldsize[transformers]", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore", "error:worldsize")


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """What takes seconds to load: in the process that runs these tests, not in each that collects them."""
    import transformers  # noqa: F401

    import worldsize.integrations.hugging_face  # noqa: F401


def metering(**settings: Any) -> Any:
    """The callback with these settings."""
    from worldsize.integrations.hugging_face import MeterCallback

    return MeterCallback(**settings)


def train(accumulated: int, folder: Path, callbacks: list[Any], **more: Any) -> tuple[Net, Any]:
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=accumulated,
        num_train_epochs=EPOCHS,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=2,
        **{"eval_strategy": "epoch", **more},
    )
    net = Net()
    trainer = transformers.Trainer(net, arguments, train_dataset=Rows(), eval_dataset=Rows(), callbacks=[*callbacks])
    trainer.train()
    assert hooks_of(trainer.optimizer.optimizer) == 0
    return net, trainer


@pytest.mark.parametrize("accumulated", [1, 4])
def test_each_step_has_all_its_batches(accumulated: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    plain, trainer = train(accumulated, tmp_path, [])
    with nothing_left(plain, type(trainer.get_train_dataloader())):
        metered, _ = train(accumulated, tmp_path, [metering(out=out)])
    assert same(plain, metered)
    check_run(out, accumulated, metered.evaluated)


def test_evaluation_after_some_steps_is_no_part_of_any(tmp_path: Path) -> None:
    out = tmp_path / "run"
    net, _ = train(4, tmp_path, [metering(out=out)], eval_strategy="steps", eval_steps=2, eval_on_start=True)
    steps = lines(out)
    assert [step["samples"] for step in steps] == SAMPLES[4]
    assert len(net.evaluated) > EPOCHS
    assert not any(interrupted(steps, net.evaluated))


def test_it_trains_again_and_is_off_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = metering()
    _, trainer = train(4, tmp_path, [callback])
    monkeypatch.setenv("WORLDSIZE_METER", str(tmp_path / "run"))
    trainer.train()
    assert [step["samples"] for step in lines(tmp_path / "run")] == SAMPLES[4]
