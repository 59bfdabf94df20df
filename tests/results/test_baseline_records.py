"""A stored baseline says what its run says, and whatever else is in its place is refused in one or two lines."""

import json
from pathlib import Path

import pytest

from made_pairs import DDP, compared, make_pair, make_sides
from worldsize.analysis.compare.sides import read_side, read_snapshot
from worldsize.errors import OutputError
from worldsize.results.baseline_records import read_baseline, write_baseline
from worldsize.results.records import SCHEMA_VERSION


def test_a_baseline_compares_as_its_run_does(tmp_path: Path) -> None:
    """All intervals can be computed again from the file."""
    a, b = make_pair(tmp_path, {DDP: 1.1}, noise=0.02)
    for run in (a, b):
        write_baseline(run.with_suffix(".json"), read_snapshot(run))
    assert read_baseline(tmp_path / "a.json") == read_snapshot(a)
    of_folders, of_files = compared(a, b), compared(tmp_path / "a.json", tmp_path / "b.json")
    assert of_files.cells == of_folders.cells
    assert of_files.verdict == of_folders.verdict


def test_a_baseline_of_several_runs_compares_as_they_do(tmp_path: Path) -> None:
    a, b = make_sides(tmp_path, {DDP: 1.1})
    runs = read_side(a)
    file = tmp_path / "baseline.json"
    write_baseline(file, runs[0].model_copy(update={"further": runs[1:]}))
    assert read_side(file) == runs
    assert compared(file, b).cells == compared(a, b).cells
    assert read_side(f"{file},{b[0]}") == [*runs, read_snapshot(b[0])]


def test_blocks_are_kept_by_their_medians(tmp_path: Path) -> None:
    a, _ = make_pair(tmp_path, {}, drift=lambda t: 1.0 + int(t))
    [cell] = [cell for cell in read_snapshot(a).cells if cell.id == DDP]
    assert [(block.session, block.block, block.steps) for block in cell.blocks] == [(0, k, 3) for k in range(8)]
    step_s = 0.5 * 2 / 1.8
    assert [block.step_s for block in cell.blocks] == pytest.approx([step_s * (1 + k) for k in range(8)])
    # The faster of the two ranks is done a tenth sooner, and parts are means over ranks.
    exposed = [0.06 * 0.95 * step_s * (1 + k) for k in range(8)]
    assert [block.exposed_sync_s for block in cell.blocks] == pytest.approx(exposed)
    compute = [0.95 * 0.94 * 0.95 * step_s * (1 + k) for k in range(8)]
    assert [block.compute_s for block in cell.blocks] == pytest.approx(compute)


def refusal(path: Path) -> str:
    with pytest.raises(OutputError) as caught:
        read_snapshot(path)
    message = str(caught.value)
    assert len(message.splitlines()) in (1, 2)
    return message


def test_what_is_no_baseline_is_refused(tmp_path: Path) -> None:
    a, _ = make_pair(tmp_path, {}, blocks=1)
    file = tmp_path / "baseline.json"
    assert f"{file} does not exist: give a run folder or a stored baseline" in refusal(file)
    write_baseline(file, read_snapshot(a))
    whole = file.read_text()
    for text, told in (
        ("", "is not a stored baseline: Invalid JSON"),
        (whole[: len(whole) // 2], "is not a stored baseline: Invalid JSON"),
        ("[]", "is not a stored baseline: Input should be an object"),
        ("{}", "is not a stored baseline: name: Field required"),
        (whole.replace('"step_s"', '"step_h"'), "is not a stored baseline: cells.0"),
    ):
        file.write_text(text)
        assert told in refusal(file)
        assert refusal(file).endswith(
            "A baseline is made by: worldsize compare RUN --save FILE (several runs separated by commas)"
        )
    assert "is a part of a run folder" in refusal(a / "study.json")
    assert "is not a worldsize run folder" in refusal(tmp_path)


def test_a_baseline_of_a_newer_worldsize_says_what_to_do(tmp_path: Path) -> None:
    a, _ = make_pair(tmp_path, {}, blocks=1)
    content = json.loads(read_snapshot(a).model_dump_json())
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps({**content, "schema_version": SCHEMA_VERSION + 1, "further": 1}))
    assert refusal(file).endswith("Upgrade worldsize to read it.")


def test_a_summary_that_lacks_a_part_of_a_step_is_compared_without_it(tmp_path: Path) -> None:
    """As where a phase was not marked; found by fuzzing: the comparison asked for it."""
    a, _ = make_pair(tmp_path, {})
    write_baseline(tmp_path / "a.json", read_snapshot(a))
    content = json.loads((tmp_path / "a.json").read_text())
    for cell in content["cells"]:
        cell["summary"]["parts_s"].pop("backward_s")
    (tmp_path / "a.json").write_text(json.dumps(content))
    found = compared(a, tmp_path / "a.json")
    assert {cell.verdict for cell in found.cells} != {"not judged"}


def test_a_summary_with_a_part_that_no_step_has_is_refused(tmp_path: Path) -> None:
    a, _ = make_pair(tmp_path, {})
    write_baseline(tmp_path / "a.json", read_snapshot(a))
    content = json.loads((tmp_path / "a.json").read_text())
    content["cells"][0]["summary"]["parts_s"]["lunch_s"] = 0.1
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert "has parts that no step has: lunch_s" in refusal(tmp_path / "a.json")


def test_numbers_that_nobody_measured_are_no_numbers(tmp_path: Path) -> None:
    """A damaged baseline may hold them; a comparison must not stumble over them."""
    a, b = make_sides(tmp_path, {}, runs=2)
    for odd in ("1e308", "1e-308", "-1.0", "0.0"):
        runs = read_side(a)
        write_baseline(file := tmp_path / "odd.json", runs[0].model_copy(update={"further": runs[1:]}))
        content = json.loads(file.read_text())
        for run in (content, *content["further"]):
            for cell in run["cells"]:
                cell["peak_memory_bytes"] = 10**18
                for block in cell["blocks"]:
                    block["data_wait_s"] = float(odd)
        file.write_text(json.dumps(content))
        for sides in ((file, b), (b, file), (file, b[0]), (b[0], file)):
            record = compared(*sides, fail_above=0.05, strict=True)
            waits = [each for cell in record.cells for each in cell.quantities if each.name == "data_wait_s"]
            assert {each.ratio for each in waits} == {None}, "no ratio can be taken"
            if odd != "0.0":  # none is a number, and less than some
                assert {each.direction for each in waits} == {None}
