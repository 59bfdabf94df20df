"""A grid becomes cells: the rules of the grid, with the processes that the real strategies say they take."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fake_cells import findings
from nodes_here import NodesHere
from worldsize.config import Room, StudySettings, chosen_world_sizes
from worldsize.errors import DataError, UsageError
from worldsize.study.plan import PlannedCell, baseline_of, left_out, make_plan
from worldsize.traits import MULTI_WORKER_STRATEGIES

EVERY = ("single", *MULTI_WORKER_STRATEGIES)


def plan(*, cores: int = 4, gpus: int = 0, samples: int = 1000, **settings: Any) -> list[PlannedCell]:
    wanted = StudySettings(**settings)
    sizes = chosen_world_sizes(wanted, Room(cores=cores), gpus)
    return make_plan(wanted, findings(gpus=gpus, samples=samples, world_sizes=sizes), tuple(range(cores)))


def ids(cells: list[PlannedCell]) -> list[str]:
    return [cell.id for cell in cells]


def test_order_is_batch_then_world_size_then_strategy_as_given() -> None:
    cells = plan(strategies=("ddp", "single"), world_sizes=(2, 1), batch_sizes=(8, 4))
    assert ids(cells) == ["ddp-w1-b8", "single-w1-b8", "ddp-w2-b8", "ddp-w1-b4", "single-w1-b4", "ddp-w2-b4"]


def test_two_cells_of_one_name_are_refused() -> None:
    twice = {"strategy": "ddp", "world_size": 2, "batch_size": 4}
    with pytest.raises(
        UsageError, match=r"two cells would be named ddp-w2-b4 .strategy 'ddp'.\nGive each cell a label"
    ):
        plan(cells=(twice, twice))
    apart = plan(cells=(twice, {**twice, "label": "again"}))
    assert ids(apart) == ["ddp-w2-b4", "ddp-w2-b4-again"]
    found = findings(samples=1000)
    processes = {**found.processes, "a.b:C@1": 1, "a_b.C@1": 1}
    settings = StudySettings(strategies=("a.b:C", "a_b.C"), world_sizes=(1,))
    with pytest.raises(UsageError, match=r"named a_b_C-w1-b32 .strategy 'a.b:C' and 'a_b.C'."):
        make_plan(settings, found.model_copy(update={"processes": processes}), (0,))


def test_what_cannot_be_a_cell_is_the_users_mistake() -> None:
    outside = {"strategy": "ddp", "world_size": 2, "batch_size": 4, "label": "../../outside"}
    with pytest.raises(UsageError, match=r"label: '../../outside' was given"):
        plan(cells=(outside,))


@pytest.mark.parametrize("evenly", [False, True])
def test_workers_get_the_cores_of_the_node_that_they_are_on(evenly: bool) -> None:
    """The plan and the cluster must put them on the same nodes: spread, none shares its cores."""
    settings = StudySettings(strategies=("ddp",), world_sizes=(2, 4), batch_sizes=(4,), threads_per_worker=2)
    cells = make_plan(settings, findings(samples=1000), (0, 1, 2), NodesHere((2, 2), evenly=evenly))
    two, four = (cell.placement for cell in cells)
    assert two.cores == (((0, 1), (0, 1)) if evenly else ((0, 1), (2, 0)))
    assert two.oversubscribed is not evenly
    assert four.cores == ((0, 1), (2, 0)) * 2
    assert four.oversubscribed


@pytest.mark.parametrize(
    ("cores", "hosts", "expected"),
    [(2, 4, ((0,), (1,), (0,), (1,))), (8, 2, ((0, 1, 2, 3), (4, 5, 6, 7))), (1, 2, ((0,), (0,)))],
)
def test_ranks_of_a_rehearsal_are_pinned_to_their_shares_and_oversubscribe_nothing(
    cores: int, hosts: int, expected: tuple[tuple[int, ...], ...]
) -> None:
    replay = {"run": "made", "parameters": 1, "parameter_bytes": 4, "buffer_bytes": 0, "gradient_tensors": 1}
    asked: dict[str, Any] = {"strategies": ("ddp",), "world_sizes": (hosts,), "hosts": hosts, "threads_per_worker": 1}
    [cell] = plan(cores=cores, **asked, replay=replay)
    assert cell.placement.cores == expected
    assert (cell.placement.threads_per_worker, cell.placement.oversubscribed) == (1, False)


def test_several_workers_in_one_process_are_not_on_several_hosts() -> None:
    settings = StudySettings(strategies=EVERY, world_sizes=(1, 2), hosts=2)
    found = findings(samples=1000)
    cells = make_plan(settings, found, (0, 1))
    assert "data-parallel-w1-b32" in ids(cells)
    assert "data-parallel-w2-b32" not in ids(cells)
    assert "ddp-w2-b32" in ids(cells)
    [warning] = left_out(settings, found)
    assert "data-parallel with 2 workers" in warning.message
    without = settings.model_copy(update={"hosts": None})
    assert left_out(without, found) == []
    alone = StudySettings(strategies=("data-parallel",), world_sizes=(1, 2), hosts=2)
    assert len(left_out(alone, found)) == 1, "also where nothing else is left"
    with pytest.raises(UsageError, match="Leave --hosts or --nodes out"):
        plan(strategies=("data-parallel",), world_sizes=(2,), hosts=2)


@pytest.mark.parametrize(
    ("baseline", "strategies", "at_one"),
    [
        ("single", ("ddp", "single", "all-reduce"), ["single"]),
        ("wrapped", ("ddp", "single", "all-reduce"), ["ddp", "all-reduce"]),
        ("both", ("ddp", "single", "all-reduce"), ["ddp", "single", "all-reduce"]),
        ("single", ("ddp", "all-reduce"), ["ddp", "all-reduce"]),
        ("wrapped", ("single",), ["single"]),
    ],
)
def test_what_runs_with_one_worker(baseline: str, strategies: tuple[str, ...], at_one: list[str]) -> None:
    cells = plan(strategies=strategies, world_sizes=(1,), baseline=baseline)
    assert [cell.settings.strategy for cell in cells] == at_one


@pytest.mark.parametrize("baseline", ["single", "wrapped", "both"])
def test_the_baseline_changes_nothing_above_one_worker(baseline: str) -> None:
    cells = plan(strategies=EVERY, world_sizes=(1, 2, 4), baseline=baseline)
    for size in (2, 4):
        at_size = [cell.settings.strategy for cell in cells if cell.settings.world_size == size]
        assert at_size == list(MULTI_WORKER_STRATEGIES)


def test_single_without_a_world_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match="world size"):
        plan(strategies=("single", "ddp"), world_sizes=(2,))


def test_more_workers_than_gpus_are_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError) as caught:
        plan(gpus=2, strategies=("ddp",), world_sizes=(1, 4))
    assert str(caught.value).splitlines() == [
        "world size 4 was given; this machine has 2 GPU(s)",
        "Use at most 2, or --backend gloo to run on the CPU.",
    ]
    on_cpu = plan(gpus=2, strategies=("ddp",), world_sizes=(1, 4), backend="gloo")
    assert {(cell.placement.device, cell.placement.backend) for cell in on_cpu} == {("cpu", "gloo")}


def test_gpus_are_used_where_they_are() -> None:
    for backend in ("auto", "nccl"):
        cells = plan(gpus=2, strategies=("ddp",), world_sizes=(1, 2), backend=backend)
        assert {(cell.placement.device, cell.placement.backend) for cell in cells} == {("cuda", "nccl")}


def test_nccl_without_gpus_is_refused() -> None:
    with pytest.raises(UsageError, match=r"nccl needs GPUs.*--backend gloo"):
        plan(strategies=("ddp",), backend="nccl")


def test_a_batch_above_the_data_of_a_worker_is_refused() -> None:
    assert ids(plan(samples=100, strategies=("ddp",), world_sizes=(4,), batch_sizes=(25,))) == ["ddp-w4-b25"]
    with pytest.raises(DataError) as caught:
        plan(samples=100, strategies=("ddp",), world_sizes=(1, 4), batch_sizes=(4, 26))
    assert str(caught.value).splitlines() == [
        "batch size 26 was given; each of 4 worker(s) has 25 of the 100 training samples",
        "Use a batch size of at most 25.",
    ]


def test_more_workers_than_samples_are_refused() -> None:
    """No batch size could help here, so none is proposed."""
    with pytest.raises(DataError) as caught:
        plan(samples=3, strategies=("ddp",), world_sizes=(4,), batch_sizes=(1,))
    assert str(caught.value) == "world size 4 was given; there are only 3 training samples\nUse at most 3 worker(s)."


def test_every_cell_gets_the_same_threads_the_baseline_included() -> None:
    cells = plan(cores=8, strategies=EVERY, world_sizes=(1, 2, 4))
    assert {cell.placement.threads_per_worker for cell in cells} == {2}
    assert {cell.settings.threads_per_worker for cell in cells} == {2}, "it is in the record of the cell"
    assert not any(cell.placement.oversubscribed for cell in cells)


def test_a_budget_begins_with_one_worker_that_has_all_cores_at_its_batch_and_the_global_one() -> None:
    cells = plan(strategies=("single", "ddp"), world_sizes=(1, 2), batch_sizes=(8,), budget="60s")
    assert ids(cells)[:2] == ["single-w1-b8-all-cores", "single-w1-b16-all-cores"]
    assert [cell.placement.threads_per_worker for cell in cells[:2]] == [4, 4]
    assert {cell.placement.threads_per_worker for cell in cells[2:]} == {2}
    assert [baseline_of(cell, cells) for cell in cells[:2]] == [None, None]
    assert [found.id for cell in cells[2:] if (found := baseline_of(cell, cells))] == ["single-w1-b8"]


def test_with_one_global_batch_it_has_that() -> None:
    cells = plan(strategies=("single", "ddp"), world_sizes=(1, 4), global_batch=64, budget="60s")
    assert [cell.id for cell in cells if cell.alone] == ["single-w1-b64-all-cores"]


@pytest.mark.parametrize(
    "asked",
    [
        {"steps": 8},  # what is typed is what is run
        {"budget": "60s", "baseline": "wrapped"},
        {"budget": "60s", "world_sizes": (1,)},
        {"budget": "60s", "gpus": 2},  # each worker brings a device of its own
        {"budget": "60s", "cores": 1},  # one worker has all of it anyway
        {"budget": "60s", "strategies": ("ddp",)},
    ],
)
def test_it_is_in_no_plan_that_says_otherwise(asked: dict[str, Any]) -> None:
    cells = plan(**{"strategies": ("single", "ddp"), "world_sizes": (1, 2), "batch_sizes": (8,), **asked})
    assert not [cell.id for cell in cells if cell.alone]


def test_cells_with_more_threads_than_cores_are_marked() -> None:
    cells = plan(cores=2, strategies=("ddp",), world_sizes=(1, 2, 3))
    assert {cell.id: cell.placement.oversubscribed for cell in cells} == {
        "ddp-w1-b32": False,
        "ddp-w2-b32": False,
        "ddp-w3-b32": True,
    }
    asked = plan(cores=2, strategies=("ddp",), world_sizes=(1, 2), threads_per_worker=2)
    assert [cell.placement.oversubscribed for cell in asked] == [False, True]


def test_data_parallel_drives_all_workers_from_one_process() -> None:
    [cell] = plan(strategies=("data-parallel",), world_sizes=(4,))
    assert cell.placement.processes == 1
    assert len(cell.placement.cores) == 4


def test_names_given_twice_make_one_cell() -> None:
    cells = plan(strategies=("ddp", "ddp"), world_sizes=(2, 2), batch_sizes=(4, 4))
    assert ids(cells) == ["ddp-w2-b4"]


@hypothesis_settings(deadline=None, max_examples=60)
@given(
    strategies=st.lists(st.sampled_from(EVERY), min_size=1, max_size=7),
    world_sizes=st.none() | st.lists(st.integers(1, 8), min_size=1, max_size=4),
    batch_sizes=st.lists(st.integers(1, 64), min_size=1, max_size=3),
    baseline=st.sampled_from(["single", "wrapped", "both"]),
    threads=st.none() | st.integers(1, 4),
    cores=st.integers(1, 16),
    samples=st.integers(1, 400),
)
def test_what_holds_of_every_plan(
    strategies: list[str],
    world_sizes: list[int] | None,
    batch_sizes: list[int],
    baseline: str,
    threads: int | None,
    cores: int,
    samples: int,
) -> None:
    sizes = world_sizes or chosen_world_sizes(StudySettings(), Room(cores=cores), 0)
    given_values: dict[str, Any] = {
        "strategies": tuple(strategies),
        "world_sizes": world_sizes and tuple(world_sizes),
        "batch_sizes": tuple(batch_sizes),
        "baseline": baseline,
        "threads_per_worker": threads,
    }
    largest = 1 if set(strategies) == {"single"} else max(sizes)
    fits = max(batch_sizes) * largest <= samples
    runs = "single" not in strategies or 1 in sizes
    if not (fits and runs):
        with pytest.raises(UsageError):
            plan(cores=cores, samples=samples, **given_values)
        return
    cells = plan(cores=cores, samples=samples, **given_values)
    assert cells
    assert len(set(ids(cells))) == len(cells)
    assert len({cell.placement.threads_per_worker for cell in cells}) == 1
    for cell in cells:
        s, placement = cell.settings, cell.placement
        assert s.world_size == 1 or s.strategy != "single"
        assert s.global_batch <= samples
        assert [len(own) for own in placement.cores] == [placement.threads_per_worker] * s.world_size
        used = [core for own in placement.cores for core in own]
        assert set(used) <= set(range(cores))
        assert placement.oversubscribed == (len(set(used)) < len(used))
    # Every world size and every local batch that was asked for is there, unless single alone cannot be.
    for size in sizes:
        if size == 1 or set(strategies) != {"single"}:
            assert sum(cell.settings.world_size == size for cell in cells) >= len(set(batch_sizes))
    assert math.gcd(*(len(cells), len(set(batch_sizes)))) == len(set(batch_sizes)), "each batch has the same cells"
