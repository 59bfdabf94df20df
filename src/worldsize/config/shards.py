"""What a strategy leaves no room for whose ranks keep shards: what needs whole weights, or weights of its own."""

from typing import Any

from worldsize.traits import TRAITS


def refuse_beside_shards(settings: Any) -> None:
    """Raise ValueError for settings that mean nothing under one of `settings.strategies`."""
    sharded = [name for name in settings.strategies if name in TRAITS and TRAITS[name].travels == "shards"]
    if not sharded:
        return
    if settings.optimizer == "muon":
        raise ValueError(f"optimizer: muon was given; it needs whole matrices, and {sharded[0]} keeps shards: give sgd")
    of_cells = [cell.leave_out or () for cell in settings.cells if cell.strategy in sharded]
    if any("initial-weights" in left_out for left_out in (settings.leave_out, *of_cells)):
        raise ValueError(
            f"leave_out: initial-weights was given; {sharded[0]} cuts one model into shards, so ranks cannot begin "
            "apart: name another strategy"
        )
