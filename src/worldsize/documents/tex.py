"""Words of TeX as a reader of the page sees them: commands carried out or left out, units and signs written."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from worldsize.documents.numbers import tidy

MAX_DEPTH = 12
"""Arguments within arguments; what is deeper is left out."""

SIGNS = {
    **{"times": "×", "texttimes": "×", "pm": "±", "textpm": "±", "mp": "∓", "cdot": "·", "sim": "~", "approx": "≈"},
    **{
        "le": "≤",
        "leq": "≤",
        "leqslant": "≤",
        "ge": "≥",
        "geq": "≥",
        "geqslant": "≥",
        "neq": "≠",
        "ll": "≪",
        "gg": "≫",
    },
    **{"to": "→", "rightarrow": "→", "Rightarrow": "⇒", "leftarrow": "←", "uparrow": "↑", "downarrow": "↓"},
    **{"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "Delta": "Δ", "epsilon": "ε", "eta": "η", "mu": "µ"},
    **{"textmu": "µ", "lambda": "λ", "sigma": "σ", "tau": "τ", "theta": "θ", "phi": "φ", "rho": "ρ", "infty": "∞"},
    **{"dagger": "†", "dag": "†", "textdagger": "†", "ddagger": "‡", "ddag": "‡", "ast": "*", "star": "*", "S": "§"},
    **{"textasteriskcentered": "*", "P": "¶", "checkmark": "✓", "cmark": "✓", "xmark": "✗", "bullet": "•"},
    **{
        "dots": "…",
        "ldots": "…",
        "cdots": "…",
        "textasciitilde": "~",
        "textbackslash": "\\",
        "textbar": "|",
        "mid": "|",
    },
    **{"quad": " ", "qquad": " ", "space": " ", "newline": " ", "linebreak": " ", "par": "\n\n", "item": "\n\n"},
    **{"textunderscore": "_", "slash": "/", "div": "÷", "ell": "l", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈"},
    **{"rceil": "⌉", "textendash": "–", "textemdash": "—", "textdegree": "°", "textless": "<", "textgreater": ">"},
    **{"LaTeX": "LaTeX", "TeX": "TeX", "tabularnewline": " ", "prime": "'", "propto": "∝", "sum": "∑"},
}
_UNITS = {
    **{
        "second": "s",
        "minute": "min",
        "hour": "h",
        "byte": "B",
        "bit": "b",
        "percent": "%",
        "hertz": "Hz",
        "watt": "W",
    },
    **{"joule": "J", "nano": "n", "micro": "µ", "milli": "m", "kilo": "k", "mega": "M", "giga": "G", "tera": "T"},
    **{
        "kibi": "Ki",
        "mebi": "Mi",
        "gibi": "Gi",
        "tebi": "Ti",
        "per": "/",
        "s": "s",
        "ms": "ms",
        "us": "µs",
        "ns": "ns",
    },
    **{"GB": "GB", "MB": "MB", "kB": "kB", "GHz": "GHz", "MHz": "MHz", "image": "image", "sample": "sample"},
}
_KEPT = {
    **dict.fromkeys(("textcolor", "colorbox", "href", "scalebox", "rotatebox", "raisebox", "parbox", "adjustbox"), 2),
    **dict.fromkeys(("multicolumn", "multirow", "resizebox"), 3),
    "multirowcell": 2,
}
"""Commands that print only their last argument, with the number of their arguments."""
_DROPPED = {
    **dict.fromkeys(("cite", "citep", "citet", "citealp", "parencite", "ref", "cref", "Cref", "eqref", "label"), 1),
    **dict.fromkeys(("footnote", "tnote", "tablefootnote", "vspace", "hspace", "phantom", "hphantom", "vphantom"), 1),
    **dict.fromkeys(("color", "cellcolor", "rowcolor", "includegraphics", "bibliography", "bibliographystyle"), 1),
    **dict.fromkeys(
        ("pagestyle", "usepackage", "documentclass", "input", "ding", "include", "centerline", "setcounter"), 1
    ),
    **dict.fromkeys(("setlength", "addtolength", "renewcommand", "newcommand", "providecommand"), 2),
    "footnotemark": 0,
}
"""Commands that print nothing, with how many arguments they have."""
_TOKEN = re.compile(r"\\([a-zA-Z@]+)\*?[ \t]*\n?[ \t]*|\\(.)|([{}$^_~&])|([^\\{}$^_~&]+)|(\\)", re.DOTALL)
_OPTION = re.compile(r"[ \t]*\[[^\[\]]{0,200}\]")
_BOLD = frozenset(("textbf", "mathbf", "boldsymbol", "bm", "pmb", "mathbold"))
_BOLD_ON = frozenset(("bf", "bfseries", "boldmath"))
_BOLD_OFF = frozenset(("normalfont", "mdseries", "rm", "rmfamily"))
_GROUP = r"\{(?:[^{}]|\{[^{}]*\}){0,300}\}"
_ENVIRONMENT = re.compile(
    rf"\\begin[ \t]*\{{(?:minipage|sub(?:table|figure)|adjustbox|wrap(?:table|figure)|tabular|array|multicols)\*?\}}"
    rf"(?:\[[^\[\]]*\]|{_GROUP}){{0,3}}|\\(?:begin|end)[ \t]*\{{[^{{}}]*\}}(?:\[[^\[\]]*\])?"
)
_COMMAND = re.compile(r"\\(?:[a-zA-Z@]+|.)", re.DOTALL)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


class Words(NamedTuple):
    """Printed words, and whether all of them are bold."""

    text: str
    bold: bool


def plain(source: str, macros: Mapping[str, str] | None = None) -> Words:
    """What TeX prints for a source without tables; `macros` are commands of the author, without arguments."""
    writer = _Writer(macros or {})
    writer.write(_ENVIRONMENT.sub(" ", source), False, 0)
    pieces = [(text, bold) for text, bold in writer.pieces if text.strip()]
    text = "".join(text for text, _ in writer.pieces)
    text = text.replace("---", "—").replace("--", "–").replace("``", '"').replace("''", '"')
    return Words(text.strip(), bool(pieces) and all(bold for _, bold in pieces))


def argument(source: str, at: int, longest: int | None = None) -> tuple[str, int]:
    """The argument that begins at a place, without its braces, and the place after it.

    One that is not closed, or not within the `longest` number of characters, reaches to the end of its line if it is
    to have a longest, else to the end of the source.
    """
    while at < len(source) and source[at].isspace():
        at += 1
    if at >= len(source):
        return "", at
    if source[at] != "{":
        command = _COMMAND.match(source, at)
        end = command.end() if command else at + 1
        return source[at:end], end
    depth = 0
    for mark in _BRACE.finditer(source, at, len(source) if longest is None else at + longest):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth == 0:
            return source[at + 1 : mark.start()], mark.end()
    end = -1 if longest is None else source.find("\n", at)
    end = len(source) if end < 0 else end
    return source[at + 1 : end], end


def skip_options(source: str, at: int) -> int:
    """The place after the options in brackets that begin at a place."""
    while option := _OPTION.match(source, at):
        at = option.end()
    return at


class _Writer:
    """Takes TeX in, and keeps what it prints, with whether it is bold."""

    def __init__(self, macros: Mapping[str, str]) -> None:
        self.pieces: list[tuple[str, bool]] = []
        self._macros = macros
        self._expands = False

    def write(self, source: str, bold: bool, depth: int) -> None:
        """Print a source; groups within it end what they began."""
        if depth > MAX_DEPTH:
            return
        outer: list[bool] = []
        at = 0
        while token := _TOKEN.match(source, at):
            at = token.end()
            name, escaped, mark, words, _ = token.groups()
            if mark in ("{", "}"):
                if mark == "{":
                    outer.append(bold)
                else:
                    bold = outer.pop() if outer else bold
            elif name in _BOLD_ON or name in _BOLD_OFF:
                bold = name in _BOLD_ON
            elif name is not None:
                at = self._command(name, source, at, bold, depth)
            elif mark in ("^", "_"):
                at = self._raised(source, at, mark, bold, depth)
            else:
                self._add(_printed(escaped, mark, words), bold)

    def _add(self, text: str, bold: bool) -> None:
        if text:
            self.pieces.append((text, bold))

    def _raised(self, source: str, at: int, mark: str, bold: bool, depth: int) -> int:
        """A power or an index: `^` stays, so that a footnote mark can be told from a digit."""
        inner, at = argument(source, at)
        before = len(self.pieces)
        self.write(inner, bold, depth + 1)
        if any(text.strip() for text, _ in self.pieces[before:]):
            self.pieces.insert(before, (mark, bold))
        return at

    def _command(self, name: str, source: str, at: int, bold: bool, depth: int) -> int:
        """Print what a command with its arguments prints, and return the place after them."""
        if name in ("SI", "qty", "si", "unit", "num", "numprint", "tablenum"):
            return self._quantity(name, source, at, bold)
        if name in SIGNS:
            self._add(SIGNS[name] + " " * source[at - 1].isspace(), bold)
        elif name in self._macros and not self._expands:
            self._expands = True  # those in it are left out: a few lines of them can stand for gigabytes
            self.write(self._macros[name], bold, depth + 1)
            self._expands = False
        elif name in ("textsuperscript", "textsubscript"):
            return self._raised(
                source, skip_options(source, at), "^" if name == "textsuperscript" else "_", bold, depth
            )
        elif name in ("frac", "dfrac", "tfrac", "nicefrac", "sfrac", "diagbox", "backslashbox"):
            first, at = argument(source, skip_options(source, at))
            second, at = argument(source, at)
            self.write(f"{{{first}}}/{{{second}}}", bold, depth + 1)
        elif name in _DROPPED:
            count = _DROPPED[name]
            at = self._without(count, source, at) if count else skip_options(source, at)
        elif name in _KEPT:
            at = skip_options(source, self._without(_KEPT[name] - 1, source, at))
        else:
            after = skip_options(source, at)
            if source[after : after + 1] == "{":
                inner, at = argument(source, after)
                self.write(inner, bold or name in _BOLD, depth + 1)
        return at

    def _without(self, count: int, source: str, at: int) -> int:
        for _ in range(count):
            _, at = argument(source, skip_options(source, at))
        return at

    def _quantity(self, name: str, source: str, at: int, bold: bool) -> int:
        """siunitx: a number, a unit, or both."""
        parts = []
        if name not in ("si", "unit"):
            number, at = argument(source, skip_options(source, at))
            parts.append(tidy(number.replace("\\pm", " ± ").replace("+-", " ± ")))
        if name not in ("num", "numprint", "tablenum"):
            unit, at = argument(source, skip_options(source, at))
            parts.append(_unit(unit))
        self._add(" ".join(part for part in parts if part), bold)
        return at


def _printed(escaped: str | None, mark: str | None, words: str | None) -> str:
    """What is printed for a letter after a backslash, for a mark, or for words."""
    if escaped is None:
        return words or (" " if mark and mark in "~&" else "")
    return _escaped(escaped)


def _escaped(letter: str) -> str:
    if letter in ",;:> \n\\/-":
        return "" if letter in "/-" else " "
    return letter if letter in "%&#_${}|" else ""


def _unit(source: str) -> str:
    """A unit as siunitx spells it out, or as it is written: both as GB/s."""
    named = re.sub(r"\\([a-zA-Z]+)\s*", lambda found: _UNITS.get(found[1], found[1]), source)
    return tidy(named.replace("{", "").replace("}", "").replace("~", " ").replace(".", " "))
