"""Three trainings that are no classifiers of images, as their authors would write them: the class of each is `Mine`."""

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
"""

LANGUAGE = f"""{HEAD}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(31, 16)
        self.attention = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 31)

    def forward(self, tokens):
        assert tokens.dtype == torch.int64, tokens.dtype
        length = tokens.shape[1]
        ahead = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        return self.head(self.attention(self.embedding(tokens), src_mask=ahead))

class Mine:
    def model(self):
        return Model()

    def batches(self, rank, world_size, local_batch):
        generator = torch.Generator().manual_seed(rank)
        while True:
            yield torch.randint(31, (local_batch, 9), generator=generator)

    def loss(self, model, tokens):
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=1e-3)
"""

TABULAR = f"""{HEAD}
from torch.utils.data import DataLoader, Dataset

class Table(Dataset):
    def __init__(self, first, step):
        self.rows = range(first, 48, step)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.rows[index])
        return {{
            "numbers": torch.randn(6, generator=generator, dtype=torch.float64),
            "kind": torch.randint(4, (), generator=generator),
            "price": torch.randn((), generator=generator, dtype=torch.float64),
        }}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(4, 3)
        self.layers = nn.Sequential(nn.Linear(9, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, numbers, kind):
        return self.layers(torch.cat([numbers, self.kinds(kind)], dim=1)).squeeze(1)

class Mine:
    def model(self):
        return Model().double()

    def batches(self, rank, world_size, local_batch):
        return DataLoader(Table(rank, world_size), local_batch, shuffle=True, drop_last=True)

    def loss(self, model, batch):
        return F.huber_loss(model(batch["numbers"], kind=batch["kind"]), batch["price"])
"""

HEADS = f"""{HEAD}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.mean = nn.Linear(16, 1)
        self.spread = nn.Linear(16, 1)

    def forward(self, inputs):
        hidden = self.body(inputs).relu()
        return self.mean(hidden), self.spread(hidden)

class Mine:
    def model(self):
        return Model()

    def batches(self, rank, world_size, local_batch):
        generator = torch.Generator().manual_seed(rank)
        return [(torch.randn(local_batch, 8, generator=generator), (torch.randn(local_batch, 1, generator=generator),))
                for _ in range(3)]

    def loss(self, model, batch):
        inputs, (wanted,) = batch
        mean, spread = model(inputs)
        return F.mse_loss(mean, wanted)
"""

ROWS = f"""{HEAD}
GENERATOR = torch.Generator().manual_seed(5)
ROWS = torch.randn(64, 6, generator=GENERATOR, dtype=torch.float64)

class Mine:
    def model(self):
        return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).double()

    def batches(self, rank, world_size, local_batch):
        for rows in ROWS.split(world_size * local_batch):
            yield rows[rank * local_batch : (rank + 1) * local_batch]

    def loss(self, model, rows):
        return F.mse_loss(model(rows[:, :5]), rows[:, 5:])

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=0.01)
"""
"""The same rows at any world size: what one worker trains on is the union of what several do."""
