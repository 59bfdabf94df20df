"""The look before the start: what is there, what is refused, what is wrong."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tiny import tiny_settings
from worldsize.config import Question, Room, StudySettings
from worldsize.errors import UnknownNameError
from worldsize.training.probe import look, main

pytestmark = pytest.mark.usefixtures("clean_imports")


def study(folder: Path, *strategies: str, **settings: Any) -> StudySettings:
    return StudySettings(model=tiny_settings(folder).model, data="digits", strategies=strategies, **settings)


def test_data_model_and_processes_are_found(tmp_path: Path) -> None:
    findings = look(study(tmp_path, "single", "data-parallel", "ddp", world_sizes=(1, 3)), Room())
    assert findings.data is not None
    assert (findings.data.train_samples, findings.data.test_samples) == (1437, 360)
    assert findings.model is not None
    assert findings.model.gradient_tensors == 8
    assert findings.processes == {
        "single@1": 1,
        "data-parallel@1": 1,
        "data-parallel@3": 1,
        "ddp@1": 1,
        "ddp@3": 3,
    }
    assert list(findings.refused) == ["single@3"]
    assert "world size 1 only" in findings.refused["single@3"]


def test_a_mistake_is_raised(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="horovod"):
        look(study(tmp_path, "horovod"), Room())


@pytest.mark.parametrize(
    ("strategy", "key", "says"), [("ddp", "data", "digits"), ("horovod", "error", "unknown strategy")]
)
def test_the_answer_is_the_last_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    strategy: str,
    key: str,
    says: str,
) -> None:
    question = Question(settings=study(tmp_path, strategy), room=Room(cores=2))
    monkeypatch.setattr("sys.stdin", io.StringIO(question.model_dump_json()))
    assert main() == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert says in str(answer[key])
    assert answer.get("exit_status") == (2 if key == "error" else None)
