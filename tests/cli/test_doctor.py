"""The lines that `worldsize doctor` prints."""

import io

from rich.console import Console

from worldsize.cli.doctor import as_lines
from worldsize.measure.abilities import Ability, Diagnosis, diagnose
from worldsize.measure.facts import system_facts, torch_facts
from worldsize.measure.machine import snapshot_host

LONG = "a/very/long/path/without/any/blank" * 4


def lines(diagnosis: Diagnosis) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    with console.capture() as capture:
        console.print(as_lines(diagnosis))
    return capture.get().splitlines()


def real() -> Diagnosis:
    return diagnose(snapshot_host(with_gpus=False), torch_facts(), system_facts(), {})


def test_what_the_launchers_need_is_told() -> None:
    text = " ".join(" ".join(lines(real())).split())
    assert "for --launcher slurm: a study as one Slurm job" in text
    assert "for --launcher ray: a study over the nodes of a Ray cluster" in text
    assert "not used by this version" not in text


def test_every_ability_and_every_group_is_shown_within_80_columns() -> None:
    diagnosis = real()
    text = lines(diagnosis)
    assert max(map(len, text)) <= 80
    for ability in diagnosis.abilities:
        assert ability.group in text
        assert any(f" {ability.name} " in line for line in text)


def test_marks_say_it_in_words_and_remedies_follow() -> None:
    diagnosis = real()
    diagnosis.abilities = [
        Ability(group="one", name="present", available=True, detail="it is here", expected_gain="so much"),
        Ability(group="one", name="absent", available=False, detail=LONG, remedy="apt-get install it"),
        Ability(group="two", name="fact", available=None, detail="[bold] is no markup"),
    ]
    text = lines(diagnosis)
    joined = "".join(line.strip() for line in text)
    assert any(line.split()[:3] == ["✓", "yes", "present"] for line in text)
    assert any(line.split()[:3] == ["✗", "no", "absent"] for line in text)
    assert any(line.split() == ["fact", "[bold]", "is", "no", "markup"] for line in text)
    assert "→ apt-get install it" in joined
    assert "gain: so much" in joined
    assert LONG in joined
