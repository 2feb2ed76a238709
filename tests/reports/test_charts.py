"""Pictures: labels never cross, numbers are in the description, and the same chart gives the same bytes."""

import itertools
import random
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from brimful.base.summary import MeasuredOn, ModelResult, Series, SummaryChart
from brimful.reports.charts import draw_chart, to_svg
from brimful.reports.page import draw_scatter


def scatter(n: int, seed: int) -> SummaryChart:
    """Models with long names, many of them almost at the same place."""
    numbers = random.Random(seed)
    models = [
        ModelResult(
            name=f"Frozen encoder + linear model {place}",
            value=0.8 + numbers.choice([0.0, 0.001, 0.05]) * numbers.random(),
            error=0.01,
            milliseconds=numbers.choice([1.0, 1.1, 30.0]) * (1 + numbers.random()),
        )
        for place in range(n)
    ]
    (chart,) = draw_scatter(MeasuredOn("accuracy", 100, "f", share=True), models)
    return chart


CHARTS = [
    *(scatter(n, seed) for n, seed in ((2, 0), (5, 1), (12, 2))),
    SummaryChart("Loss", "lines", "updates", "loss", [Series("a", [1.0, 2e6], [9.0, 1e-3])]),
]


def hidden_ticks(axes: Any) -> list[Text]:
    """The labels of ticks outside the axes, which are not drawn."""
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        found += [tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
    return found


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: f"{chart.title} {len(chart.series)}")
def test_labels_never_cross(chart):
    drawing = draw_chart(chart)
    FigureCanvasAgg(drawing).draw()
    texts = [text for text in drawing.findobj(Text) if text.get_text().strip() and text.get_visible()]
    texts = [text for text in texts if text not in hidden_ticks(drawing.axes[0])]
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts]
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        assert not first.overlaps(second), (one, other)
    if chart.kind == "points":
        names = {series.name for series in chart.series}
        inside = [name for name, box in boxes if box.x0 >= 0 and box.x1 <= drawing.bbox.x1]
        assert names <= set(inside)


@pytest.mark.parametrize("chart", [CHARTS[0], CHARTS[-1]])
def test_the_same_chart_gives_the_same_bytes_and_says_its_numbers(chart):
    svg = to_svg(chart)
    assert svg == to_svg(chart)
    assert chart.title in svg
    assert chart.series[0].name in svg
    assert "#0000" not in svg
