"""The kinds of inputs that worldsize reads, each with what damages one and the public way in which it is used."""

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st

import fuzz_data
from damages import ODD, damaged_bytes, damaged_json, damaged_lines
from fuzzing import Act, Maker, Workshop
from made_messages import add_link, add_messages
from made_runs import make_run, usual_cells
from made_traces import rank_of, record, write_traces
from worldsize.analysis.compare.comparison import compare_runs
from worldsize.analysis.compare.sides import read_side, read_snapshot
from worldsize.analysis.study import analyse
from worldsize.config import CellSettings, CompareSettings, StudySettings, read_study, validated
from worldsize.data import cifar10, load_data
from worldsize.errors import UsageError
from worldsize.measure.machine import allowed_cores
from worldsize.report.write import write_report
from worldsize.results import columns
from worldsize.results.baseline_records import write_baseline
from worldsize.results.checkpoints import CheckpointRecord, check_parts, find_checkpoint, write_index, write_part
from worldsize.results.columns import pack, parquet_file
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run
from worldsize.results.records import Findings
from worldsize.results.samples import KINDS
from worldsize.strategies import STRATEGIES
from worldsize.study.plan import make_plan

CELL, PACKED = "ddp-w2-b32", "single-w1-b32"
GOOD = (
    *("steps = 4", "seed = 7", "batch_sizes = [4, 8]", "world_sizes = [1, 2]", 'strategies = ["single", "ddp"]'),
    *(
        'data = "synthetic:3x8x8:10:64"',
        "train_samples = 64",
        "target_interval = 0.1",
        'backend = "gloo"',
        "sweep = true",
    ),
    *(
        "global_batch = 16",
        'memory_limit = "3GiB"',
        "bucket_mb = 5",
        'cells = [{ strategy = "ddp", world_size = 2, batch_size = 4 }]',
    ),
    *('lr_scaling = "linear"', 'baseline = "single"', 'hosts = 2\nlink = "1gbit"', 'log = ["wandb"]'),
)
"""Settings that are right, for odd ones to stand among."""
RECORDS = 20
"""Images in a file of CIFAR-10; the real ones have 10,000, and nothing else about them is different."""


def made_run(folder: Path) -> Path:
    """A small run that has everything: lines and Parquet, messages, a link, a profile, a report."""
    cells = [cell for cell in usual_cells(blocks=2) if cell.id in (CELL, PACKED)]
    make_run(folder, cells)
    add_messages(folder, cells[-1], count=2)
    add_link(folder, 2)
    (cell_folder(folder, CELL) / "profile").mkdir()
    write_traces(cell_folder(folder, CELL), [rank_of(0), rank_of(1)], [record(0), record(1)])
    packed = cell_folder(folder, PACKED)
    pack(packed)
    for path in packed.glob("rank*.jsonl"):
        path.unlink()  # so that what is in Parquet counts
    return folder


def run_folder(folder: Path) -> tuple[Maker, Act]:
    """A run folder: read and analysed, as the terminal and every report do."""
    return _in_run(folder, lambda run: sections_of(run))


def report(folder: Path) -> tuple[Maker, Act]:
    """The same, and its report written: page, tables, charts, samples, trace."""
    return _in_run(folder, write_report)


def sections_of(run: Path) -> object:
    return analyse(load_run(run))


def _in_run(folder: Path, use: Callable[[Path], object]) -> tuple[Maker, Act]:
    shop = Workshop(made_run(folder / "run"))

    def make(data: st.DataObject) -> Act:
        for _ in range(data.draw(st.sampled_from((1, 1, 2)))):
            name = data.draw(st.sampled_from(shop.names()))
            shop.write(name, _damaged_file(data, name, shop.content(name)))
            if name.endswith(".parquet") and data.draw(st.booleans()):
                _agree(shop.folder / Path(name).parent)
        return partial(use, shop.folder)

    def clean() -> None:
        shutil.rmtree(shop.folder / "report", ignore_errors=True)
        shop.restore()

    return make, clean


def _damaged_file(data: st.DataObject, name: str, content: bytes) -> bytes | None:
    if data.draw(st.integers(0, 40)) == 0:
        return None
    if name.endswith(".jsonl"):
        return damaged_lines(data, content)
    return damaged_json(data, content) if name.endswith(".json") else damaged_bytes(data, content)


def _agree(place: Path) -> None:
    """Let the index say that the Parquet files are as they should be: whoever damages one can do that, too."""
    if not all(path.exists() for path in (place / columns.INDEX, *(parquet_file(place, kind) for kind in KINDS))):
        return
    try:
        index = json.loads((place / columns.INDEX).read_text(encoding="utf-8"))
        index["files"] = {}
    except (ValueError, TypeError, RecursionError):  # it is damaged as well
        return
    index["files"] = {kind.name: columns._digest(parquet_file(place, kind)).model_dump() for kind in KINDS}
    (place / columns.INDEX).write_text(json.dumps(index), encoding="utf-8")


def baseline(folder: Path) -> tuple[Maker, Act]:
    """A stored baseline, compared with a whole one."""
    run = make_run(folder / "run", [cell for cell in usual_cells(blocks=2) if cell.id in (CELL, PACKED)])
    whole = read_snapshot(run)
    (folder / "shop").mkdir()
    write_baseline(folder / "shop" / "stored.json", whole)
    shop = Workshop(folder / "shop")

    def use() -> None:
        other = read_side(shop.folder / "stored.json")
        settings = CompareSettings(fail_above=0.05, strict=True)
        for pair in (([whole], other), (other, [whole]), ([whole, *other], [*other, whole])):
            with suppress(UsageError):  # a run twice on one side, or other work
                compare_runs(*pair, settings, ("a", "b")).model_dump_json()

    def make(data: st.DataObject) -> Act:
        shop.write("stored.json", damaged_json(data, shop.content("stored.json")))
        return use

    return make, shop.restore


def checkpoint(folder: Path) -> tuple[Maker, Act]:
    """The index of a checkpoint, and its parts."""
    (folder / "shop").mkdir()
    parts = [
        write_part(folder / "shop" / name, lambda file: file.write(b"weights")) for name in ("model-3.pt", "rank0-3.pt")
    ]
    where = CheckpointRecord(
        settings=CellSettings(epochs=1), processes=1, device="cpu", step=3, epoch=0, epoch_step=3, parts=[parts]
    )
    write_index(folder / "shop", where)
    shop = Workshop(folder / "shop")

    def use() -> None:
        found = find_checkpoint(shop.folder)
        check_parts(shop.folder, found.parts if found else ())

    def make(data: st.DataObject) -> Act:
        name = data.draw(st.sampled_from(("checkpoint.json", *shop.names())))
        shop.write(name, _damaged_file(data, name, shop.content(name)))
        return use

    return make, shop.restore


def study_file(folder: Path) -> tuple[Maker, Act]:
    """A TOML file of settings, down to the plan of its cells."""
    folder.mkdir(exist_ok=True)
    path = folder / "study.toml"
    known = make_findings(folder / "known")

    def use() -> None:
        settings = validated(StudySettings, read_study(str(path)), str(path))
        wanted = settings.model_copy(update={"world_sizes": settings.world_sizes or (1, 2)})
        if max(wanted.world_sizes or (1,)) <= 64 and {*wanted.strategies} <= {
            *STRATEGIES
        }:  # else no probe lets it pass
            make_plan(wanted, known, allowed_cores())

    def make(data: st.DataObject) -> Act:
        good = data.draw(st.lists(st.sampled_from(GOOD), max_size=4, unique=True))
        odd = [_setting(data) for _ in range(data.draw(st.sampled_from((0, 1, 1, 1, 3))))]
        lines = data.draw(st.permutations([*good, *odd]))
        content = "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"
        path.write_bytes(damaged_bytes(data, content) if data.draw(st.integers(0, 2)) == 0 else content)
        return use

    return make, lambda: path.unlink(missing_ok=True)


def make_findings(folder: Path) -> Findings:
    _, data, model = load_run(make_run(folder, [])).study.training
    sizes = (1, 2)
    names = StudySettings().strategies
    return Findings(
        data=data,
        model=model,
        gpus=(),
        processes={f"{name}@{size}": size for name in names for size in sizes},
    )


def _setting(data: st.DataObject) -> str:
    name = data.draw(st.sampled_from((*StudySettings.model_fields, "x y", "", "a.b", "[t]", "[[cells]]", "strategy")))
    value = data.draw(st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=20))
    written = data.draw(
        st.sampled_from((_toml(value), f"[{_toml(value)}]", f"[{_toml(value)}, 2]", "{ a = 1 }", "1979-05-27"))
    )
    return name if name.startswith("[") else f"{name} = {written}"


def _toml(value: Any) -> str:
    """The value as TOML writes it, where it can; what it cannot write is a mistake that people make."""
    if isinstance(value, float):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def cifar10_files(folder: Path) -> tuple[Maker, Act]:
    """A folder of CIFAR-10's binary files of all sizes, with a receipt or without."""
    place = folder / "cifar"
    place.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name in (*cifar10.TRAIN_FILES, *cifar10.TEST_FILES):
        records = generator.integers(0, 256, (RECORDS, cifar10.RECORD_BYTES), np.uint8)
        records[:, 0] %= cifar10.CLASSES
        (place / name).write_bytes(records.tobytes())
    (place / "receipt.json").write_text('{"archive_md5": "0", "files": {}}')
    shop, given = Workshop(place), CellSettings(data="cifar10", data_dir=place)

    def use() -> None:
        with patch.object(cifar10, "RECORDS_PER_FILE", RECORDS):
            load_data(given)

    def make(data: st.DataObject) -> Act:
        name = data.draw(st.sampled_from(shop.names()))
        content = damaged_bytes(data, shop.content(name))
        if data.draw(st.booleans()):  # of the right size, so that what is in it counts
            content = content[: len(shop.content(name))].ljust(len(shop.content(name)), b"\x03")
        shop.write(name, content)
        return use

    return make, shop.restore


def user_data(folder: Path) -> tuple[Maker, Act]:
    """What a user's factory of data may return."""

    def use() -> None:
        with redirect_stdout(StringIO()):
            load_data(CellSettings(data="fuzz_data:images", model="fuzz_data:net"))

    def make(data: st.DataObject) -> Act:
        fuzz_data.RETURNED = {train: fuzz_data.draw_value(data) for train in (True, False)}
        return use

    return make, fuzz_data.RETURNED.clear


KINDS_OF_INPUT: Mapping[str, Callable[[Path], tuple[Maker, Act]]] = {
    "run folder": run_folder,
    "report": report,
    "baseline": baseline,
    "checkpoint": checkpoint,
    "study file": study_file,
    "cifar10": cifar10_files,
    "user data": user_data,
}
