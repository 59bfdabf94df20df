"""Which further parts a study of trainings has: the same cells with other seeds, and steps in turn (method.md §10)."""

from typing import Any

import pytest

from worldsize.config import StudySettings, read_study, validated
from worldsize.study.experiment import further_parts


def parts(preset: str = "", largest_world: int = 2, samples: int = 50_000, **given: Any) -> dict[str, StudySettings]:
    values = {**(read_study(preset) if preset else {}), **given}
    return further_parts(validated(StudySettings, values), largest_world, samples)


def test_each_further_seed_trains_the_same_cells_in_a_part_of_its_own() -> None:
    given: dict[str, Any] = {"epochs": 3, "seed": 7, "seeds": 3, "batch_sizes": (8, 16), "momentum": 0.5}
    found = parts(**given)
    assert list(found) == ["seed8", "seed9"]
    for seed, part in zip((8, 9), found.values(), strict=True):
        assert part == validated(StudySettings, {**given, "seed": seed, "seeds": 1})


@pytest.mark.parametrize("given", [{}, {"steps": 20}, {"epochs": 2}])
def test_nothing_is_added_where_nobody_asked_for_it(given: dict[str, Any]) -> None:
    assert parts(**given) == {}


def test_a_target_has_the_steps_of_the_same_cells_timed_in_turn() -> None:
    given: dict[str, Any] = {
        "epochs": 3,
        "lr_schedule": "cosine",
        "checkpoint": True,
        "max_restarts": 1,
        "batch_sizes": (8, 16),
    }
    [(name, part)] = parts(**given, target_accuracy=0.8).items()
    assert name == "throughput"
    assert part.epochs is None
    assert part.steps is not None
    assert part.steps >= 10, "an interval needs five blocks of two steps"
    assert part.batch_sizes == (8, 16)
    assert validated(StudySettings, part.model_dump()) == part, "a study that can be resumed"
    assert parts(**given, target_accuracy=0.8, largest_world=1) == {}, "one worker is as fast as itself"


def test_the_preset_trains_with_three_seeds_to_a_target_and_its_first_part_times_the_steps() -> None:
    found = parts("ddp-large-batch", largest_world=4)
    assert list(found) == ["accuracy", "accuracy-seed1", "accuracy-seed2", "demonstrations"]
    trained = list(found.values())[:3]
    assert [part.seed for part in trained] == [0, 1, 2]
    assert len({part.cells for part in trained}) == 1
    assert all(part.target_accuracy == read_study("ddp-large-batch")["target_accuracy"] for part in trained)
    shown = found["demonstrations"]
    assert (shown.seeds, shown.target_accuracy) == (1, None)


@pytest.mark.parametrize(
    "given",
    [{"batch_sizes": (16, 32)}, {"world_sizes": (2, 4)}, {"strategies": ("ddp",)}, {"epochs": 1, "steps": None}],
)
def test_where_the_first_part_does_not_time_both_configurations_a_part_does(given: dict[str, Any]) -> None:
    found = parts("ddp-large-batch", largest_world=4, **given)
    part = found["throughput"]
    assert [(cell.strategy, cell.world_size, cell.batch_size) for cell in part.cells] == [
        ("single", 1, 128),
        ("ddp", 4, 512),
    ]
    assert part.epochs is None
    assert part.steps == (22 if "epochs" in given else 60)
    assert validated(StudySettings, part.model_dump()) == part


def test_a_budget_is_that_of_the_first_part_alone() -> None:
    found = parts("ddp-large-batch", largest_world=4, steps=None, budget="5min")
    assert {part.budget for part in found.values()} == {None}
