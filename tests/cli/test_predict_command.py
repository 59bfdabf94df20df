"""`worldsize predict` as a user types it: what it prints and keeps, and what it refuses in plain lines."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import worldsize as package
from made_forecasts import Truth, made_forecast_run
from made_runs import MadeCell, make_run, provenance
from worldsize.cli.app import main
from worldsize.config import Hosts
from worldsize.errors import DAMAGED, OutputError, UsageError
from worldsize.results.columns import pack
from worldsize.results.folder import load_run, write_cell, write_study
from worldsize.results.forecast_records import FILE, ForecastReport, read_forecast
from worldsize.results.records import SCHEMA_VERSION, WarningRecord

CELLS = (("single", 1, 32), ("all-reduce", 2, 32))
MARKS = ("end_s", "gradient_s")
Ended = Callable[[str], tuple[int, str, str]]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two emulated hosts."""
    return made_forecast_run(tmp_path_factory.mktemp("hosts") / "run", Truth(), CELLS)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on one host."""
    return made_forecast_run(tmp_path_factory.mktemp("here") / "run", Truth(hosts=None), CELLS)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Exit status, stdout and stderr of a command in this process."""

    def run(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["worldsize", "predict", *line.split()])
        status = 0
        try:
            main()
        except SystemExit as left:
            status = int(left.code or 0)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.mark.parametrize("flags", ["", " --json"])
def test_it_answers_before_it_writes_the_page(
    hosts: Path, ended: Ended, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str
) -> None:
    """The page takes as long as the answer, which needs nothing of it."""
    before: list[str] = []

    def unwritable(*_: object) -> Path:
        before.append(capsys.readouterr().out)
        raise OutputError("cannot write")

    monkeypatch.setattr(import_module("worldsize.report.write"), "write_report", unwritable)
    assert ended(f"{hosts} --world-sizes 4{flags}")[0] == 0
    assert "all-reduce" in before[0]


def test_what_it_prints_and_keeps(hosts: Path, ended: Ended) -> None:
    status, said, complained = ended(f"{hosts} --world-sizes 2,4,8 --link 100mbit --strategy all-reduce,bucketed")
    assert (status, complained) == (0, "")
    lines = said.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    text = " ".join(said.split())
    for told in (
        "all-reduce, b = 32",
        "bucketed, b = 32",
        "nine in ten steps",
        "Its own error",
        "host and a link of its own",
    ):
        assert told in text
    kept = read_forecast(hosts)
    assert kept is not None
    assert {(row.strategy, row.world_size) for row in kept.rows} == {
        (name, size) for name in ("all-reduce", "bucketed") for size in (2, 4, 8)
    }
    page = (hosts / "report" / "index.html").read_text()
    assert "Forecast" in page
    assert "Predicted samples per second against world size" in page
    assert (hosts / "report" / "forecast.csv").exists()


def test_json_and_python_say_the_same(hosts: Path, ended: Ended) -> None:
    status, said, _ = ended(f"{hosts} --world-sizes 4 --json")
    assert status == 0
    found = json.loads(said)
    assert next(iter(found)) == "schema_version"
    assert found["schema_version"] == SCHEMA_VERSION
    assert found["rows"][0]["step_s"]["low"] <= found["rows"][0]["step_s"]["value"]
    assert ForecastReport.model_validate_json(said) == package.predict(hosts, world_sizes=4)
    kept = (hosts / "report" / "forecast.csv").read_text()
    assert {line.split(",")[1] for line in kept.splitlines()[1:]} == {"4"}, "the page is made anew here, too"


def test_a_cell_that_cannot_be_read_is_named_and_the_status_says_so(tmp_path: Path, ended: Ended) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), (*CELLS, ("all-reduce", 2, 64)))
    (run / "cells" / "all-reduce-w2-b64" / "cell.json").write_text("{")
    status, said, _ = ended(f"{run} --world-sizes 4")
    assert status == DAMAGED
    assert "all-reduce-w2-b64 cannot be read and is left out: " in " ".join(said.split())


def test_on_one_host_it_says_what_it_takes_for_granted(here: Path, ended: Ended) -> None:
    status, said, _ = ended(f"{here} --world-sizes 16")
    assert status == 0
    assert "All workers are on one host that has a core or a device for each" in " ".join(said.split())


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--world-sizes 1", ["--world-sizes: 1 was given", "2 workers", "as many or more"]),
        ("--world-sizes 0", ["--world-sizes: 0 was given", "between 1 and"]),
        ("--world-sizes two", ["'two' was given", "whole numbers"]),
        ("--link fast", ["--link: 'fast' was given", "1gbit"]),
        ("--link 0gbit", ["--link: '0gbit' was given", "at least 1kbit"]),
        ("--latency 5", ["--link-latency: '5' was given", "200us"]),
        ("--link-latency 5", ["--link-latency: '5' was given", "200us"]),
        ("--batch-size 0", ["--batch-size", "0"]),
        ("--bucket-mb -1", ["--bucket-mb", "-1"]),
        ("--bucket-mb 1e308", ["--bucket-mb", "1e+308"]),
        ("--strategy ,", ["no strategy was given"]),
        ("--strategy single", ["single was given, which is one worker"]),
        ("--strategy dpp", ["'dpp' was given", "ddp"]),
        ("--strategy data-parallel", ["data-parallel cannot be simulated", "one process"]),
        ("--strategy gather-scatter", ["gather-scatter sends by gather, scatter", "has not timed", "worldsize study"]),
    ],
)
def test_what_cannot_be_asked_for(hosts: Path, ended: Ended, flags: str, told: list[str]) -> None:
    _refused(ended(f"{hosts} {flags}"), told)


def test_a_command_that_measures_what_is_missing_ends_its_message_and_is_of_the_same_work(
    hosts: Path, ended: Ended
) -> None:
    """It can be pasted as it stands: the model and the place are those of the run."""
    _, said, complained = ended(f"{hosts} --strategy gather-scatter")
    [command] = [line for line in (said + complained).splitlines() if "worldsize study" in line]
    asked = load_run(hosts).study.asked
    words = command.split("Measure it: ")[1].split()
    assert words[:2] == ["worldsize", "study"]
    assert words[words.index("--strategies") + 1] == ",".join((*asked.strategies[:1], "gather-scatter"))
    assert words[-1] != "place."


def test_world_sizes_in_any_order_and_twice(hosts: Path) -> None:
    report = package.predict(hosts, world_sizes="8,4,4,8")
    assert [row.world_size for row in report.rows] == [4, 8]


def test_it_says_over_which_link_and_what_was_measured(hosts: Path, ended: Ended) -> None:
    _, said, _ = ended(f"{hosts} --world-sizes 2,4 --link 100mbit --latency 5ms --bucket-mb 2 --strategy bucketed")
    text = " ".join(said.split())
    assert "other links than the run has: of 100 Mbit/s with 5,000 µs more latency, in buckets of 2.0 MB" in text
    _, said, _ = ended(f"{hosts} --world-sizes 2")
    assert "all-reduce with 2 workers and b = 32 was measured:" in " ".join(said.split())


def test_a_forecast_of_other_numbers_is_told_on_the_page(tmp_path: Path) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    package.predict(run)
    assert "made from other numbers" not in package.report(run).read_text()
    made_forecast_run(run, Truth(compute_s=0.1), CELLS)
    assert "made from other numbers" in package.report(run).read_text()


def test_a_link_between_hosts_that_was_never_measured(here: Path, ended: Ended) -> None:
    _refused(ended(f"{here} --link 10gbit"), ["--link was given", "worldsize study --hosts 2 --link 10gbit"])


def test_a_folder_that_is_no_run(tmp_path: Path, ended: Ended) -> None:
    _refused(ended(f"{tmp_path}"), ["is not a worldsize run folder"])


def test_a_run_of_one_worker(tmp_path: Path, ended: Ended) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS[:1])
    _refused(ended(f"{run}"), ["one worker", "--world-sizes 1,2"])


def test_a_run_without_numbers(tmp_path: Path, ended: Ended) -> None:
    run = make_run(tmp_path / "run", [MadeCell("ddp", 2, blocks=0, state="running")])
    _refused(ended(f"{run}"), ["no cell of this run has numbers"])


def test_a_run_without_marks(tmp_path: Path, ended: Ended) -> None:
    """As of a loop of which only the optimizer's steps were seen."""
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    for path in run.glob("cells/*/rank?.jsonl"):
        steps = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [{name: None if name.endswith(MARKS) else value for name, value in step.items()} for step in steps]
        path.write_text("".join(f"{json.dumps(step)}\n" for step in kept))
    for path in run.glob("cells/*/rank?.spans.jsonl"):
        path.unlink()
    _refused(ended(f"{run}"), ["no marks"])


def test_a_run_of_an_older_version(tmp_path: Path, ended: Ended) -> None:
    """It knows not when backward has its gradients: what it measured is predicted, other strategies are not."""
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    for cell in load_run(run).cells.values():
        cell.record.gradients = None
        write_cell(run, cell.record)
    assert ended(f"{run} --world-sizes 4")[0] == 0
    _refused(ended(f"{run} --strategy ddp"), ["was not recorded in this run", "Measure it again"])


def test_a_run_of_a_newer_version(tmp_path: Path, ended: Ended) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    study = json.loads((run / "study.json").read_text())
    (run / "study.json").write_text(json.dumps({**study, "schema_version": SCHEMA_VERSION + 1}))
    _refused(ended(f"{run}"), ["Upgrade worldsize"])


def test_a_run_of_two_machines(tmp_path: Path, ended: Ended) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    record = load_run(run).study
    record.sessions = [provenance(hostname="another")]
    write_study(run, record)
    _refused(ended(f"{run}"), ["different machines", "Measure it again"])


def test_a_machine_that_drifted_is_told(tmp_path: Path) -> None:
    """It is no reason to refuse: the cells took turns, and this machine drifts in most runs."""
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    record = load_run(run).study
    record.warnings = [WarningRecord(code="drift", message="the machine drifted.\nBlocks are 40 % apart.")]
    write_study(run, record)
    assert any("drifted" in text for text in package.predict(run, world_sizes=4).assumes)


def test_a_global_batch_that_cannot_be_shared(tmp_path: Path) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), (("single", 1, 64), ("all-reduce", 2, 32)))
    record = load_run(run).study
    assert record.settings is not None
    record.settings = record.settings.model_copy(update={"global_batch": 64})
    write_study(run, record)
    assert package.predict(run, world_sizes=(4, 8)).rows[1].batch_size == 8
    with pytest.raises(UsageError, match="which 3 workers cannot share"):
        package.predict(run, world_sizes=3)


def test_a_damaged_forecast_is_told_on_the_page(hosts: Path, tmp_path: Path) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    (run / FILE).write_text("{")
    page = package.report(run).read_text()
    assert "worldsize predict` makes it again" in page


def _refused(found: tuple[int, str, str], told: list[str]) -> None:
    """Status 2, and one or two plain lines."""
    status, said, complained = found
    assert (status, said) == (2, "")
    assert "Traceback" not in complained
    assert len(complained.splitlines()) <= 2
    for text in told:
        assert text in complained


@pytest.mark.parametrize(
    ("code", "told"),
    [("drift", "The machine drifted"), ("disturbed", "Something else used the cores while this run was timed")],
)
def test_what_disturbed_the_run_is_told(tmp_path: Path, code: str, told: str) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    record = load_run(run).study
    record.warnings = [WarningRecord(code=code, message="so it was")]
    write_study(run, record)
    assert any(told in text for text in package.predict(run, world_sizes=4).assumes)


def test_a_run_that_has_not_ended_is_told(tmp_path: Path) -> None:
    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    assert not any("has not ended" in text for text in package.predict(run, world_sizes=4).assumes)
    record = load_run(run).cells["all-reduce-w2-b32"].record
    record.state = "running"
    write_cell(run, record)
    told = package.predict(run, world_sizes=4).assumes
    assert "This run has not ended: 1 of 2 cells had more steps to come." in told


def test_messages_that_are_gone_are_a_cell_that_cannot_be_read(tmp_path: Path, ended: Ended) -> None:
    """Without its messages a step has no exposed communication: a forecast would be far too short, and not say it."""
    run = made_forecast_run(tmp_path / "run", Truth(), (*CELLS, ("all-reduce", 2, 64)))
    place = run / "cells" / "all-reduce-w2-b64"
    pack(place)
    (place / "spans.parquet").unlink()
    assert ended(f"{run} --world-sizes 4")[0] == 0, "the lines have them"
    for path in place.glob("*.spans.jsonl"):
        path.unlink()
    status, said, _ = ended(f"{run} --world-sizes 4")
    assert status == DAMAGED
    assert "all-reduce-w2-b64 cannot be read and is left out: " in " ".join(said.split())


def test_one_host_with_another_link(tmp_path: Path, ended: Ended) -> None:
    """What a link does that all hosts have alike was not measured, and further hosts are as those of the run."""
    truth = Truth(hosts=Hosts(count=2, rate_bits_per_s=50_000_000, own_rates={1: 100_000_000}))
    run = made_forecast_run(tmp_path / "run", truth, CELLS)
    _refused(ended(f"{run} --link 400mbit"), ["--link was given", "host 1", "without --slow-link"])
    _, said, _ = ended(f"{run} --world-sizes 4")
    assert "The link of host 1 stays as it was in the run (--slow-link)." in " ".join(said.split())


def test_buckets_say_nothing_of_messages_that_are_known_as_measured(hosts: Path, ended: Ended) -> None:
    _, said, _ = ended(f"{hosts} --world-sizes 4 --bucket-mb 1")
    text = " ".join(said.split())
    assert "in buckets of" not in text
    assert "--bucket-mb says nothing of all-reduce" in text
    _refused(ended(f"{hosts} --strategy powersgd --bucket-mb 1"), ["--bucket-mb cannot change them"])
    _refused(ended(f"{hosts} --strategy powersgd"), ["only where it was measured", "it was not measured here"])


def test_a_run_of_somebody_elses(tmp_path: Path, ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be written: the forecast is printed all the same."""

    def refuse(run: Path, report: ForecastReport) -> None:
        raise OutputError(f"cannot write {run}: Read-only file system\nGive another folder.")

    run = made_forecast_run(tmp_path / "run", Truth(), CELLS)
    monkeypatch.setattr("worldsize.results.forecast_records.write_forecast", refuse)
    status, said, _ = ended(f"{run} --world-sizes 4")
    assert status == 0
    assert "all-reduce, b = 32" in said
    assert "The forecast is not kept: cannot write" in said
