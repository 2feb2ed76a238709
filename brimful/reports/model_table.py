"""The table of models side by side, for the screen and the page."""

from collections.abc import Callable, Sequence

from brimful.base.numbers import (
    capitalise,
    format_duration,
    format_gap,
    format_megabytes,
    format_metric,
    format_milliseconds,
    format_short,
)
from brimful.base.summary import (
    CLEAR_ERRORS,
    MeasuredOn,
    ModelResult,
    Summary,
    SummaryTable,
    estimate_gap_error,
    make_table,
    sort_models,
)


def list_main_tables(summary: Summary) -> list[SummaryTable]:
    """Return the models side by side, and the tables that are no details."""
    tables: list[SummaryTable] = []
    if summary.test is not None and len(summary.models) > 1:
        tables += compare_models(summary.test, summary.models)
    return tables + [table for table in summary.tables if not table.is_detail]


def compare_models(test: MeasuredOn, models: Sequence[ModelResult]) -> list[SummaryTable]:
    """Make a table of the models and their costs, the best first.

    Speed stands last, since a narrow terminal leaves out columns in the middle.
    """
    ordered = sort_models(test, models)
    rows = []
    for model in ordered:
        gap, error = abs(ordered[0].value - model.value), estimate_gap_error(ordered[0], model)
        is_best = model is ordered[0]  # it has no gap to show
        rows.append(
            [
                model.name,
                format_metric(model.value, model.error, share=test.share),
                "" if is_best else format_gap(gap, error, share=test.share),
                _show(model.seconds, format_duration),
                _show(model.parameters, format_short),
                _show(model.megabytes, format_megabytes),
                _show(model.texts_per_second, format_short),
                _show(model.milliseconds, format_milliseconds),
            ]
        )
    unit = ", points" if test.share else ""
    quality, costs = [capitalise(test.metric), f"Behind the best{unit}"], ["Training", "Parameters", "Size"]
    columns = ["Model", *quality, *costs, "Texts a second", "One text"]
    note = (
        f"The same {test.n:,} test rows. ± is the standard error over test rows and seeds; of a difference it"
        " is paired where both models' answers were compared, else an upper bound. Up to"
        f" {CLEAR_ERRORS:g} standard errors may be chance, and so may a difference without one."
    )
    return make_table("Models", columns, rows, note)


def _show(value: float | None, form: Callable[[float], str]) -> str:
    return form(value) if value else ""
