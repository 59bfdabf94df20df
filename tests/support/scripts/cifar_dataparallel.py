"""Train a small network on pictures, with DataParallel where there are GPUs."""

import os

import torch
import torch.nn as nn
import torch.optim as optim

device = "cuda" if torch.cuda.is_available() else "cpu"
best = 0.0


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 3, 16, 16, generator=generator)
        self.y = torch.randint(10, (count,), generator=generator)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


trainloader = torch.utils.data.DataLoader(Pictures(240, 0), batch_size=24, shuffle=True, num_workers=2)
testloader = torch.utils.data.DataLoader(Pictures(60, 1), batch_size=30, shuffle=False)

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(256, 10),
).to(device)
net = nn.DataParallel(net)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)


def train(epoch):
    print(f"\nEpoch: {epoch}")
    net.train()
    train_loss, correct, total = 0.0, 0, 0
    for inputs, targets in trainloader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
        total += targets.size(0)
        correct += outputs.max(1)[1].eq(targets).sum().item()


def test(epoch):
    global best
    net.eval()
    correct = total = 0
    with torch.no_grad():
        for inputs, targets in testloader:
            correct += net(inputs.to(device)).max(1)[1].eq(targets.to(device)).sum().item()
            total += targets.size(0)
    if 100.0 * correct / total > best:
        os.makedirs("checkpoint", exist_ok=True)
        torch.save({"net": net.state_dict(), "acc": correct, "epoch": epoch}, "./checkpoint/ckpt.pth")
        best = 100.0 * correct / total


for epoch in range(200):
    train(epoch)
    test(epoch)
    scheduler.step()
