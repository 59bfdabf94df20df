"""Each default has one home: what a command runs without flags, the function of the package runs without arguments."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import worldsize
from made_runs import make_run, usual_cells
from worldsize.cli import app as commands
from worldsize.cli import run as cli_run
from worldsize.config import CompareSettings, StudySettings, SweepSettings, TrainSettings, VerifySettings
from worldsize.study import experiment
from worldsize.study import verify as study_verify


class Caught(Exception):  # noqa: N818 - what would be run, and no error
    """Settings on their way to what would run them."""


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], dict[str, Any]]:
    """The settings that a call would run."""

    def catch(settings: Any, *_: Any, **__: Any) -> None:
        raise Caught(settings)

    monkeypatch.setattr(experiment, "run_experiment", catch)
    monkeypatch.setattr(cli_run, "run_and_show", catch)
    monkeypatch.setattr(study_verify, "run_verify", catch)

    def call(function: Callable[[], Any]) -> dict[str, Any]:
        with pytest.raises(Caught) as caught:
            function()
        settings = caught.value.args[0]
        assert type(settings) in (StudySettings, VerifySettings)
        return dict(settings.model_dump())

    return call


def typed(line: str) -> Callable[[], Any]:
    group: Any = get_command(commands.app)
    return lambda: group.main(line.split(), prog_name="worldsize", standalone_mode=False)


BOTH: list[tuple[str, str, dict[str, Any]]] = [
    ("train", "", {}),
    ("train", "--world-size 2", {"world_size": 2}),
    ("train", "--world-size 2 --strategy all-reduce", {"world_size": 2, "strategy": "all-reduce"}),
    ("train", "--batch-size 7", {"batch_size": 7}),
    ("train", "--steps 5", {"steps": 5}),
    ("train", "--epochs 3", {"epochs": 3}),
    ("train", "--no-checkpoint", {"checkpoint": False}),
    ("study", "", {}),
    ("study", "--world-sizes 1,2 --strategies ddp", {"world_sizes": (1, 2), "strategies": ("ddp",)}),
    ("study", "--epochs 2", {"epochs": 2}),
    ("verify", "", {}),
    ("verify", "--world-sizes 2", {"world_sizes": (2,)}),
    ("verify", "--batch-size 2 --precision bf16", {"batch_sizes": (2,), "arithmetic": "bf16"}),
]


@pytest.mark.parametrize(("name", "flags", "arguments"), BOTH)
def test_a_command_and_its_function_run_the_same(
    name: str, flags: str, arguments: dict[str, Any], settings_of: Callable[[Callable[[], Any]], dict[str, Any]]
) -> None:
    by_hand = settings_of(lambda: getattr(worldsize, name)(**arguments))
    assert settings_of(typed(f"{name} {flags}")) == by_hand


@pytest.mark.parametrize(
    ("name", "kind"), [("train", TrainSettings), ("study", StudySettings), ("sweep", SweepSettings)]
)
def test_no_command_changes_a_default_of_its_settings(
    name: str, kind: type[StudySettings], settings_of: Callable[[Callable[[], Any]], dict[str, Any]]
) -> None:
    """Field by field, so a default that is set in a command again has a name."""
    run, wanted = settings_of(typed(name)), kind().model_dump()
    assert {field: run[field] for field in StudySettings.model_fields} == wanted


def test_flags_say_nothing_where_they_are_not_given() -> None:
    """No flag has a default of its own but those that are off."""
    group: Any = get_command(commands.app)
    for name in ("train", "study", "sweep", "verify", "comm"):
        for parameter in group.commands[name].params:
            assert parameter.default in (None, False), f"{name} {parameter.name}"


def test_compare_has_the_defaults_of_its_settings() -> None:
    signature = inspect.signature(worldsize.compare)
    defaults = {name: each.default for name, each in signature.parameters.items() if each.default is not each.empty}
    assert defaults == CompareSettings().model_dump()


@pytest.mark.parametrize("name", ["train", "study"])
def test_what_is_gone_on_with_keeps_its_settings(
    name: str, tmp_path: Path, settings_of: Callable[[Callable[[], Any]], dict[str, Any]]
) -> None:
    make_run(tmp_path, usual_cells(blocks=1))
    stored = dict(worldsize.load_run(tmp_path).study.asked.model_dump())
    assert settings_of(typed(f"{name} --resume --out {tmp_path}")) == stored
    assert settings_of(lambda: getattr(worldsize, name)(resume=True, out=tmp_path)) == stored
