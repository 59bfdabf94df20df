"""Every record comes back from its JSON as it was, and refuses what it does not know."""

import builtins
import types
import typing
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from worldsize.config import CellSettings, Hosts, StudySettings, VerifySettings
from worldsize.launch.slurm.files import Submissions, SubmittedJob
from worldsize.measure.machine import provenance
from worldsize.results.base import Record
from worldsize.results.baseline_records import StoredBlock
from worldsize.results.checkpoints import Part
from worldsize.results.comm_records import CommRecord, CommSample, PeerRate
from worldsize.results.comparison_records import ComparedRun, RunError, Side
from worldsize.results.records import STEP_PARTS, CellSummary, Placement, StudyRecord
from worldsize.results.replay import PHASES, Replay, ReplayedCell
from worldsize.results.samples import TakenApartStep
from worldsize.results.step_records import StepRecord
from worldsize.results.traces import ProfiledRank
from worldsize.results.training_records import DataRecord, Evaluation, ModelRecord

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""To shrink a record of records takes minutes."""
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SETTINGS: dict[Any, st.SearchStrategy[Any]] = {
    CellSettings: st.builds(
        CellSettings,
        strategy=TEXT,
        world_size=st.integers(1, 64),
        steps=st.none() | st.integers(1, 99),
        data_dir=st.none() | st.just(Path("some/folder")),
    ),
    StudySettings: st.builds(
        StudySettings,
        strategies=st.lists(TEXT, min_size=1, max_size=3).map(tuple),
        world_sizes=st.none() | st.lists(st.integers(1, 8), min_size=1, max_size=3).map(tuple),
        epochs=st.none() | st.integers(1, 9),
    ),
    VerifySettings: st.builds(VerifySettings, arithmetic=st.sampled_from(["fp64", "fp32", "bf16"])),
    ProfiledRank: st.builds(
        ProfiledRank,
        rank=st.integers(0, 99),
        steps=st.integers(0, 9),
        **dict.fromkeys(("zero_ns", "zero_error_ns", "clock_offset_ns", "clock_error_ns"), st.integers(-99, 99)),
    ),
    Hosts: st.builds(
        Hosts,
        count=st.integers(2, 9),
        rate_bits_per_s=st.none() | st.integers(1000, 10**12),
        latency_s=st.none() | st.floats(1e-6, 1.0),
    ),
}
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    float: FINITE,
    str: TEXT,
    int: st.integers(-(2**62), 2**62),
    bool: st.booleans(),
    type(None): st.none(),
    **SETTINGS,
}
BOUNDED: dict[tuple[type[BaseModel], str], st.SearchStrategy[Any]] = {
    (StoredBlock, "step_s"): st.floats(1e-6, 1e6),
    (Part, "name"): st.from_regex(r"[a-z0-9-]{1,12}\.pt", fullmatch=True),
    (Placement, "processes"): st.integers(1, 10**6),
    (CommRecord, "world_size"): st.integers(1, 10**6),
    (CommRecord, "ranks"): st.deferred(
        lambda: st.lists(records(CommSample), max_size=2).map(lambda rank: [rank, rank])
    ),
    **{(CommSample, name): st.integers(1, 2**40) for name in ("size_bytes", "calls", "end_ns")},
    (CommSample, "begin_ns"): st.integers(-(2**40), 0),
    (StudyRecord, "plan"): st.lists(TEXT, max_size=2, unique=True),
    (StudyRecord, "settings"): SETTINGS[StudySettings],  # all of the three, or none
    (StudyRecord, "data"): st.deferred(lambda: records(DataRecord)),
    (StudyRecord, "model"): st.deferred(lambda: records(ModelRecord)),
    (CellSummary, "parts_s"): st.fixed_dictionaries(dict.fromkeys(STEP_PARTS, FINITE)),
    (PeerRate, "bytes_per_s"): st.floats(1e-3, 1e15),
    (RunError, "standard_error"): st.floats(1e-6, 1e6),
    (RunError, "degrees_of_freedom"): st.floats(1e-3, 1e3),
    (ReplayedCell, "blocks"): st.just((2, 1)),  # they fit the times
    (ReplayedCell, "times_us"): st.lists(st.just(((1, 2, 3),) * len(PHASES)), min_size=1, max_size=2).map(tuple),
    (Replay, "sizes_bytes"): st.lists(st.integers(1, 2**40), min_size=1, max_size=2).map(tuple),
    (Side, "runs"): st.deferred(lambda: st.lists(records(ComparedRun), min_size=1, max_size=2)),
    (SubmittedJob, "job_id"): st.from_regex("[0-9]{1,18}", fullmatch=True),
    (Submissions, "jobs"): st.deferred(lambda: st.lists(records(SubmittedJob), min_size=1, max_size=2)),
}


def values(kind: Any, within: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Values of the type of a record's field; a record that holds others of its kind, `within`, holds none of them."""
    args = get_args(kind)
    made: st.SearchStrategy[Any]
    match get_origin(kind):
        case None:
            return PLAIN[kind] if kind in PLAIN else records(kind, within)
        case types.UnionType | typing.Union:
            made = st.one_of(*(values(arg, within) for arg in args))
        case typing.Literal:
            made = st.sampled_from(args)
        case builtins.dict if args[1] in within:
            made = st.just({})
        case builtins.list if args[0] in within:
            made = st.just([])
        case builtins.dict:
            made = st.dictionaries(values(args[0]), values(args[1], within), max_size=2)
        case builtins.tuple if Ellipsis not in args:
            made = st.tuples(*(values(arg, within) for arg in args))
        case sequence:
            made = st.lists(values(args[0], within), max_size=2).map(sequence)
    return made


def records(kind: type[BaseModel], within: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    made = {name: values(field.annotation, (*within, kind)) for name, field in kind.model_fields.items()}
    return st.builds(kind, **{name: BOUNDED.get((kind, name), strategy) for name, strategy in made.items()})


def every_record() -> list[type[Record]]:
    return sorted((kind for kind in Record.__subclasses__() if "results" in kind.__module__), key=lambda k: k.__name__)


@pytest.mark.parametrize("kind", every_record())
@hypothesis_settings(deadline=None, max_examples=10, phases=UNSHRUNK, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_round_trip(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(SETTINGS[kind] if kind in SETTINGS else records(kind))
    assert kind.model_validate_json(record.model_dump_json()) == record


@pytest.mark.parametrize("kind", every_record())
def test_unknown_keys_are_refused(kind: type[Record]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        kind.model_validate({"something_new": 1})


def test_there_are_records() -> None:
    names = {kind.__name__ for kind in every_record()}
    assert {"StudyRecord", "CellRecord", "StepRecord", "SpanRecord", "ErrorRecord", "Evaluation"} <= names


def test_the_parts_are_fields_of_a_step() -> None:
    """Of one that schema 1 took apart while it was recorded; since then a step has marks."""
    assert set(STEP_PARTS) <= TakenApartStep.model_fields.keys()
    assert not set(STEP_PARTS) & StepRecord.model_fields.keys()


def test_a_test_loss_that_was_not_finite_is_absent() -> None:
    evaluation = Evaluation(epoch=0, step=1, test_loss=None, test_accuracy=0.1, test_samples=10)
    assert Evaluation.model_validate_json(evaluation.model_dump_json()) == evaluation


def test_a_link_whose_ranks_have_unlike_numbers_of_samples_is_refused() -> None:
    """The k-th samples of all ranks belong together."""
    sample = dict(
        collective="all-reduce", size_bytes=4, begin_ns=0, end_ns=1, clock_error_ns=0, calls=1, wrong_elements=0
    )
    placement = Placement(
        processes=2, threads_per_worker=1, cores=(), oversubscribed=False, device="cpu", backend="gloo"
    )
    link = {"provenance": provenance(["made"]), "world_size": 2, "placement": placement}
    assert len(CommRecord.model_validate({**link, "ranks": [[sample], [sample]]}).ranks) == 2
    with pytest.raises(ValidationError, match="unlike numbers of samples"):
        CommRecord.model_validate({**link, "ranks": [[sample], []]})
