"""No pickle is loaded: not from files, and not from the wire."""

import ast
import io
import pickle  # noqa: TID251 - to show that it would have run
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import torch

import worldsize
from worldsize.errors import OutputError
from worldsize.ranks.checkpoint import _loaded
from worldsize.results import columns
from worldsize.results.samples import STEPS

SOURCES = sorted(Path(worldsize.__file__).parent.rglob("*.py"))
UNPICKLE = {
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
    *("send_object_list", "recv_object_list", "monitored_barrier", "read_pickle"),
}
"""Functions of torch.distributed, and of others, that unpickle what arrives."""
HARMLESS = {"multiprocessing.active_children", "multiprocessing.util", "multiprocessing.queues"}
"""Processes, folders and finalizers, and the class whose `get` is watched in loops of the user's own (the hook makes no
queue); what else of multiprocessing takes something in unpickles it."""
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "_pickle", "multiprocessing"}


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, node


def test_no_module_that_unpickles_is_imported() -> None:
    imported = set()
    for _, node in nodes():
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    roots = {name.partition(".")[0] for name in imported - HARMLESS}
    assert "torch" in roots
    assert not roots & MODULES


def test_nothing_that_unpickles_is_called() -> None:
    called = [
        (path.name, node.func.attr)
        for path, node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert len(called) > 1000
    assert [each for each in called if each[1] in UNPICKLE] == []


def test_what_torch_and_numpy_load_is_data() -> None:
    loads = [
        (ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords})
        for _, node in nodes()
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "np.load", "numpy.load")
    ]
    assert [name for name, _ in loads] == ["torch.load"]
    assert [words["weights_only"] for _, words in loads] == ["True"]


class Harmful:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "made"
    file = io.BytesIO()
    torch.save({"model": Harmful(made)}, file)
    for content in (file.getvalue(), pickle.dumps(Harmful(made))):
        with pytest.raises(OutputError, match="torch cannot load it"):
            _loaded(tmp_path / "model-3.pt", content)
    assert not made.exists()
    pickle.loads(pickle.dumps(Harmful(made)))  # it would have
    assert made.exists()


def test_parquet_with_python_objects_is_refused(tmp_path: Path) -> None:
    """Columns of other kinds than those of a cell, binary ones that somebody could unpickle too, are not looked at."""
    frame = pl.DataFrame({name: [b"\x80\x04."] for name in STEPS.schema})
    frame.write_parquet(tmp_path / "steps.parquet")
    digest = columns._digest(tmp_path / "steps.parquet")
    record = columns.ColumnsRecord(files={"steps": digest})
    with pytest.raises(OutputError, match="has other columns than the steps of a cell"):
        columns._opened(tmp_path, STEPS, record)
