import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from worldsize.errors import FactoryError, UnknownNameError, UsageError
from worldsize.models import build_model


def build_text(folder: Path, text: str, shape: tuple[int, ...] = (3, 8, 8), seed: int = 0) -> nn.Module:
    path = folder / "mine.py"
    path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(text))
    return build_model(f"{path}:make", classes=5, shape=shape, seed=seed)


@pytest.mark.parametrize("parameter", ["classes", "num_classes", "*, classes=3"])
def test_a_factory_is_told_the_number_of_classes(tmp_path: Path, parameter: str) -> None:
    name = parameter.removeprefix("*, ").partition("=")[0]
    model = build_text(tmp_path, f"def make({parameter}): return nn.Sequential(nn.Flatten(), nn.Linear(192, {name}))")
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


def test_a_class_is_a_factory_as_well_and_need_not_take_classes(tmp_path: Path) -> None:
    text = """
        class make(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 5)
            def forward(self, x): return self.layer(x)
        """
    first, again = build_text(tmp_path, text, (4,), seed=1), build_text(tmp_path, text, (4,), seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_the_trial_leaves_statistics_and_mode_as_they_were(tmp_path: Path) -> None:
    model = build_text(
        tmp_path, "def make(): return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(), nn.Linear(192, 5))"
    )
    assert model.training
    norm = model[0]  # type: ignore[index]
    assert norm.num_batches_tracked == 0
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return None", "returned None; allowed: a torch.nn.Module"),
        ("return nn.Linear", "returned the class Linear, not an instance; allowed: a torch.nn.Module"),
        ("return torch.zeros(2)", "returned a tensor of 2; allowed"),
        ("raise RuntimeError('no weights')", r"raised RuntimeError: no weights \(.*mine\.py:4\)"),
        ("return nn.Flatten()", ""),
        ("return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))", "is a tensor of 2×4; it must be a tensor of 2×5"),
        (
            "return nn.Sequential(nn.Flatten(), nn.Linear(3, 5))",
            "its forward on float32 inputs of 2×3×8×8 raised RuntimeError",
        ),
        ("return nn.LSTM(8, 5)", "its forward on float32"),
        ("return nn.Conv2d(3, 5, 8)", "is a tensor of 2×5×1×1"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_allowed(tmp_path: Path, body: str, told: str) -> None:
    if not told:  # more outputs than classes are allowed: cross-entropy takes them
        assert build_text(tmp_path, f"def make():\n    {body}") is not None
        return
    with pytest.raises(FactoryError, match=told) as caught:
        build_text(tmp_path, f"def make():\n    {body}")
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FactoryError, match=r"no such model file: absent\.py"):
        build_model("absent.py:make", classes=5, shape=(3, 8, 8), seed=0)


@pytest.fixture
def without_torchvision(clean_imports: None, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    return monkeypatch


def test_missing_torchvision_is_told_with_what_to_do(without_torchvision: pytest.MonkeyPatch) -> None:
    without_torchvision.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UsageError, match=r"torchvision:resnet50 needs torchvision.*\n.*pip install torchvision"):
        build_model("torchvision:resnet50", classes=5, shape=(3, 8, 8), seed=0)


def test_a_torchvision_model_is_built_without_weights(without_torchvision: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in with the three functions' documented signatures: the real one is tested below where it is there."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("")
    (tmp_path / "torchvision" / "models.py").write_text(
        textwrap.dedent("""
        from torch import nn
        def list_models(module=None): return ["tiny"]
        def get_model(name, **config):
            assert config.pop("weights", "default") is None
            return nn.Sequential(nn.Flatten(), nn.Linear(192, config.pop("num_classes")))
        """)
    )
    without_torchvision.syspath_prepend(tmp_path)
    assert build_model("torchvision:tiny", classes=5, shape=(3, 8, 8), seed=0)(torch.zeros(1, 3, 8, 8)).shape == (1, 5)
    with pytest.raises(UnknownNameError, match="unknown torchvision model 'huge'; known: tiny"):
        build_model("torchvision:huge", classes=5, shape=(3, 8, 8), seed=0)
    with pytest.raises(FactoryError, match="torchvision:tiny: its forward on float32 inputs of 2×1×8×8"):
        build_model("torchvision:tiny", classes=5, shape=(1, 8, 8), seed=0)


def test_a_real_torchvision_model() -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    model = build_model("torchvision:resnet18", classes=5, shape=(3, 64, 64), seed=0)
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 5)
