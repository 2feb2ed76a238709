"""README.md of an export: what is known of the model, and blanks for what only its owner knows."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brimful.base.config import read_yaml
from brimful.base.console import visible
from brimful.base.numbers import accuracy_error, metric
from brimful.exporting.exported import Export
from brimful.exporting.format import Format, render
from brimful.hf.model_folder import OVERLAP, ModelFolder
from brimful.runs.directory import CONFIG, SUMMARY, read_summary

DATA_OPTIONS = ("data", "train", "dev", "test", "unlabelled")
TRAINING_OPTIONS = ("encoder", "teacher", "epochs", "batch", "max_length", "seed", "precision")
TRAINING_FACTS = ("parameters", "learning_rate", "seconds")
FILL_IN = "(fill in)"
PIPELINES = {
    "classes": ("text-classification", "One label for each text, with its probability."),
    "labels": ("text-classification", "Any number of labels for each text, with their probabilities."),
    "values": ("text-classification", "A value for each text."),
    "tokens": ("token-classification", "Labelled spans of each text."),
    "answers": ("question-answering", "The answer to a question, as a span of a text."),
    "words": ("fill-mask", "The words that a masked text may have had."),
    "vectors": (
        "sentence-similarity",
        "A vector for each text; the cosine of two says how alike the texts are.",
    ),
}
"""By what a model computes (`Export.kind`): the name by which model hubs sort it, and a sentence."""


def run_of(folder: ModelFolder) -> dict[str, Any]:
    """The options and the summary of the run that a model's folder is in; empty where it is in none."""
    run = folder.path.parent
    if not (run / SUMMARY).is_file() or not (run / CONFIG).is_file():
        return {}
    return {"options": read_yaml(run / CONFIG), "summary": read_summary(run)}


def card(export: Export, form: Format, name: str, run: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The page, with the YAML that model hubs read first.

    Args:
        name: of the model.
        run: see `run_of`.
        facts: what export.json will say.
    """
    options, summary = run.get("options", {}), run.get("summary", {})
    pipeline, about = PIPELINES[export.kind]
    measured_on, metrics = _metrics(summary)
    return render(
        "README.md.j2",
        {"inert": inert},
        library=form.library,
        pipeline=pipeline,
        name=inert(name),
        about=about,
        facts=facts,
        kind=export.kind,
        reads_two=export.reads_two,
        file=form.describe_file(),
        max_length=export.max_length,
        overlap=export.values.get(OVERLAP),
        side=export.side,
        labels=[inert(label) for label in export.labels or ()],
        data=_lines(options, DATA_OPTIONS),
        measured_on=measured_on,
        metrics=metrics,
        training=[
            *_lines(options, TRAINING_OPTIONS),
            *(_lines(summary, TRAINING_FACTS) or [FILL_IN]),
        ],
    )


def inert(text: str) -> str:
    """A name that means nothing to Markdown: what could is in a code span, on one line."""
    if re.fullmatch(r"[\w .,:/+-]*", text):
        return text
    text, longest = visible(text), max(map(len, re.findall("`+", text)), default=0)
    fence, room = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{room}{text}{room}{fence}"


def _lines(values: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """A line for each of these that is known. A path shows its last name: the rest is of no use elsewhere."""
    known = {name: values.get(name) for name in names}
    return [
        f"{name}: {_shown(value)}"
        for name, value in known.items()
        if value is not None and value != [] and not isinstance(value, Mapping)
    ]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, Mapping):  # a corpus of a mixture
        return _shown(value.get("path", FILL_IN))
    if isinstance(value, str):
        return inert(Path(value).name)
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}"


def _metrics(summary: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Where the model was measured, and a line for each metric with its error: on test, or else on dev."""
    table = "the test table" if summary.get("test") else "the dev table, by which the model was chosen"
    found = summary.get("test") or summary.get("dev")
    if not isinstance(found, Mapping):
        return "", []
    n = metric(found, "n")
    student = summary.get("student")
    if isinstance(student, Mapping):  # `test` has only the number of rows
        found = {key: value for key, value in student.items() if key != "parameters"}
    lines = []
    for key in found:
        value = metric(found, key)
        if value is not None and key != "n" and not key.endswith("_std"):
            lines.append(f"{key}: {value:.6g}{_error(found, key, n)}")
    rows = "" if n is None else f", {n:,.0f} rows"
    return f"On {table}{rows}:", lines or [FILL_IN]


def _error(found: Mapping[str, Any], key: str, n: float | None) -> str:
    """The deviation of a metric over seeds, or the standard error of an accuracy over rows."""
    deviation = metric(found, f"{key}_std")
    if deviation is not None:
        return f" ± {deviation:.2g} (standard deviation over seeds)"
    error = accuracy_error(found[key], n) if key == "accuracy" else None
    return "" if error is None else f" ± {error:.2g} (standard error)"
