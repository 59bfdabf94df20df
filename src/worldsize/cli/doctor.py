"""`worldsize doctor`: what this machine can run, and why not the rest."""

from typing import TYPE_CHECKING

from worldsize.cli import options as o

if TYPE_CHECKING:
    from rich.console import RenderableType

    from worldsize.measure.abilities import Ability, Diagnosis


def doctor(as_json: o.Json = False) -> None:
    """Show what this machine can run, and what it lacks for the rest."""
    from worldsize.cli.output import print_json
    from worldsize.measure.abilities import diagnose
    from worldsize.measure.facts import system_facts, torch_facts
    from worldsize.measure.machine import snapshot_host

    torch = torch_facts()
    usable = torch.error is None
    if usable:
        from worldsize.strategies import STRATEGIES
    diagnosis = diagnose(snapshot_host(with_gpus=usable), torch, system_facts(), STRATEGIES if usable else {})
    if as_json:
        print_json(diagnosis.model_dump(mode="json"))
        return
    from worldsize.cli.console import output

    output().print(as_lines(diagnosis))


def as_lines(diagnosis: "Diagnosis") -> "RenderableType":
    """Aligned lines, one per ability under the name of its group; a mark and a word say what is here, what not."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    width = max(len(ability.name) for ability in diagnosis.abilities)
    blocks: list[RenderableType] = [Text(f"worldsize {diagnosis.worldsize_version or '(not installed)'}", style="bold")]
    groups: dict[str, Table] = {}
    for ability in diagnosis.abilities:
        if ability.group not in groups:
            groups[ability.group] = table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(min_width=6, no_wrap=True)
            table.add_column(min_width=width, no_wrap=True)
            table.add_column(overflow="fold")
            blocks += [Text(f"\n{ability.group}", style="bold"), table]
        groups[ability.group].add_row(_mark(ability), Text(ability.name), _detail(ability))
    return Group(*blocks)


def _mark(ability: "Ability") -> "RenderableType":
    from rich.text import Text

    if ability.available is None:
        return Text("")
    return Text("✓ yes", style="green") if ability.available else Text("✗ no", style="red")


def _detail(ability: "Ability") -> "RenderableType":
    from rich.text import Text

    lines = [ability.detail]
    if ability.remedy is not None:
        lines.append(f"→ {ability.remedy}")
    if ability.expected_gain is not None:
        lines.append(f"gain: {ability.expected_gain}")
    return Text("\n".join(lines))
