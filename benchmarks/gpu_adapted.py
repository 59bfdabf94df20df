"""The planted training of gpu_planted.py under a framework, without and with the meter's adapter: NAME BATCH_MS OUT.

NAME is lightning, hugging-face or accelerate; the run folder is OUT. Prints the seconds of a step without the meter:
a framework has work of its own, which nobody has planted.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from gpu_planted import Planted, Rate

SAMPLES, BATCHES, WARMUP = 16, 300, 50


class Paced(torch.utils.data.IterableDataset[dict[str, Tensor]]):
    """Samples of batches that come at a rate, as dicts, which is what transformers asks for."""

    def __init__(self, batch_ms: float) -> None:
        self.batch_ms = batch_ms

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        rate = Rate(self.batch_ms)
        for _ in range(BATCHES):
            rate.wait()
            for _ in range(SAMPLES):
                yield {"given": torch.ones(64)}


class Loses(torch.nn.Module):
    """The planted model; it returns its loss, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Planted().model()
        self.began: list[float] = []

    def step_s(self) -> float:
        """Seconds from one forward to the next, without those of the start."""
        return (self.began[-1] - self.began[WARMUP]) / (BATCHES - 1 - WARMUP)

    def forward(self, given: Tensor) -> dict[str, Tensor]:
        # The host runs ahead of the device: 0.3 of 12 ms a step, unless it is where the device is at both ends.
        if len(self.began) in (WARMUP, BATCHES - 1):
            torch.cuda.synchronize()
        self.began.append(time.perf_counter())
        return {"loss": self.net(given).square().mean()}


def lightning(net: Loses, batches: Paced, out: str | None) -> None:
    """Trains with lightning.pytorch."""
    import lightning.pytorch as package

    from worldsize.integrations.lightning import MeterCallback

    class Module(package.LightningModule):  # type: ignore[misc] # may not be installed
        def __init__(self) -> None:
            super().__init__()
            self.loses = net

        def training_step(self, batch: dict[str, Tensor], _: int) -> Any:
            return self.loses(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = package.Trainer(max_epochs=1, accelerator="gpu", devices=1, callbacks=[MeterCallback(out=out)], **quiet)
    trainer.fit(Module(), torch.utils.data.DataLoader(batches, batch_size=SAMPLES, pin_memory=True))


def hugging_face(net: Loses, batches: Paced, out: str | None) -> None:
    """Trains with transformers."""
    import transformers

    from worldsize.integrations.hugging_face import MeterCallback

    arguments = transformers.TrainingArguments(
        output_dir=f"{sys.argv[3]}.trained",
        per_device_train_batch_size=SAMPLES,
        max_steps=BATCHES,
        logging_strategy="no",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    transformers.Trainer(net, arguments, train_dataset=batches, callbacks=[MeterCallback(out=out)]).train()


def accelerate(net: Loses, batches: Paced, out: str | None) -> None:
    """Trains with Accelerate."""
    import accelerate as package

    from worldsize.integrations.accelerate import meter

    accelerator = package.Accelerator()
    loader = torch.utils.data.DataLoader(batches, batch_size=SAMPLES, pin_memory=True)
    model, optimizer, fetched = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1e-3), loader)
    for batch in (metered := meter(accelerator, model, optimizer, out=out))(fetched):
        optimizer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
    metered.close()
    accelerator.end_training()


ADAPTERS: dict[str, Callable[[Loses, Paced, str | None], None]] = {
    "lightning": lightning,
    "hugging-face": hugging_face,
    "accelerate": accelerate,
}


def main() -> None:
    """Train twice, first without the meter."""
    name, batch_ms, out = sys.argv[1:]
    without = Loses()
    ADAPTERS[name](without, Paced(float(batch_ms)), None)
    ADAPTERS[name](Loses(), Paced(float(batch_ms)), out)
    print(without.step_s())


if __name__ == "__main__":
    main()
