"""Flags are made from the source of the settings: what is read there is what the settings are."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from worldsize import config
from worldsize.cli import app  # noqa: F401 - importing a command enters its flags in TAKEN
from worldsize.cli.fields import fields, first_sentence
from worldsize.cli.flags import NUMBERS, TAKEN, TYPES, Flag
from worldsize.cli.help_text import parts_of, words
from worldsize.cli.panels import METAVARS, PANEL_OF, TO_SWITCH_OFF
from worldsize.config import preset_names
from worldsize.config.text import READERS

FLAGS = [pytest.param(flag, id=f"{command} {name}") for command, taken in TAKEN.items() for name, flag in taken.items()]
WITHOUT_FLAG = {"sweep", "cells", "experiment", "replay"}
"""Of presets, files and rehearsals alone."""


def test_fields_and_flags_are_one_to_one() -> None:
    """A name in a table that no command has is a slip of the pen; so is a field that nobody can set."""
    named = {name for taken in TAKEN.values() for name in taken}
    assert named == set(PANEL_OF)
    assert {*METAVARS, *TO_SWITCH_OFF} <= named
    set_by_flags = {flag.field for flag in TAKEN["study"].values() if flag.settings == "StudySettings"}
    assert set(config.StudySettings.model_fields) - set_by_flags == WITHOUT_FLAG
    for command, kind in (
        ("comm", config.CommSettings),
        ("compare", config.CompareSettings),
        ("rehearse", config.RehearseSettings),
        ("audit", config.AuditSettings),
    ):
        assert {flag.field for flag in TAKEN[command].values()} == set(kind.model_fields)


@pytest.mark.parametrize("flag", FLAGS)
def test_types_and_words_are_those_of_the_settings(flag: Flag) -> None:
    field = getattr(config, flag.settings).model_fields[flag.field]
    kinds = {part for part in parts_of(field.annotation) if part in (bool, int, float, Path)}
    as_text = flag.field in READERS and not flag.single
    expected: Any = kinds.pop() if len(kinds) == 1 and not as_text else str
    written = flag.written
    assert (str if written.several else {**TYPES, **NUMBERS}.get(written.kind, str)) is expected
    assert not written.words or written.words == words(field)


@pytest.mark.parametrize("kind", sorted({flag.values[0].settings for flag in FLAGS}))  # type: ignore[union-attr]
def test_fields_are_read_in_the_order_of_the_settings(kind: str) -> None:
    assert list(fields(kind)) == list(getattr(config, kind).model_fields)


def test_the_help_is_the_first_sentence_and_is_inherited() -> None:
    assert first_sentence("Such as 0.8 or 80%: time\n    to it. More.") == "Such as 0.8 or 80%: time to it."
    assert first_sentence("All of it.") == "All of it."
    assert fields("TrainSettings")["steps"].help == fields("TrainingSettings")["steps"].help
    assert TAKEN["comm"]["backend"].help == TAKEN["study"]["backend"].help


def test_the_commands_load_no_settings() -> None:
    """`worldsize --help` and the tab key answer without them."""
    code = "import sys, worldsize.cli.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "worldsize.config" not in done.stdout.split()


def test_the_help_of_study_names_every_preset() -> None:
    """Its sentence is written out, for reading the folder of presets would slow down each command."""
    command = [sys.executable, "-m", "worldsize", "study", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [name for name in preset_names() if name not in shown.replace("\n", " ")] == []
