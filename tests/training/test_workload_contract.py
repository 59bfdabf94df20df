"""What breaks the contract of a workload is told at once, before any worker starts; what is told says what to do."""

from pathlib import Path
from typing import Any

import pytest
import torch

from in_process import worldsize
from workloads import HEAD, HEADS, LANGUAGE, TABULAR
from worldsize.config import CellSettings, Room, StudySettings, TrainSettings, VerifySettings, validated
from worldsize.errors import FactoryError, UsageError
from worldsize.results.records import Findings
from worldsize.training.contract import Examined, examine
from worldsize.training.probe import look

pytestmark = pytest.mark.usefixtures("clean_imports")

GOOD = f"""{HEAD}
class Good:
    def model(self):
        return nn.Linear(3, 1)
    def batches(self, rank, world_size, local_batch):
        yield {{"x": torch.full((local_batch, 3), float(rank)), "y": (torch.zeros(local_batch),)}}
    def loss(self, model, batch):
        return model(batch["x"]).mean()
    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)
"""


def examined(folder: Path, body: str, *, base: str = "Good", **settings: Any) -> Examined:
    """Look at a class with these methods in place of good ones."""
    file = folder / "mine.py"
    methods = "\n".join(f"    {line}" for line in body.splitlines())
    file.write_text(f"{GOOD}\nclass Mine({base}):\n    pass\n{methods}\n")
    cell = CellSettings(**{"workload": f"{file}:Mine", "world_size": 2, "batch_size": 4, **settings})
    return examine(cell, torch.device("cpu"), needs_every_gradient=True)


def test_a_class_that_keeps_the_contract(tmp_path: Path) -> None:
    found = examined(tmp_path, "")
    assert (found.faults, found.unused, found.same_batches) == ([], [], False)
    assert found.flops_per_sample == 2 * 3 * 2  # forward, and the gradient of the weights


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("def model(self): return 5", ["model() returned an int; a torch.nn.Module is allowed"]),
        ("def model(self): return nn.ReLU()", ["without a parameter that is trained"]),
        ("def model(self): pass", ["model() returned None; a torch.nn.Module is allowed"]),
        ("def model(self): raise KeyError('weights')", ["model() raised KeyError: 'weights'", "mine.py:"]),
        ("def model(self, size): pass", ["model(size) is given; it is called as model()"]),
        ("loss = None", ["loss(model, batch) is missing"]),
        ("loss = 'mse'", ["loss is a str, not a method"]),
        ("def batches(self, rank): pass", ["batches(rank) is given", "batches(rank, world_size, local_batch)"]),
        ("def batches(self, r, n, b): return []", ["batches(0, 2, 4) gave no batch"]),
        ("def batches(self, r, n, b): return torch.zeros(b, 3)", ["returned a float32 tensor of 4×3; an iterable"]),
        ("def batches(self, r, n, b): return 7", ["batches(0, 2, 4) returned an int; an iterable of batches"]),
        ("def batches(self, r, n, b): pass", ["batches(0, 2, 4) returned None; an iterable of batches is allowed"]),
        ("def batches(self, r, n, b): yield 'words'", ["gave a str without a tensor", "dict(batch)"]),
        (
            "def batches(self, r, n, b): yield {'x': torch.ones(3, 3)}",
            ["batch['x'] of 3×3", "local batch, which is 4"],
        ),
        ("def batches(self, r, n, b): raise OSError('no disk')", ["batches(0, 2, 4) raised OSError: no disk"]),
        (
            "def batches(self, r, n, b): yield {'x': 1 // (1 - r) * torch.ones(b, 3)}",
            ["batches(1, 2, 4) raised Zero"],
        ),
        ("batch_dimension = -1", ["batch_dimension is -1; a dimension counted from 0 is allowed, or None"]),
        ("def loss(self, m, b): return m(b['x'])", ["returned a float32 tensor of 4×1", "its mean, say"]),
        ("def loss(self, m, b): return m(b['x']).mean().item()", ["loss(model, batch) returned a float"]),
        ("def loss(self, m, b): return m(b['x']).mean().detach()", ["without a gradient", "no detach"]),
        ("def loss(self, m, b): return m(b['x']).abs().mean() / 0", ["is inf on the first batch"]),
        ("def loss(self, m, b): return m(b['z']).mean()", ["loss(model, batch) raised KeyError: 'z'"]),
        ("def loss(self, m, b): return m.weight.sum()", ["a wrapped model has no attribute 'weight'", "may only call"]),
        ("def loss(self, m, b): return torch.zeros((), requires_grad=True)", ["does not call the model"]),
        ("def optimizer(self, p): return 'adam'", ["optimizer(parameters) returned a str"]),
        ("def optimizer(self): pass", ["optimizer() is given; it is called as optimizer(parameters)"]),
        ("def optimizer(self, p): return torch.optim.LBFGS(p)", ["optimizer(parameters).step() raised TypeError"]),
    ],
)
def test_each_fault_is_told(tmp_path: Path, body: str, says: list[str]) -> None:
    with pytest.raises(FactoryError) as raised:
        examined(tmp_path, body)
    told = str(raised.value)
    assert "is no workload as docs/workload.md says (1 found):\n- " in told
    for each in says:
        assert each in told


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    body = """
def batches(self, rank, world_size, local_batch):
    yield {"x": torch.zeros(local_batch + 1, 3), "y": torch.zeros(3)}
def loss(self, model, batch):
    return model(batch["x"])
def optimizer(self, parameters):
    return None
"""
    with pytest.raises(FactoryError) as raised:
        examined(tmp_path, body, learning_rate=0.3, momentum=0.0)
    lines = str(raised.value).splitlines()
    assert lines[0].endswith("is no workload as docs/workload.md says (4 found):")
    assert "batch['x'] of 5×3, batch['y'] of 3" in lines[1]
    assert "beside which --learning-rate, --momentum would mean nothing" in lines[2]
    assert "optimizer(parameters) returned None" in lines[3]
    assert "loss(model, batch) returned a float32 tensor of 5×1" in lines[4]


def test_samples_along_another_dimension_or_uncounted(tmp_path: Path) -> None:
    turned = "def batches(self, r, n, b): yield {'x': torch.zeros(7, b, 3)}"
    for dimension in ("1", "None"):
        assert examined(tmp_path, f"batch_dimension = {dimension}\n{turned}", base="Good").faults == []
        (tmp_path / "mine.py").unlink()
        tmp_path = tmp_path / dimension
        tmp_path.mkdir()


def test_ranks_that_get_the_same_samples_are_found(tmp_path: Path) -> None:
    same = "def batches(self, r, n, b): yield {'x': torch.randn(b, 3)}"  # all ranks draw from the same seed
    assert examined(tmp_path, same).same_batches


def test_unused_parameters_are_named_with_the_flag(tmp_path: Path) -> None:
    body = "def model(self):\n    model = nn.Linear(3, 1)\n    model.other = nn.Linear(2, 2)\n    return model"
    with pytest.raises(FactoryError, match=r"depend on other\.weight, other\.bias, and ddp .*--find-unused-parameters"):
        examined(tmp_path, body)
    (tmp_path / "again").mkdir()
    found = examined(tmp_path / "again", body, find_unused_parameters=True)
    assert found.unused == ["other.weight", "other.bias"]


def study(folder: Path, source: str, *strategies: str, **settings: Any) -> Findings:
    (folder / "mine.py").write_text(source)
    values = {"workload": f"{folder}/mine.py:Mine", "strategies": strategies, "world_sizes": (1, 2), **settings}
    return look(StudySettings(**values), Room())


def test_the_look_before_the_start(tmp_path: Path) -> None:
    findings = study(tmp_path, TABULAR, "single", "ddp", global_batch=8)
    assert findings.data is None
    assert findings.model is not None
    assert findings.model.gradient_tensors == 7
    assert findings.model.parameter_bytes == 8 * findings.model.parameters
    assert findings.user_code is not None
    # What other tests have imported in this process is the user's, too.
    assert str(tmp_path / "mine.py") in [file.path for file in findings.user_code.files]
    assert findings.warnings == []


def test_without_ddp_unused_parameters_are_a_warning(tmp_path: Path) -> None:
    findings = study(tmp_path, HEADS, "single", "all-reduce")
    assert [warning.code for warning in findings.warnings] == ["unused-parameters"]
    assert "spread.weight, spread.bias" in findings.warnings[0].message
    (tmp_path / "alike").mkdir()
    same = LANGUAGE.replace("manual_seed(rank)", "manual_seed(0)")
    assert [warning.code for warning in study(tmp_path / "alike", same, "ddp").warnings] == ["same-batches"]


def test_the_command_ends_before_any_worker_starts(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}\nclass Mine:\n    def loss(self, model):\n        pass\n")
    flags = ("--workload", "mine.py:Mine", "--strategies", "ddp", "--world-sizes", 2, "--steps", 4, "--out", "out")
    done = worldsize("study", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n- ") == 3
    for each in ("model() is missing", "local_batch) is missing", "loss(model) is given"):
        assert each in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"model": "vgg11", "data": "cifar10"}, "brings its own model, data and loss: leave out model, data"),
        ({"train_samples": 5, "label_smoothing": 0.1}, "leave out train_samples, label_smoothing"),
        ({"epochs": 2, "budget": None}, "its steps are timed: leave out epochs, and give steps or budget"),
        ({"evaluate": "end"}, "leave out evaluate"),
        ({"sweep": True}, "leave out sweep"),
        ({"model": "vgg11", "epochs": 1}, "leave out model; a workload does not say"),
    ],
)
def test_settings_that_mean_nothing_beside_a_workload(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        validated(StudySettings, {"workload": "mine.py:Mine", **values})


def test_train_times_steps_and_verify_takes_no_workload() -> None:
    settings = validated(TrainSettings, {"workload": "mine.py:Mine"}).study
    assert (settings.epochs, settings.steps, settings.checkpoint) == (None, None, False)
    with pytest.raises(UsageError, match="verify proves models and data of the settings"):
        validated(VerifySettings, {"workload": "mine.py:Mine"})
    assert validated(StudySettings, settings.model_dump()) == settings  # as a run folder keeps them
