import textwrap
from pathlib import Path

import pytest
import torch

from worldsize.config import TrainingSettings
from worldsize.data import DataSet, MapStyle, TensorPair, load_data, training_batches
from worldsize.errors import FactoryError


def load_text(folder: Path, text: str) -> DataSet:
    path = folder / "mine.py"
    path.write_text(
        "import torch\nfrom torch.utils.data import Dataset, IterableDataset, TensorDataset\n" + textwrap.dedent(text)
    )
    return load_data(TrainingSettings(data=f"{path}:make"))


def test_a_pair_of_tensors_is_used_as_it_is(tmp_path: Path) -> None:
    data = load_text(tmp_path, "def make(): return torch.arange(48.).view(4, 3, 2, 2), torch.tensor([0, 2, 1, 2])")
    assert isinstance(data.train, TensorPair)
    assert data.test is None
    assert (data.shape, data.classes, data.verification) == ((3, 2, 2), 3, "user")
    record = data.record()
    assert (record.train_samples, record.test_samples) == (4, 0)
    assert data.location == str(tmp_path / "mine.py")
    batches = training_batches(data, loader="batched", loader_workers=0, seed=0, global_batch=4, share=slice(0, 4))
    inputs, labels = next(batches.epoch(0))
    assert sorted(inputs.flatten(1)[:, 0].tolist()) == [0, 12, 24, 36]
    assert labels.tolist() == [[0, 2, 1, 2][int(x) // 12] for x in inputs.flatten(1)[:, 0]]


def test_bytes_are_scaled(tmp_path: Path) -> None:
    data = load_text(
        tmp_path,
        "def make(): return torch.full((2, 1, 2, 2), 51, dtype=torch.uint8), torch.zeros(2, dtype=torch.int32)",
    )
    batches = training_batches(data, loader="batched", loader_workers=0, seed=0, global_batch=2, share=slice(0, 2))
    inputs, labels = next(batches.epoch(0))
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs, torch.full((2, 1, 2, 2), 0.2))
    assert labels.dtype == torch.int64


def test_a_factory_with_train_gives_both_parts(tmp_path: Path) -> None:
    data = load_text(
        tmp_path,
        """
        def make(train):
            n = 6 if train else 2
            return torch.zeros(n, 1, 4, 4), torch.arange(n)
        """,
    )
    assert data.test is not None
    assert (len(data.train), len(data.test), data.classes) == (6, 2, 6)


def test_a_dataset_may_name_its_classes(tmp_path: Path) -> None:
    data = load_text(
        tmp_path,
        """
        def make():
            data = TensorDataset(torch.zeros(3, 1, 4, 4), torch.tensor([0, 1, 1]))
            data.classes = ["cat", "dog", "fox", "owl"]
            return data
        """,
    )
    assert isinstance(data.train, MapStyle)
    assert (data.classes, data.shape) == (4, (1, 4, 4))


def test_otherwise_its_labels_are_scanned_over_the_whole_set(tmp_path: Path) -> None:
    data = load_text(
        tmp_path,
        """
        class Sorted(Dataset):
            reads = 0
            def __len__(self): return 5000
            def __getitem__(self, i):
                Sorted.reads += 1
                assert Sorted.reads <= 1002, "too many samples were read"
                return torch.zeros(2), i // 1000
        def make(): return Sorted()
        """,
    )
    assert data.classes == 5


def test_a_module_may_be_named_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_with_data.py").write_text(
        "import torch\ndef make(): return torch.zeros(2, 3), torch.tensor([0, 1])"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert load_data(TrainingSettings(data="module_with_data:make")).classes == 2


PAIR = r"a map-style torch Dataset or a pair \(inputs, labels\) of tensors"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return None", f"returned None; allowed: {PAIR}"),
        ("return torch.zeros(3)", f"returned float32 tensor of 3; allowed: {PAIR}"),
        ("return {'a': 1}", f"returned dict; allowed: {PAIR}"),
        ("return (torch.zeros(3, 3),)", r"returned a tuple of \(float32 tensor of 3×3\); allowed"),
        ("return torch.zeros(3, 3), [0, 1, 2]", r"returned a tuple of \(float32 tensor of 3×3, list\); allowed"),
        ("return torch.zeros(3, 3), torch.zeros(2).long()", "3 inputs and 2 labels"),
        ("return torch.zeros(3, 3), torch.zeros(3)", "labels must be integers of shape N"),
        ("return torch.zeros(3, 3), torch.zeros(3, 1).long()", "labels must be integers of shape N"),
        ("return torch.zeros(3, 3).long(), torch.zeros(3).long()", "allowed: floats or uint8"),
        ("return torch.zeros(3), torch.zeros(3).long()", "allowed: floats or uint8"),
        ("return torch.zeros(0, 3), torch.zeros(0).long()", "without samples"),
        ("return torch.zeros(3, 3), torch.tensor([0, -1, 2])", "a label is -1"),
        (
            "class Stream(IterableDataset):\n        __iter__ = __len__ = None\n    return Stream()",
            "returned Stream; allowed",
        ),
        ("return TensorDataset(torch.zeros(0, 3), torch.zeros(0).long())", "without samples"),
        ("return TensorDataset(torch.zeros(2, 3))", r"sample 0 is tuple; allowed: \(tensor, label as an integer\)"),
        (
            "return TensorDataset(torch.zeros(2, 3), torch.zeros(2))",
            r"sample 0 is \(float32 tensor of 3, float32 tensor",
        ),
        ("return TensorDataset(torch.zeros(2, 3), torch.tensor([-2, 0]))", "a label is -2"),
        ("raise KeyError('which')", r"raised KeyError: 'which' \(.*mine\.py:4\)"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_allowed(tmp_path: Path, body: str, told: str) -> None:
    with pytest.raises(FactoryError, match=told) as caught:
        load_text(tmp_path, f"def make():\n    {body}")
    assert len(str(caught.value).splitlines()) <= 2


def test_a_dataset_that_raises_is_told_with_its_line(tmp_path: Path) -> None:
    text = """
        class Broken(Dataset):
            def __len__(self): return 3
            def __getitem__(self, i): return torch.load("absent.pt")
        def make(): return Broken()
        """
    with pytest.raises(FactoryError, match=r"sample 0 of .*mine\.py:make raised FileNotFoundError: .*mine\.py:6\)"):
        load_text(tmp_path, text)


def test_both_parts_must_have_the_same_shape(tmp_path: Path) -> None:
    text = """
        def make(train):
            return torch.zeros(2, 1, 4, 4 if train else 5), torch.zeros(2).long()
        """
    with pytest.raises(FactoryError, match="training samples are 1×4×4, test samples 1×4×5"):
        load_text(tmp_path, text)
