"""Every command of the advice is taken by the real command line, and means the study with the change."""

import importlib
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from advised import SINGLE, exchanging, found, records, study
from worldsize.analysis import commands
from worldsize.analysis.commands import comm_command, focused, study_command, sweep_command, train_command
from worldsize.analysis.predict import narrow
from worldsize.cli.app import app
from worldsize.config import CellChoice, CommSettings, LaunchSettings, StudySettings, read_study, validated
from worldsize.results.records import CellRecord

CELL = exchanging(batch_size=16)
NO_TRIAL = {
    *("log", "checkpoint", "checkpoint_steps", "out", "resume", "anew", "as_json", "preset", "profile", "print_toml"),
    *("hang_timeout", "max_restarts", "min_workers"),
}
"""Flags that no command of the advice has, or has for another reason."""
BY_HAND = {"master_ip", "master_port", "num_nodes", "rank", *LaunchSettings.model_fields}
STRANGE: dict[str, Any] = {
    "model": "torchvision:resnet18",
    "data": "my data.py:sets",
    "data_dir": Path("/data/it's here"),
    "train_samples": 2000,
    "strategies": ("single", "my strategies.py:Mine"),
    "world_sizes": (1, 4),
    "batch_sizes": (8, 16),
    "baseline": "wrapped",
    "hosts": 4,
    "link": "100mbit",
    "link_latency": "200us",
    "backend": "gloo",
    "threads_per_worker": 2,
    "bucket_mb": 2.5,
    "memory_limit": "3GiB",
    "loader": "per-sample",
    "loader_workers": 0,
    "steps": 40,
    "warmup_steps": 0,
    "block_steps": 4,
    "target_interval": 0.0,
    "precision": "bf16",
    "compile": True,
    "seed": 7,
    "optimizer": "muon",
    "learning_rate": 1e-05,
    "momentum": 0.5,
    "nesterov": True,
    "clip_norm": 1.5,
    "leave_out": ("buffers",),
    "allow_oversubscribed": True,
    "evaluate": "never",
    "profile": True,
}


@pytest.fixture
def meant(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a command line means: the settings that would be run, and nothing is."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr("worldsize.cli.run.run_and_show", lambda values, *_, **__: seen.update(values=values))

    def stop(settings: CommSettings, *_: Any, **__: Any) -> None:
        seen["comm"] = settings
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("worldsize.study.comm"), "run_comm", stop)
    # What the start of the command has used up of a budget is no matter of what its line means.
    begun = importlib.import_module("worldsize.study.comm_budget")
    monkeypatch.setattr(begun, "within", lambda settings, _: settings)

    def parse(command: str) -> StudySettings | CommSettings:
        seen.clear()
        name, *arguments = shlex.split(command)
        assert name == "worldsize"
        result = CliRunner().invoke(app, arguments)
        if "comm" in seen:
            comm: CommSettings = seen["comm"]
            return comm
        assert result.exit_code == 0, result.output or result.exception
        settings: StudySettings = seen["values"]
        return settings

    return parse


def differing(one: StudySettings, other: StudySettings) -> set[str]:
    return {name for name in StudySettings.model_fields if getattr(one, name) != getattr(other, name)}


def test_a_study_with_a_change_in_every_way_of_writing_a_value(meant: Any) -> None:
    settings = validated(StudySettings, STRANGE)
    assert meant(study_command(settings)) == settings
    assert differing(meant(study_command(settings, steps=100)), settings) == {"steps"}


@pytest.mark.parametrize("preset", ["sync-ladder", "dp-scaling"])
def test_an_experiment_is_run_again_by_its_name(meant: Any, preset: str) -> None:
    settings = validated(StudySettings, {**read_study(preset), "hosts": None, "train_samples": 512})
    command = str(study_command(settings, steps=99))
    assert command.startswith(f"worldsize study {preset} ")
    assert differing(meant(command), settings) == {"steps"}


def test_a_preset_that_flags_cannot_undo_is_not_named(meant: Any) -> None:
    settings = validated(StudySettings, {**read_study("sync-ladder"), "hosts": None})
    command = str(study_command(settings, profile=False))
    assert "sync-ladder" not in command
    assert differing(meant(command), settings) == {"profile", "experiment"}


def test_with_another_strategy_it_is_no_longer_that_experiment(meant: Any) -> None:
    """DataParallel's section would be about ddp."""
    settings = validated(StudySettings, read_study("dp-scaling"))
    command = str(study_command(settings, strategies=("single", "ddp"), steps=9))
    assert "dp-scaling" not in command
    assert meant(command).strategies == ("single", "ddp")
    fewer = str(study_command(settings, strategies=("single",), steps=9))
    assert fewer.startswith("worldsize study dp-scaling "), "a part of it is still that experiment"


def test_of_an_experiment_with_further_parts_only_the_cells_are_run_again(meant: Any) -> None:
    settings = validated(StudySettings, read_study("ddp-large-batch"))
    assert differing(meant(study_command(settings)), settings) <= {
        "experiment",
        "accuracy_epochs",
        "accuracy_batch",
        "accuracy_base_batch",
        "seeds",
        "target_accuracy",
    }


def test_a_kind_of_scaling_or_a_protocol_can_be_synchronised(meant: Any) -> None:
    ladder = validated(StudySettings, read_study("sync-ladder"))
    found = meant(study_command(ladder, batch_sizes=(8, 16), global_batch=None))
    assert (found.batch_sizes, found.global_batch) == ((8, 16), None)
    epochs = validated(StudySettings, {"epochs": 3, "lr_schedule": "cosine"})
    found = meant(study_command(commands.by_steps(epochs), steps=20))
    assert (found.epochs, found.steps, found.lr_schedule) == (None, 20, "constant")


def test_cells_that_were_named_one_by_one_become_a_grid(meant: Any) -> None:
    cells = (
        CellChoice(strategy="single", world_size=1, batch_size=8),
        CellChoice(strategy="ddp", world_size=2, batch_size=8),
    )
    settings = validated(StudySettings, {"cells": cells, "steps": 4})
    found = meant(study_command(settings))
    assert (found.strategies, found.world_sizes, found.batch_sizes) == (("single", "ddp"), (1, 2), (8,))


def test_one_cell_and_what_it_is_compared_with(meant: Any, tmp_path: Path) -> None:
    analysis = study(tmp_path, [SINGLE, CELL])
    cell = analysis.cells[1]
    found = meant(focused(analysis.record.asked, cell, "ddp", "bucketed", bucket_mb="auto"))
    assert found.strategies == ("single", "ddp", "bucketed")
    assert (found.world_sizes, found.batch_sizes, found.bucket_mb) == ((1, 2), (16,), "auto")
    strong = analysis.record.asked.model_copy(update={"global_batch": 32, "batch_sizes": None})
    assert meant(focused(strong, cell)).global_batch == 32


def test_training_sweeping_and_measuring_the_link(meant: Any, tmp_path: Path) -> None:
    cell = study(tmp_path, [SINGLE, CELL]).cells[1]
    settings = validated(StudySettings, {**STRANGE, "epochs": 3, "steps": None, "lr_warmup_epochs": 1})
    trained = meant(train_command(settings, cell))
    assert (trained.strategies, trained.world_sizes, trained.batch_sizes) == (("ddp",), (2,), (16,))
    kept = set(commands.TRAIN_FLAGS) - {"profile"}
    assert {name for name in kept if getattr(trained, name) != getattr(settings, name)} == set()
    swept = meant(sweep_command(settings, cell, largest_batch=64))
    assert swept.sweep
    assert (swept.strategies, swept.world_sizes, swept.batch_sizes, swept.largest_batch) == (("ddp",), (2,), (16,), 64)
    assert {name for name in commands.SWEEP_FLAGS if getattr(swept, name) != getattr(settings, name)} == {
        "largest_batch"
    }
    link: dict[str, Any] = {
        "world_size": 4,
        "hosts": 4,
        "link_latency": "200us",
        "backend": "gloo",
        "threads_per_worker": 2,
    }
    # The usual budget would not do for one call of each size.
    assert meant(comm_command(settings, 4)) == CommSettings(**link, link="100mbit", budget="46s")
    quicker = settings.model_copy(update={"link": "10gbit"})
    assert meant(comm_command(quicker, 4)) == CommSettings(**link, link="10gbit")


def test_the_price_of_a_strategy_is_told_by_epochs_with_several_seeds(meant: Any, tmp_path: Path) -> None:
    """Whatever the study was timed by; other commands have no further seeds."""
    analysis = study(tmp_path, [SINGLE, CELL])
    whole = {"epochs": 5, "seeds": 3, "steps": None, "budget": None}
    for changes in ({"steps": 18}, {"steps": None, "budget": "60s"}, {"steps": None, "epochs": 2, "seeds": 2}):
        settings = analysis.record.asked.model_copy(update=changes)
        command = focused(settings, analysis.cells[1], "ddp", "ddp-bf16", **whole)
        found = meant(command)
        assert (found.epochs, found.seeds, found.steps, found.budget) == (5, 3, None, None)
        assert "--seeds" not in str(focused(settings, analysis.cells[1]))


def test_a_warm_up_longer_than_the_epoch_of_train_keeps_the_steps(meant: Any, tmp_path: Path) -> None:
    cell = study(tmp_path, [SINGLE, CELL]).cells[1]
    settings = StudySettings(steps=40, lr_warmup_epochs=2)
    assert meant(train_command(settings, cell)).steps == 40
    assert meant(train_command(StudySettings(steps=40), cell)).epochs == 1


@pytest.mark.parametrize("field", ["bucket_mb", "clip_norm"])
@pytest.mark.parametrize("value", [1234567.5, 1.23456789, 3.0, 1e-7, 1e22])
def test_numbers_keep_all_of_their_digits(meant: Any, field: str, value: float) -> None:
    settings = validated(StudySettings, {field: value})
    command = str(study_command(settings))
    assert getattr(meant(command), field) == value
    assert value != 3.0 or command.endswith(" 3")


def test_a_path_with_a_comma_is_no_entry_of_a_list(meant: Any, tmp_path: Path) -> None:
    cell = study(tmp_path, [SINGLE, CELL]).cells[1]
    settings = validated(StudySettings, {"strategies": ("single", "a,b.py:Mine")})
    assert study_command(settings) is None
    assert focused(settings, cell, "a,b.py:Mine") is None
    assert focused(settings, cell) is not None, "the strategy in question has none"


def test_a_cell_with_a_recipe_of_its_own_keeps_it(meant: Any, tmp_path: Path) -> None:
    own = replace(CELL, label="linear")

    def recipe(record: CellRecord) -> None:
        assert record.settings is not None
        record.settings = record.settings.model_copy(
            update={"lr_scaling": "linear", "base_batch": 16, "lr_warmup_epochs": 0.5}
        )

    analysis = study(tmp_path, [SINGLE, own], changes=[records(own, recipe)])
    settings, cell = analysis.record.asked, analysis.cells[1]
    for command in (train_command(settings, cell), focused(settings, cell)):
        kept = meant(command)
        assert (kept.lr_scaling, kept.base_batch, kept.lr_warmup_epochs) == ("linear", 16, 0.5)
    advice = found(analysis, "communication-bound")
    assert advice is not None
    assert advice.finding.startswith("ddp with 2 workers at b = 16 (linear) spends ")


def test_no_flag_of_the_command_line_is_forgotten() -> None:
    group: Any = get_command(app)
    flags = {name: {p.name for p in command.params} for name, command in group.commands.items()}
    accuracy = {"accuracy_epochs", "accuracy_batch", "accuracy_base_batch", "seeds", "target_accuracy"}
    sweeping = {"growth", "largest_batch", "resolution"}
    of_scripts = {"script", "samples_per_step", "in_place", "tuned", "one_at_a_time", "keep_outputs", "fail_above"}
    of_studies = flags["study"] - NO_TRIAL - BY_HAND
    assert of_studies - accuracy - sweeping - of_scripts == set(commands.STUDY_FLAGS) - {"profile"}
    assert of_scripts - {"keep_outputs", "fail_above"} <= set(commands.SCRIPT_FLAGS) <= of_studies
    which = {"strategy", "world_size", "batch_size"}
    assert flags["train"] - NO_TRIAL - BY_HAND - which == set(commands.TRAIN_FLAGS) - {"profile"}
    assert flags["sweep"] - NO_TRIAL - which == set(commands.SWEEP_FLAGS)
    assert set(commands.COMM_FLAGS) <= flags["comm"]


@pytest.mark.parametrize("slow", [(), ("3:100mbit",), ("1:100mbit",)])
@pytest.mark.parametrize("rate", [None, 10**9, 120_500_000])
@pytest.mark.parametrize("latency_s", [None, 2.5e-6, 0.003])
@pytest.mark.parametrize("size", [2, 4])
def test_what_would_narrow_a_forecast_is_measured_over_its_link(
    meant: Any, slow: tuple[str, ...], rate: int | None, latency_s: float | None, size: int
) -> None:
    """Over the link that was asked about, not that of the run; a slow host is left out where there is none."""
    asked = StudySettings(hosts=4, link="1gbit", link_latency="500us", slow_link=slow, steps=10)
    own = asked.emulated
    assert own is not None
    wanted = own.model_copy(update={"rate_bits_per_s": rate, "latency_s": latency_s})
    model: Any = SimpleNamespace(
        analysis=SimpleNamespace(record=SimpleNamespace(settings=asked)), wire=SimpleNamespace(hosts=own)
    )
    there: Any = SimpleNamespace(hosts=wanted)
    found = meant(narrow._study(model, size, there, batch_sizes=(24,))).emulated
    kept = {host: each for host, each in own.own_rates.items() if host < size}
    assert (found.count, found.rate_bits_per_s, found.own_rates) == (size, rate, kept)
    assert found.latency_s == (pytest.approx(latency_s) if latency_s else None)


def test_no_command_gives_a_script_another_batch() -> None:
    asked = StudySettings(script=("train.py --b 32",), steps=10)
    model: Any = SimpleNamespace(analysis=SimpleNamespace(record=SimpleNamespace(settings=asked)), wire=None)
    assert narrow._study(model, 2, model, batch_sizes=(64,), global_batch=None) is None
    assert "train.py" in str(narrow._study(model, 2, model))
