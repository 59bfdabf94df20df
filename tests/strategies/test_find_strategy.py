"""Strategies by name: the built-in ones and the user's own."""

import re
from pathlib import Path

import pytest
from torch import nn

from worldsize.errors import FactoryError, UnknownNameError
from worldsize.strategies import STRATEGIES, Strategy, find_strategy, sizes_of

pytestmark = pytest.mark.usefixtures("clean_imports")

MINE = """
from worldsize.strategies import Strategy
from worldsize.traits import Traits
from worldsize.wire import ring

class Mine(Strategy):
    def wrap(self, model):
        return model

    def synchronise(self):
        pass

    traits = Traits(collectives=("all-reduce",), wire=ring)

class Untold(Strategy):
    def wrap(self, model):
        return model

    def synchronise(self):
        pass

class Half(Strategy):
    def wrap(self, model):
        return model

class Told(Mine):
    traits = {"collectives": ("all-reduce",)}

class Stranger:
    pass

def function():
    pass
"""


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_name_finds_its_class(name: str) -> None:
    assert find_strategy(name) is STRATEGIES[name]


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_strategy("horovod")
    assert "'horovod'" in str(caught.value)
    assert all(name in str(caught.value) for name in STRATEGIES)


@pytest.mark.parametrize("reference", ["own_strategies:Mine", "own_strategies.py:Mine"])
def test_a_users_class_is_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    (tmp_path / "own_strategies.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    found = find_strategy(reference)
    assert found.__name__ == "Mine"
    assert found.processes(3) == 3


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("own_strategies:Stranger", "not a class derived"),
        ("own_strategies:function", "not a class derived"),
        ("own_strategies:Half", "lacks synchronise, traits"),
        ("own_strategies:Untold", "lacks traits"),
        ("own_strategies:Told", r"lacks traits \(a worldsize.traits.Traits\)"),
        ("unknown_collective:Mine", r"collectives: \('all_reduce',\) was given; 'all_reduce' is none of all-reduce, "),
        ("no_formula:Mine", "traits of a strategy: wire: field required"),
        ("own_strategies:Missing", "Missing"),
        ("no_such_module:Mine", "no_such_module"),
        ("broken:Mine", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_a_strategy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, says: str
) -> None:
    (tmp_path / "own_strategies.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "unknown_collective.py").write_text(MINE.replace('"all-reduce"', '"all_reduce"'))
    (tmp_path / "no_formula.py").write_text(MINE.replace(", wire=ring", ""))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FactoryError, match=says):
        find_strategy(reference)


def test_the_strategy_of_the_documentation_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text()
    begin = text.index("    from worldsize.strategies import Strategy")
    lines = text[begin : text.index("\nMessages must go", begin)].splitlines()
    (tmp_path / "documented.py").write_text("\n".join(line.removeprefix("    ") for line in lines))
    found = find_strategy(f"{tmp_path / 'documented.py'}:MyStrategy")
    sizes = sizes_of(nn.Linear(3, 2, bias=False))
    assert found.traits.wire_bytes(2, sizes).payload_bytes == 6 * 4


def test_every_method_that_the_page_names_is_there() -> None:
    text = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text()
    section = text[text.index("\nMessages must go") : text.index("\n## What gloo does")]
    named = set(re.findall(r"`(\w+)\(\)`", section))
    assert {"after_step", "state", "full_weights", "uninstrumented"} <= named
    assert [name for name in sorted(named) if not callable(getattr(Strategy, name, None))] == []
