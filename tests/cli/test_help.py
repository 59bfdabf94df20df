"""Help: every flag in its panel, with its default and what is allowed, whole on 80 columns."""

import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.main import get_command

from in_process import worldsize
from worldsize.cli.app import app
from worldsize.cli.flags import TAKEN
from worldsize.cli.help_text import allowed_text, default_text, words
from worldsize.cli.panels import PANELS, RECIPE, STOPS, TRAIN, VARY, WHERE
from worldsize.traits import TRAITS

GROUP: Any = get_command(app)
PANELED = ("train", "study", "sweep", "verify", "comm")
STEERING = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES", "GITHUB_ACTIONS")


def helped(*line: str, **variables: str) -> str:
    """The help that a pipe gets."""
    kept = {name: value for name, value in os.environ.items() if name not in STEERING}
    with patch.dict(os.environ, kept, clear=True):
        done = worldsize(*line, "--help", cwd=Path(__file__).parent, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def flags(command: str) -> list[Any]:
    return [each for each in GROUP.commands[command].params if each.param_type_name == "option"]


def entries(text: str) -> dict[str, str]:
    """Flag → all that stands beside it, in one line."""
    found: dict[str, str] = {}
    flag = ""
    for line in text.splitlines():
        inside = re.fullmatch(r"│ (.*) │", line)
        if inside and (named := re.match(r"(--(?!no-)[\w-]+)(?: \S+)?  +(.*)", inside[1])):
            flag = named[1]
            found[flag] = named[2].strip()
        elif inside and flag and (more := re.fullmatch(r"(?:--[\w-]+)? {2,}(.*)", inside[1])):
            found[flag] += " " + more[1].strip()
    return found


def test_each_commands_sentence_is_whole_within_80_columns() -> None:
    text = helped()
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.replace("[ARGS]...", "")
    for name, command in GROUP.commands.items():
        [line] = [line for line in text.splitlines() if line.split()[:1] == [name]]
        assert line.split(maxsplit=1)[1] == command.help.split("\n\n")[0]


@pytest.mark.parametrize("command", PANELED)
def test_a_pipe_gets_whole_panels_without_escape_codes(command: str) -> None:
    text = helped(command, GITHUB_ACTIONS="true")
    assert "\x1b" not in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) == 80
    titles = re.findall(r"╭─ (.*?) ─+╮", text)
    explained = titles.pop() if titles[-1].startswith("Strategies") else ""
    assert titles == [name for name in PANELS if name in titles], "in this order"
    assert bool(explained) is (command != "comm")
    assert len(titles) > (3 if command != "comm" else 2)
    found = entries(text)
    for flag in flags(command):
        assert flag.help in found[flag.opts[0]], "its sentence, whole"


def test_where_the_flags_of_a_study_are() -> None:
    panels = {flag.name: flag.rich_help_panel for flag in flags("study")}
    names = ("model", "strategies", "learning_rate", "launcher", "resume")
    assert [panels[name] for name in names] == [TRAIN, VARY, RECIPE, WHERE, STOPS]
    assert set(panels.values()) <= set(PANELS)


@pytest.mark.parametrize("command", PANELED)
def test_default_and_allowed_values_are_those_of_the_settings(command: str) -> None:
    found = entries(helped(command))
    needed = {"master_ip", "num_nodes", "rank"}
    for flag in flags(command):
        told, taken = found[flag.opts[0]], TAKEN.get(command, {}).get(flag.name)
        assert ("default: " in told) == (flag.name not in needed), flag.name
        if taken is None or flag.name in needed:
            continue
        field = taken.setting
        assert f"default: {default_text(taken.field, field)}]" in told
        for word in words(field):
            assert word in told
        assert allowed_text(flag.name, field) in told or flag.is_flag


@pytest.mark.parametrize(
    ("command", "flag", "told"),
    [
        ("study", "--steps", "[at least 1; default: as many as the budget allows]"),
        ("study", "--target-interval", "[at least 0 and below 1; default: 3%]"),
        ("study", "--hosts", "[auto or at least 2; default: off]"),
        ("study", "--log", "[wandb, tensorboard or mlflow; default: none]"),
        ("study", "--nesterov", "[default: off]"),
        ("study", "--epochs", "[at least 1; default: off, steps are timed]"),
        ("train", "--epochs", "[at least 1; default: 1, unless steps are given]"),
        ("train", "--checkpoint", "[default: after each epoch]"),
        ("train", "--world-size", "[at least 1; default: 1]"),
        ("verify", "--steps", "[at least 1; default: 3]"),
        ("verify", "--precision", "[fp64, fp32 or bf16; default: fp64]"),
        ("verify", "--batch-size", "[at least 1; default: 4]"),
        ("comm", "--top", "[at least 1024; default: 16MiB]"),
        ("comm", "--world-size", "[at least 1; default: 2]"),
    ],
)
def test_some_of_them_as_they_are_read(command: str, flag: str, told: str) -> None:
    assert entries(helped(command))[flag].endswith(told)


@pytest.mark.parametrize("command", ["train", "study", "sweep", "verify"])
def test_each_strategy_is_explained_where_one_is_chosen(command: str) -> None:
    shown = " ".join(re.sub("[│╭╮╰╯─]", " ", helped(command)).split())
    assert all(traits.does and f"{name} {traits.does}" in shown for name, traits in TRAITS.items())
    assert "Strategies" not in helped("comm")
