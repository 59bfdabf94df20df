"""Settings are checked once, at the edge, and a mistake is told in one line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldsize.config import CellSettings, StudySettings, TrainSettings, preset_names, read_study, validated
from worldsize.errors import UsageError
from worldsize.results.files import cell_folder
from worldsize.traits import TRAITS


def refusal(values: dict[str, Any], source: str = "") -> str:
    with pytest.raises(UsageError) as caught:
        validated(StudySettings, values, source)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"precision": "fp64"}, "precision: 'fp64' was given; 'fp32' or 'bf16' is allowed"),
        ({"backend": "mpi"}, "backend: 'mpi' was given; 'auto', 'gloo' or 'nccl' is allowed"),
        ({"loader": "fast"}, "loader: 'fast' was given; 'batched' or 'per-sample' is allowed"),
        ({"baseline": "none"}, "baseline: 'none' was given; 'single', 'wrapped' or 'both' is allowed"),
        ({"steps": 0}, "steps: 0 was given; at least 1 is allowed"),
        ({"epochs": 0}, "epochs: 0 was given; at least 1 is allowed"),
        ({"seed": -1}, "seed: -1 was given; at least 0 is allowed"),
        ({"threads_per_worker": 0}, "threads_per_worker: 0 was given; at least 1 is allowed"),
        ({"learning_rate": float("nan")}, "learning_rate: nan was given; a finite number is allowed"),
        ({"target_interval": 1}, "target_interval: 100% was given; less than 100% is allowed"),
        ({"world_sizes": (1, 0)}, "world_sizes: 0 was given; each must be at least 1"),
        ({"batch_sizes": (-4,)}, "batch_sizes: -4 was given; each must be at least 1"),
        ({"world_sizes": ()}, "world_sizes: () was given; "),
        ({"strategies": 3}, "strategies: 3 was given; a list is allowed"),
        ({"strategies": ()}, "strategies: () was given; a list of at least 1 is allowed"),
        ({"world_sizes": "1,x"}, "world_sizes: '1,x' was given; whole numbers separated by commas are allowed"),
        ({"world_sizes": (1.5,)}, "world_sizes.0: 1.5 was given; a whole number is allowed"),
        ({"steps": "many"}, "steps: 'many' was given; a whole number is allowed"),
        ({"checkpoint": "maybe"}, "checkpoint: 'maybe' was given; true or false is allowed"),
        ({"learning_rate": float("inf")}, "learning_rate: inf was given; a finite number is allowed"),
        ({"target_interval": "3"}, "target_interval: '3' was given; did you mean 3%? A share such as 3% or 0.03 is"),
        ({"target_interval": "x%"}, "target_interval: 'x%' was given; a share such as 3% or 0.03 is allowed"),
        ({"bucket_mb": "tiny"}, "bucket_mb: 'tiny' was given; a number of MB above 0, or auto, is allowed"),
        ({"hosts": "some"}, "hosts: 'some' was given; a number of hosts from 2 on, auto or none is allowed"),
        ({"cells": [{"strategy": "ddp", "world_size": 2}]}, "cells.0.batch_size is missing"),
        (
            {"cells": [{"strategy": "ddp", "world_size": 2, "batch": 3}]},
            "unknown key 'cells.0.batch'; did you mean 'batch_size'?",
        ),
        (
            {"cells": [{"strategy": "ddp", "world_size": 2, "batch_size": 1, "colour": 3}]},
            "unknown key 'cells.0.colour'; a",
        ),
        ({"epochs": True}, "epochs: true was given; it is no switch"),
        ({"world-sizes": (1,), "world_sizes": (2,)}, "world_sizes is given twice, with - and with _"),
        ({"memory_limit": "lots"}, "memory_limit: 'lots' was given; a size such as 3GiB or 500MiB is allowed"),
        ({"hang_timeout": "5"}, "hang_timeout: '5' was given; a time such as 20s or 10min, or none, is allowed"),
        ({"hosts": 2, "link": "fast"}, "link: 'fast' was given; a rate such as 1gbit or 100mbit is allowed"),
        ({"hosts": "²"}, "hosts: '²' was given; a number of hosts from 2 on, auto or none is allowed"),
        ({"world_sizes": "9" * 3000}, "world_sizes"),
        ({"cells": [3]}, "cells.0: 3 was given; a table is allowed"),
        ({"colour": "red"}, "unknown key 'colour'; the flags of `worldsize study --help` are the keys"),
        ({"steps": 5, "epochs": 1}, "epochs and steps exclude each other: give one of them"),
        (
            {"batchsize": 4},
            "unknown key 'batchsize'; did you mean 'batch_sizes'?",
        ),
    ],
)
def test_a_mistake_says_what_was_given_and_what_is_allowed(values: dict[str, Any], told: str) -> None:
    assert refusal(values).startswith(told)


def test_what_a_flag_accepts_a_file_and_a_function_accept() -> None:
    given = {"strategies": "single, ddp", "world-sizes": "1,2", "batch-sizes": "16", "target-interval": "3%"}
    more = {"hosts": "2", "link": "1gbit", "bucket_mb": "5", "log": "tensorboard"}
    settings = validated(StudySettings, {**given, **more})
    assert settings.strategies == ("single", "ddp")
    assert (settings.world_sizes, settings.batch_sizes) == ((1, 2), (16,))
    assert (settings.target_interval, settings.hosts, settings.bucket_mb) == (0.03, 2, 5.0)
    assert settings.log == ("tensorboard",)
    assert validated(StudySettings, {"world_sizes": 2}).world_sizes == (2,)
    cell = {"strategy": "ddp", "world-size": 2, "batch-size": 4, "leave-out": "learning-rate"}
    assert validated(StudySettings, {"cells": [cell]}).cells[0].leave_out == ("learning-rate",)
    assert validated(TrainSettings, {"world_sizes": "1"}).strategies == ("single",)
    assert validated(TrainSettings, {"world_sizes": [2]}).strategies == ("ddp",)


def test_the_file_with_the_mistake_is_named() -> None:
    assert refusal({"steps": 0}, "my.toml").startswith("my.toml: steps: 0 was given")


@pytest.mark.parametrize("seed", [0, 2**32, 2**63 - 1])
def test_seeds_that_every_generator_takes(seed: int) -> None:
    assert validated(StudySettings, {"seed": seed}).seed == seed


def test_a_seed_that_torch_cannot_take_is_refused() -> None:
    assert refusal({"seed": 2**63}).startswith(f"seed: {2**63} was given; less than {2**63} is allowed")


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        StudySettings().steps = 5


def test_every_preset_is_a_valid_study() -> None:
    assert "default" in preset_names()
    for name in preset_names():
        assert validated(StudySettings, read_study(name), name).strategies


def test_a_study_file_has_the_names_of_the_flags(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('data = "synthetic"\nworld_sizes = [1, 2]\nstrategies = ["ddp"]\ndata_dir = "some/folder"\n')
    study = validated(StudySettings, read_study(str(file)))
    assert (study.data, study.world_sizes, study.strategies) == ("synthetic", (1, 2), ("ddp",))
    assert study.data_dir == Path("some/folder")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("nope", None, "unknown preset 'nope'; known: batch-sweep, ddp-large-batch, default, dp-scaling, sync-ladder"),
        ("missing.toml", None, "no such study file: missing.toml"),
        (
            "wrong.toml",
            b"steps = = 3\n",
            "wrong.toml cannot be read as a TOML study: Invalid value (at line 1",
        ),
        ("binary.toml", b"\xff\xfe\x00", "binary.toml cannot be read as a TOML study: 'utf-8' codec can't decode"),
    ],
)
def test_a_study_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_study(name)
    assert str(caught.value).startswith(told)
    assert len(str(caught.value).splitlines()) <= 2


def test_a_folder_is_no_study_file(tmp_path: Path) -> None:
    (tmp_path / "x.toml").mkdir()
    with pytest.raises(UsageError, match="cannot be read as a TOML study"):
        read_study(str(tmp_path / "x.toml"))


@given(strategy=st.text(min_size=1), world_size=st.integers(1, 10**6), batch_size=st.integers(1, 10**6))
def test_the_name_of_a_cell_is_the_name_of_a_folder(strategy: str, world_size: int, batch_size: int) -> None:
    cell = CellSettings(strategy=strategy, world_size=world_size, batch_size=batch_size)
    assert "/" not in cell.id
    assert "\0" not in cell.id
    assert cell_folder(Path("run"), cell.id).parent == Path("run/cells")
    assert cell.id.endswith(f"-w{world_size}-b{batch_size}")
    assert cell.global_batch == world_size * batch_size


@pytest.mark.parametrize("label", ["..", "/", "a/b", "<script>", "A", "a b", "a\n", "="])
def test_a_label_that_is_no_part_of_a_folder_name_is_refused(label: str) -> None:
    with pytest.raises(UsageError, match="label"):
        validated(CellSettings, {"label": label})


def test_auto_is_every_rung_that_may_pay_with_planned_buckets() -> None:
    settings = validated(StudySettings, {"strategies": "auto"})
    assert settings.strategies[0] == "single"
    assert {"ddp", "bucketed", "bucketed-bf16", "bucketed-int8", "bucketed-powersgd"} <= set(settings.strategies)
    assert all(TRAITS[name].buckets for name in settings.strategies[1:])
    assert (settings.bucket_mb, settings.baseline) == ("auto", "single")
    assert validated(StudySettings, {"strategies": "auto", "bucket_mb": "5"}).bucket_mb == 5


def test_auto_stands_alone() -> None:
    with pytest.raises(UsageError, match="auto stands alone"):
        validated(StudySettings, {"strategies": "auto,ddp"})
