"""The help of a command as it is drawn: panels of two columns, on a terminal and in a pipe alike."""

from typing import Any

from rich import box
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from worldsize.cli.console import lines, output
from worldsize.cli.flags import TAKEN
from worldsize.cli.help_text import allowed_text, default_text, kind_text
from worldsize.cli.panels import ARGUMENTS, OUTPUT, PANELS, UNSHOWN
from worldsize.traits import TRAITS

MAX_WIDTH = 100
"""Longer lines are hard to read."""
AUTO = "one worker, and each strategy that could be fastest on this link, with planned buckets"
OF_STRATEGIES = ("strategy", "strategies")
FRAME = 6
"""Columns of the frame and of what stands between flag and sentence."""
MAX_NAME = 30
"""Columns that a flag may take of 80."""


def drawn(command: TyperCommand, ctx: Any) -> str:
    """Usage, description and panels, with colour where the terminal has it."""
    console = output()
    console.width = min(console.width, MAX_WIDTH)
    panels: dict[str, list[Any]] = {name: [] for name in PANELS}
    for parameter in command.get_params(ctx):
        argument = parameter.param_type_name == "argument"
        panel = getattr(parameter, "rich_help_panel", None) or (ARGUMENTS if argument else OUTPUT)
        panels[panel].append(parameter)
    shown = {name: [_row(command, each) for each in found] for name, found in panels.items() if found}
    left = min(MAX_NAME, max(part.cell_len for rows in shown.values() for head, _, _ in rows for part in head.split()))
    room = console.width - left - FRAME
    with console.capture() as captured:
        console.print(command.get_usage(ctx), style="bold", soft_wrap=True)
        for paragraph in (command.help or "").split("\n\n"):
            console.print()
            console.print("\n".join(lines(paragraph, console.width)), soft_wrap=True)
        console.print()
        for name, rows in shown.items():
            console.print(_panel(name, [(head, _fitted(text, details, room)) for head, text, details in rows], left))
        if any(each.name in OF_STRATEGIES for found in panels.values() for each in found):
            does = {name: traits.does for name, traits in TRAITS.items()}
            does |= {"auto": AUTO} if command.name == "study" else {}
            content = [(Text(name), Text("\n".join(lines(what, room)))) for name, what in does.items()]
            console.print(_panel("Strategies (docs/strategies.md)", content, left))
    return captured.get()


def _panel(name: str, rows: list[tuple[Text, Text]], left: int) -> Panel:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(width=left, overflow="fold")
    table.add_column(ratio=1, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return Panel(table, title=Text(name, style="bold"), title_align="left", border_style="dim", box=box.ROUNDED)


def _fitted(text: str, details: str, room: int) -> Text:
    """Both on one line if there is room, else the details on lines of their own."""
    between = " " if len(text) + 1 + len(details) <= room else "\n"
    broken = [line for part in f"{text}{between}{details}".split("\n") for line in lines(part, room)]
    content = Text("\n".join(broken))
    if details:
        content.stylize("dim", len(content) - len(details))
    return content


def _row(command: TyperCommand, parameter: Any) -> tuple[Text, str, str]:
    """A flag, its sentence, and what is allowed and holds without it."""
    flag = TAKEN.get(str(command.name), {}).get(parameter.name)
    field = flag.setting if flag else None
    if parameter.param_type_name == "argument":
        head = Text(parameter.name.upper(), style="bold cyan")
    else:
        names = [each for each in (*parameter.opts, *parameter.secondary_opts) if each not in UNSHOWN]
        head = Text("\n").join(Text(each, style="bold cyan") for each in names)
        kind = parameter.metavar or (kind_text(parameter.name, field) if field else "TEXT")
        if not parameter.is_flag and kind:
            head.append(f" {kind}", style="yellow")
    said = [allowed_text(parameter.name, field)] if field and not parameter.is_flag else []
    default = parameter.show_default if isinstance(parameter.show_default, str) else ""
    if flag and not flag.setting.is_required():
        default = default or default_text(flag.field, flag.setting)
    said += [f"default: {default}"] if default else []
    details = "; ".join(filter(None, said))
    return head, parameter.help or "", f"[{details}]" if details else ""
