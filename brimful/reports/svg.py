"""Matplotlib drawings as inline SVG whose colours are the page's CSS variables: one drawing, light and dark.

Matplotlib draws with stand-in colours, and each is then replaced by `var(--name)`. Text stays text, in the
page's font. The same drawing gives the same bytes.
"""

import io
import re
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from markupsafe import escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = ("c1", "c2", "c3", "c4", "c5", "c6")
"""Names of the colours of curves and bars."""
STAND_IN = {name: f"#0000{number:02x}" for number, name in enumerate(("ink", "muted", "grid", *SERIES), 1)}
_NAMES = {colour: name for name, colour in STAND_IN.items()}
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "text.color": STAND_IN["ink"],
    "axes.edgecolor": STAND_IN["grid"],
    "axes.labelcolor": STAND_IN["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "xtick.color": STAND_IN["muted"],
    "ytick.color": STAND_IN["muted"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": STAND_IN["grid"],
    "grid.linewidth": 0.7,
    "figure.constrained_layout.use": True,
}


def drawing_style() -> AbstractContextManager[None]:
    """The context in which drawings are made and written, whatever the user's own matplotlibrc says."""
    import matplotlib.style

    return matplotlib.style.context(["default", _STYLE])


def new_drawing(width: float, height: float) -> "tuple[Figure, Axes]":
    """A transparent drawing of that many inches, with one set of axes."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height))
    drawing.patch.set_visible(False)
    axes = drawing.add_subplot()
    axes.patch.set_visible(False)
    return drawing, axes


def to_svg(drawing: "Figure", description: str) -> str:
    """The drawing as an <svg> element for an HTML page; the description is for those who can't see it."""
    import matplotlib

    file = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": description}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has it
        drawing.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = file.getvalue()
    width, height = drawing.get_size_inches() * 72
    box = f'viewBox="0 0 {width:g} {height:g}"'
    head = f'<svg class="chart" {box} role="img" aria-label="{escape(description)}">'
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<style type=.*?</style>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r' (?:d|x|y|width|height|transform)="[^"]*"', _round, body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    return head + re.sub(r"#0000[0-9a-f]{2}\b", _variable, body).strip()


def _round(attribute: re.Match[str]) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])


def _variable(colour: re.Match[str]) -> str:
    return f"var(--{_NAMES[colour[0]]})" if colour[0] in _NAMES else colour[0]
