"""A LightningModule that Lightning's Trainer fits."""

import os

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    """A convolutional net, its loss and its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, 10),
        )

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    lightning.seed_everything(0)
    data = TensorDataset(torch.randn(16384, 1, 28, 28), torch.randint(10, (16384,)))
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        max_epochs=1000,
        accelerator="cpu",
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=64, shuffle=True))


if __name__ == "__main__":
    main()
