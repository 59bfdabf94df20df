"""The help of a command: its flags in panels, each with its default and with what is allowed.

Default and allowed values stand nowhere but in the settings (`config/`), and are read there when help is asked for:
`worldsize --help`, and a command that is run, read none of it. typer's own panels have six columns, which leave
22 signs for the sentence on a terminal of 80 and cut words off; these have two.
"""

from typing import Any

from typer.core import TyperCommand


class PanelCommand(TyperCommand):
    """A command whose help is drawn here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description and panels."""
        import sys

        from worldsize.cli.help_page import drawn
        from worldsize.cli.streams import in_its_signs

        # click writes it past our streams: as UTF-8, where it takes theirs for a mistake.
        formatter.write(in_its_signs(drawn(self, ctx), sys.stdout.encoding or "utf-8"))
