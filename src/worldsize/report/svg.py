"""From a chart's definition to a static SVG: no script, no network, readable on light and on dark; and to a PNG."""

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

Chart = alt.Chart | alt.LayerChart | alt.FacetChart

INK = "#767676"
"""Text and lines of a chart in a file of its own: contrast above 4 on white and on black. On the page they take the
colour of the text around them."""
CHARACTER = 8
"""Pixels that a character of a label takes, about."""
FONT = "sans-serif"
FONT_SIZE = 12
PNG_INK, PNG_PAPER = "#333333", "white"
"""A PNG is pasted where the background is unknown: it brings its own, and needs no colour between the two."""
PNG_SCALE = 2.0
"""Pixels of a PNG for one of the SVG: sharp on a slide."""
ROOM = 1.2
"""Text is laid out this much larger than it is drawn: the reader's font may be wider than the one measured here."""


@dataclass(frozen=True)
class Size:
    """What a chart is drawn for."""

    width: int
    """Pixels over all, about; a wider drawing is scaled down."""
    height: int
    """Pixels of the plot, where the content does not give it."""
    legend_columns: int
    part_columns: int
    """Columns of the legend that has the long names of the parts of a step."""
    ticks: int
    label_room: float
    """Room to the right of the longest bar for each character of its label, as a share of the bar."""
    long_ends: bool
    """Whether there is room for more than one number at the end of a bar."""

    def plot_width(self, longest_label: int) -> int:
        """Pixels that are left for the plot beside labels of up to so many characters."""
        return max(self.width // 3, self.width - CHARACTER * longest_label)


WIDE = Size(width=720, height=300, legend_columns=4, part_columns=4, ticks=8, label_room=0.017, long_ends=True)
NARROW = Size(width=350, height=240, legend_columns=2, part_columns=1, ticks=4, label_room=0.06, long_ends=False)
"""A telephone: the text keeps its size, instead of a wide chart shrunk to half."""


@dataclass(frozen=True)
class Drawing:
    """A chart that is drawn in the background; `description` says in words what it shows."""

    id: str
    title: str
    description: str
    drawn: tuple[Future[str], Future[str]]
    """The wide and the narrow SVG."""
    made: Callable[[Size], Chart]
    """The chart itself."""
    table: str = ""
    """Id of the table that has its numbers."""
    note: str = ""
    """How to read it, and what it leaves out; stands beside it."""
    row: str = ""
    """The page shows the narrow drawing at any width, beside those that follow it with the same word here."""

    def chart(self) -> Chart:
        """The chart as an Altair object, for a notebook: it can be changed, and saved in other formats."""
        return self.made(WIDE).properties(title=self.title)

    @property
    def wide(self) -> str:
        """SVG for a screen or paper; also the file."""
        return self.drawn[0].result()

    @property
    def narrow(self) -> str:
        """SVG for a telephone."""
        return self.drawn[1].result()


CHECKED = False
"""Whether Altair checks each part of a chart against its schema: the tests do, for a seventh of a large report."""
_DRAWER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worldsize-draw")
"""The drawing library draws one chart at a time and leaves Python alone meanwhile: the next one is made then."""
_ROLES = re.compile(r'(<g class="[^"]*") role="[^"]*" aria-roledescription="[^"]*"')
"""Vega gives its groups roles without a name, which says nothing; the whole drawing has one."""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WORDS = {
    "labelColor": INK,
    "titleColor": INK,
    "labelFontSize": ROOM * FONT_SIZE,
    "titleFontSize": ROOM * FONT_SIZE,
}
_LOOK = {
    "aria": False,  # the whole drawing has one label, and a table beside it
    "font": FONT,
    "padding": 2,
    "view": {"stroke": None},
    "text": {"fontSize": ROOM * FONT_SIZE, "color": INK},
    "axis": {
        **_WORDS,
        "titleFontWeight": "normal",
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "labelLimit": 260,
        "gridColor": INK,
        "gridOpacity": 0.16,
    },
    "axisY": {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "start", "titleY": -14, "titleX": 0},
    "legend": {
        **_WORDS,
        "symbolStrokeWidth": 2,
        "labelLimit": 240,
        "columnPadding": 14,
    },
}
"""Vega's configuration: https://vega.github.io/vega/docs/config/."""


def draw(
    drawing_id: str,
    title: str,
    description: str,
    chart: Callable[[Size], Chart],
    *,
    table: str = "",
    note: str = "",
    row: str = "",
) -> Drawing:
    """Draw a chart for both sizes; what the keywords mean is said in `Drawing`."""
    label = f"{title}. {description}"
    with debug_mode(CHECKED):
        definitions = [_definition(chart(size)) for size in (WIDE, NARROW)]
    wide, narrow = (_DRAWER.submit(_svg, definition, label) for definition in definitions)
    return Drawing(drawing_id, title, description, (wide, narrow), chart, table, note, row)


AXIS_LABEL = 6
"""Characters of the longest number beside a vertical axis."""


def pointed_lines(base: alt.Chart, size: Size) -> Chart:
    """Lines through few points, which are marked; `base` has the data and how it is encoded."""
    chart: Chart = alt.layer(base.mark_line(strokeWidth=1.5), base.mark_point(filled=True, size=60, opacity=1))
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)


def values(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """The data of a chart, as text: the drawing library copies each row several times otherwise."""
    return alt.InlineData(values=json.dumps(_drawable(list(rows))), format=alt.JsonDataFormat(type="json"))


def inline(svg: str) -> str:
    """The SVG for use inside a page: its text takes the page's font and colour."""
    return svg.replace(f'"{INK}"', '"currentColor"').replace(f'font-family="{FONT}"', 'font-family="inherit"')


def png_later(drawing: Drawing) -> Future[bytes]:
    """The same, when it is ready: what was asked for before is drawn first."""
    return _DRAWER.submit(png, drawing)


def png(drawing: Drawing) -> bytes:
    """The same drawing as pixels: twice the size of the SVG, dark on white."""
    paper = f'<rect width="100%" height="100%" fill="{PNG_PAPER}"/>'
    svg = re.sub(r"<svg [^>]*>", lambda head: head[0] + paper, drawing.wide, count=1)
    drawn: bytes = vl_convert.svg_to_png(svg.replace(f'"{INK}"', f'"{PNG_INK}"'), scale=PNG_SCALE)
    return drawn


def _definition(chart: Chart) -> Any:
    return _drawable(chart.properties(background="transparent").to_dict(validate=False))


def _svg(spec: Any, label: str) -> str:
    """SVG text with a role and a label for screen readers."""
    # "v6.4.1" is drawn with Vega-Lite 6.4; no address may be loaded.
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=version, config=_LOOK, allowed_base_urls=[])
    drawn = drawn.replace(f'font-size="{ROOM * FONT_SIZE}px"', f'font-size="{FONT_SIZE}px"')
    drawn = _ROLES.sub(r"\1", drawn)
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{html.escape(_drawable(label), quote=True)}" ', 1)


def _drawable(value: Any) -> Any:
    """A definition whose texts XML can hold: at a control character in a name, the drawing library ends the process."""
    if isinstance(value, str):
        return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {_drawable(key): _drawable(each) for key, each in value.items()}
    return [_drawable(each) for each in value] if isinstance(value, list) else value
