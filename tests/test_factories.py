from pathlib import Path

import pytest

from worldsize.errors import FactoryError
from worldsize.factories import find_factory, resolve, split_reference

WHAT = "model"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_imports: None) -> Path:
    """The current folder; what is imported from it is forgotten again."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_found_by_its_path(here: Path) -> None:
    (here / "mine.py").write_text("def make(): return 'made'\n")
    assert find_factory("mine.py:make", WHAT)() == "made"
    assert find_factory(f"{here}/mine.py:make", WHAT)() == "made"


def test_a_file_runs_once_and_may_import_its_neighbours_later(here: Path) -> None:
    (here / "neighbour_of_mine.py").write_text("value = 7\n")
    (here / "mine.py").write_text(
        "runs = []\nruns.append(1)\ndef make():\n    import neighbour_of_mine\n    return neighbour_of_mine.value\n"
    )
    assert find_factory("mine.py:make", WHAT)() == 7
    assert resolve("mine.py:runs", WHAT) == [1]


def test_a_file_named_like_an_installed_module_hides_nothing(here: Path) -> None:
    (here / "json.py").write_text("def make(): return 'mine'\n")
    assert find_factory("json.py:make", WHAT)() == "mine"
    import json

    assert json.loads("[1]") == [1]


def test_a_module_in_the_current_folder_is_found(here: Path) -> None:
    (here / "pack").mkdir()
    (here / "pack" / "__init__.py").write_text("")
    (here / "pack" / "inner.py").write_text("def make(): return 'inner'\n")
    assert find_factory("pack.inner:make", WHAT)() == "inner"


@pytest.mark.parametrize(
    "reference", ["plain", "a b:make", "mine.py", "mine.py:", ":make", "mine.py:make()", "mine/txt:make", "a..b:make"]
)
def test_anything_else_than_a_reference_is_answered_with_the_grammar(reference: str) -> None:
    with pytest.raises(FactoryError, match=r"package\.module:name or file\.py:name"):
        split_reference(reference, WHAT)


class TestWhatCannotBeFound:
    def test_file(self, here: Path) -> None:
        with pytest.raises(FactoryError, match=r"no such model file: absent\.py"):
            resolve("absent.py:make", WHAT)

    def test_module(self, here: Path) -> None:
        with pytest.raises(FactoryError, match=r"module 'absent_pack\.models' was not found"):
            resolve("absent_pack.models:make", WHAT)

    def test_module_in_a_package(self, here: Path) -> None:
        with pytest.raises(FactoryError, match=r"no 'xml\.absent'"):
            resolve("xml.absent.more:make", WHAT)

    def test_name(self, here: Path) -> None:
        (here / "mine.py").write_text("def other(): ...\n_hidden = 1\n")
        with pytest.raises(FactoryError, match=r"mine\.py defines no 'make'; it defines: other$"):
            resolve("mine.py:make", WHAT)

    def test_syntax(self, here: Path) -> None:
        (here / "mine.py").write_text("x = 1\ndef make(:\n")
        with pytest.raises(FactoryError, match=r"raised SyntaxError: .*mine\.py:2\)") as caught:
            resolve("mine.py:make", WHAT)
        assert "\n" not in str(caught.value)


def test_what_the_import_raises_is_told_with_its_line(here: Path) -> None:
    (here / "mine.py").write_text("def make(): ...\nraise KeyError('at import')\n")
    with pytest.raises(FactoryError, match=r"importing mine\.py raised KeyError: 'at import' \(.*mine\.py:2\)"):
        resolve("mine.py:make", WHAT)
    with pytest.raises(FactoryError, match="at import"):
        resolve("mine.py:make", WHAT)  # a file that failed is not taken as loaded


def test_a_missing_import_of_the_user_is_not_taken_for_a_missing_module(here: Path) -> None:
    (here / "mine_with_import.py").write_text("import absent_package\n")
    with pytest.raises(FactoryError, match=r"importing mine_with_import raised ModuleNotFoundError: .*absent_package"):
        resolve("mine_with_import:make", WHAT)


def test_a_script_that_exits_at_import_is_an_error(here: Path) -> None:
    (here / "mine.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(FactoryError, match="raised SystemExit"):
        resolve("mine.py:make", WHAT)


def test_what_the_call_raises_is_told_with_its_line_in_the_users_file(here: Path) -> None:
    (here / "mine.py").write_text("import json\ndef make():\n    return json.loads('{')\n")
    with pytest.raises(
        FactoryError, match=r"model factory mine\.py:make raised JSONDecodeError: .*mine\.py:3\)"
    ) as caught:
        find_factory("mine.py:make", WHAT)()
    assert "\n" not in str(caught.value)


def test_a_name_that_cannot_be_called_is_an_error(here: Path) -> None:
    (here / "mine.py").write_text("make = 3\n")
    with pytest.raises(FactoryError, match="is of type int"):
        find_factory("mine.py:make", WHAT)


def test_only_named_parameters_are_accepted(here: Path) -> None:
    (here / "mine.py").write_text("def make(classes, /, train, *, seed=0, **more): ...\nnone = int\n")
    factory = find_factory("mine.py:make", WHAT)
    assert [factory.accepts(name) for name in ("classes", "train", "seed", "more", "other")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert not find_factory("mine.py:none", WHAT).accepts("train")
