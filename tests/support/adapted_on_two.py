"""One of two processes under torchrun: trains without and with the meter of one adapter (tests/integrations)."""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from adapted import BATCH, EPOCHS, Net, Rows, loader, nothing_left, same

ACCUMULATED = 4


def lightning(out: Path | None) -> nn.Module:
    """Trains with lightning.pytorch."""
    import lightning.pytorch as package

    from worldsize.integrations.lightning import MeterCallback

    class Tiny(package.LightningModule):  # type: ignore[misc] # may not be installed
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Tiny()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    where = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}
    trainer = package.Trainer(
        max_epochs=EPOCHS, accumulate_grad_batches=ACCUMULATED, callbacks=[MeterCallback(out=out)], **quiet, **where
    )
    trainer.fit(module, loader())
    return module


def hugging_face(out: Path | None) -> nn.Module:
    """Trains with transformers."""
    import transformers

    from worldsize.integrations.hugging_face import MeterCallback

    arguments = transformers.TrainingArguments(
        output_dir="trained",
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATED,
        num_train_epochs=EPOCHS,
        use_cpu=True,
        ddp_backend="gloo",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    net = Net()
    transformers.Trainer(net, arguments, train_dataset=Rows(), callbacks=[MeterCallback(out=out)]).train()
    return net


def accelerate(out: Path | None) -> nn.Module:
    """Trains with Accelerate."""
    import accelerate as package

    from worldsize.integrations.accelerate import meter

    accelerator = package.Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    net = Net()
    model, optimizer, batches = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), loader())
    metered = meter(accelerator, model, optimizer, out=out)
    for _ in range(EPOCHS):
        for batch in metered(batches):
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()
    metered.close()
    return net


def main(kind: str, out: Path) -> None:
    """Train twice."""
    train = {"lightning": lightning, "hugging_face": hugging_face, "accelerate": accelerate}[kind]
    torch.manual_seed(2)
    plain = train(None)
    torch.manual_seed(2)
    with nothing_left(plain):
        metered = train(out)
    assert same(plain, metered)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
