"""The colours of the charts, told apart with any colour vision, on light and on dark."""

from collections.abc import Sequence

import altair as alt

PART_COLOURS = {
    "data_wait_s": "#E69F00",
    "copy_s": "#CC79A7",
    "forward_s": "#56B4E9",
    "backward_s": "#0072B2",
    "exposed_sync_s": "#D55E00",
    "optimizer_s": "#009E73",
    "other_s": "#999999",
}
"""Okabe and Ito's palette; compute is blue and green, waiting is warm."""
STRATEGY_COLOURS = {
    "single": "#999999",
    "data-parallel": "#CC79A7",
    "gather-scatter": "#E69F00",
    "all-reduce": "#009E73",
    "ddp": "#0072B2",
}
OTHER_COLOURS = ("#D55E00", "#56B4E9", "#B39B00", "#8C6BB1")
"""For strategies of the user's own."""
MESSAGES = "#8C6BB1"
"""Messages, in the lanes of communication and beside the link's rates."""


def strategy_scale(strategies: Sequence[str]) -> alt.Scale:
    """Each strategy has its colour in every chart."""
    others = [name for name in strategies if name not in STRATEGY_COLOURS]
    spare = {name: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, name in enumerate(others)}
    return alt.Scale(domain=list(strategies), range=[{**STRATEGY_COLOURS, **spare}[name] for name in strategies])
