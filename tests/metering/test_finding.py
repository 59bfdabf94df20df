"""What is seen of the loaders of a script."""

import threading

import torch
from torch.utils.data import DataLoader, TensorDataset

from worldsize.hook.finding import Finder
from worldsize.hook.watch import Watch
from worldsize.measure.timeline import Step


def test_to_make_an_iterator_is_to_wait_for_data() -> None:
    """Its processes begin then, and its sampler draws the order: a loop may do so in each step."""
    model, steps = torch.nn.Linear(4, 1), list[Step]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    errors = list[Exception]()
    watch = Watch(None, None, lambda step, samples, epoch: steps.append(step), errors.append, by_optimizer=True)
    try:
        Finder(watch)
        for _ in range(4):
            [batch] = next(iter(DataLoader(TensorDataset(torch.ones(8, 4)), 4)))
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        watch.close()
    assert not errors
    begun = [[name for name, _ in step.phases][:4] for step in steps[1:]]
    assert begun == [["other", "data_wait", "other", "data_wait"]] * len(begun)
    assert len(begun) >= 2


def test_a_loader_of_another_thread_holds_up_no_step() -> None:
    """It hands its batches on; what the training thread waits for is that."""
    model, names = torch.nn.Linear(4, 1), list[list[str]]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def stepped(step: Step, samples: int, epoch: int) -> None:
        finder.stepped()
        names.append([name for name, _ in step.phases])

    watch = Watch(None, None, stepped, lambda error: None, by_optimizer=True)
    made = list[torch.Tensor]()

    def load() -> None:
        made.extend(batch for [batch] in DataLoader(TensorDataset(torch.ones(8, 4)), 4))

    try:
        finder = Finder(watch)
        for _ in range(4):
            beside = threading.Thread(target=load)
            beside.start()
            beside.join()
            model(made.pop()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        watch.close()
    assert all("data_wait" not in each for each in names[1:])
    assert len(names) >= 3
