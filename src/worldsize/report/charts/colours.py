"""The colours of the charts, distinct with any colour vision, on light and on dark."""

from collections.abc import Sequence

import altair as alt

from worldsize.traits import TRAITS

PART_COLOURS = {
    "data_wait_s": "#E69F00",
    "copy_s": "#CC79A7",
    "forward_s": "#56B4E9",
    "backward_s": "#0072B2",
    "exposed_sync_s": "#D55E00",
    "optimizer_s": "#009E73",
    "other_s": "#999999",
    "evaluation_s": "#8C6BB1",
    "checkpoint_s": "#B39B00",
    "restart_s": "#F0E442",
    "logging_s": "#CCCCCC",
    "garbage_s": "#666666",
}
"""Okabe and Ito's palette; compute is blue and green, waiting is warm."""
STRATEGY_COLOURS = dict(zip(TRAITS, ("#999999", "#CC79A7", "#E69F00", "#009E73", "#0072B2"), strict=False))
"""The first of the table have a colour of their own in every chart."""
OTHER_COLOURS = ("#D55E00", "#56B4E9", "#B39B00", "#8C6BB1")
"""In turn for the further ones, and those of the user's own."""
MESSAGES = "#8C6BB1"
"""Messages, in the lanes of communication and beside the link's rates."""


def strategy_scale(strategies: Sequence[str]) -> alt.Scale:
    """Each strategy has its colour in every chart."""
    others = [name for name in strategies if name not in STRATEGY_COLOURS]
    spare = {name: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, name in enumerate(others)}
    return alt.Scale(domain=list(strategies), range=[{**STRATEGY_COLOURS, **spare}[name] for name in strategies])
