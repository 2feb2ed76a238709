"""What is said of an export: its Summary, and README.md, a model card with blanks for what only its owner
knows."""

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from brimful.base.console import escape_controls, pluralise
from brimful.base.numbers import (
    find_mapping,
    find_number,
    format_megabytes,
    format_milliseconds,
    format_percent,
    format_short,
    format_value,
)
from brimful.base.storage import read_object
from brimful.base.summary import (
    OVERVIEW,
    MeasuredOn,
    ModelResult,
    Summary,
    make_facts_table,
    make_table,
)
from brimful.exporting.exported import Export
from brimful.exporting.formats import Format, render
from brimful.exporting.gate import describe_loss
from brimful.hf.model_folder import OVERLAP
from brimful.runs.directory import SUMMARY
from brimful.runs.places import CONFIG
from brimful.tasks.judging.comparison import find_error
from brimful.tasks.registry import TASKS, find_task

Facts = Mapping[str, Any]
WEIGHT_SUFFIXES = (".safetensors", ".onnx", ".data", ".xml", ".bin")
"""Of the files that hold an exported model."""
TEST_PARTS = ("test", "given")
"""Rows that no training has chosen by: only on them exports are compared with other models."""
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


def measure_model(files: Iterable[Path]) -> float:
    """The size of the model among the files of an export in MB, without its tokenizer and pages."""
    return sum(file.stat().st_size for file in files if file.suffix in WEIGHT_SUFFIXES) / 1e6


def summarise_export(facts: Facts) -> Summary:
    """What came out of an export.

    Args:
        facts: what export.json holds, with `format_megabytes`, and `out` where it is known.
    """
    gate = find_mapping(facts, "gate")
    difference = find_number(facts, "max_abs_logit_difference")
    verdict = "not loaded with transformers, which is not installed"
    if gate:
        verdict = f"{describe_loss(gate)} on {pluralise(gate['texts'], 'text')} of {gate['file']}"
    elif difference is not None:
        verdict = f"its outputs in float32 are the model's within {difference:.1e}"
    hidden = find_number(facts, "max_abs_hidden_difference")
    rows = {
        "Size": format_megabytes(find_number(facts, "megabytes") or 0),
        "Model": f"{facts['model']}, {facts['parameters']:,} parameters, {facts['pieces']:,} pieces",
        "Checkpoint": f"step {facts['step']:,}" if "step" in facts else None,
        "Largest difference of an output": None if difference is None else f"{difference:.1e} in float32",
        "Hidden states, from transformers": None if hidden is None else f"{hidden:.1e}",
        **_describe_speed(gate),
        **_describe_pieces(find_mapping(facts, "pruned")),
        "Next": f"python {shlex.quote(str(Path(facts['out']) / 'example.py'))}" if "out" in facts else None,
    }
    details = make_table("On real texts", ["", ""], _list_details(gate), is_detail=True)
    test, models = _compare_with_source(facts, gate)
    title, verdict = f"Export as {facts['format']}", f"{verdict[:1].upper()}{verdict[1:]}."
    return Summary(title, verdict, make_facts_table("Export", rows) + details, [], test, models)


def _describe_speed(gate: Facts) -> dict[str, str | None]:
    """How fast an export is, and what of it is in eight bits."""
    if not gate:
        return {}
    equal = find_number(gate, "equal_predictions")
    return {
        "Equal predictions": None if equal is None else format_percent(equal),
        "Texts a second": format_short(gate["texts_per_second"]),
        "One text": format_milliseconds(gate["p50_ms"]),
        "On": f"{pluralise(gate['cores'], 'core')} of {gate['processor']}",
        "Products in int8": format_value(gate["in_int8"]) if "in_int8" in gate else None,
        "In a wider format": format_value(gate["in_bf16"]) if gate.get("in_bf16") else None,
    }


def _describe_pieces(pruned: Facts) -> dict[str, str]:
    """What became of the vocabulary."""
    if not pruned:
        return {}
    used = f"{pluralise(pruned['texts'], 'text')} use {pruned['used']:,}"
    return {"Pieces": f"{pruned['pieces_before']:,} before, {pruned['pieces_after']:,} after; {used}"}


def _list_details(gate: Facts) -> list[list[str]]:
    """What else was found on real texts."""
    names = {
        "max_score_difference": "Largest difference of a score",
        "correlation": "Correlation of values",
        "mean_cosine": "Mean cosine",
        "least_cosine": "Least cosine",
    }
    rows = [[name, f"{gate[key]:.4g}"] for key, name in names.items() if key in gate]
    if gate:
        metric_of = "" if "metric" in gate else "; no labels were given, so the metric is unknown"
        rows.append(["Compared with", f"the model in {gate['precision']}{metric_of}"])
        rows.append(["Instructions", gate["instructions"]])
    return rows


def _compare_with_source(facts: Facts, gate: Facts) -> tuple[MeasuredOn | None, list[ModelResult]]:
    """The export and its model on test rows; None and no models where its metric is unknown there."""
    known = gate.get("part") in TEST_PARTS and gate.get("task") in TASKS
    metrics = find_task(gate["task"]).metrics if known else ()
    primary = next((one for one in metrics if one.name == gate.get("metric")), None)
    if primary is None:
        return None, []
    n = gate["texts"]
    is_high = primary.best == "highest"
    test = MeasuredOn(primary.title, n, str(gate.get("fingerprint", "")), is_high, primary.percent)
    errors = [find_error({primary.name: gate[key]}, primary, n) for key in ("before", "after")]
    source = ModelResult(name="Its model", value=gate["before"], error=errors[0], folder=str(facts["source"]))
    own = ModelResult(
        name=f"Export, {facts['format']}",
        value=gate["after"],
        error=errors[1],
        pairs={source.name: gate["standard_error"]},
        is_own=True,
        milliseconds=find_number(gate, "p50_ms"),
        texts_per_second=find_number(gate, "texts_per_second"),
        megabytes=find_number(facts, "megabytes"),
        parameters=find_number(facts, "parameters"),
    )
    return test, [own, source]


def card(export: Export, form: Format, name: str, found: Summary) -> str:
    """README.md, with the YAML that model hubs read first, and what the run says of the model that it made.

    Args:
        name: of the model.
        found: the Summary of the export.
    """
    run = export.source.path.parent
    is_run = (run / SUMMARY).is_file() and (run / CONFIG).is_file()
    made = find_mapping(read_object(run / SUMMARY), OVERVIEW) if is_run else {}
    pipeline, about = PIPELINES[export.kind]
    rows = [row for table in found.tables for row in table.rows]
    return render(
        "README.md.j2",
        library=form.library,
        pipeline=pipeline,
        name=inert(name),
        about=about,
        kind=export.kind,
        reads_two=export.reads_two,
        file=form.describe_file(),
        max_length=export.max_length,
        overlap=export.values.get(OVERLAP),
        side=export.side,
        labels=[inert(label) for label in export.labels or ()],
        made=inert(made.get("verdict") or FILL_IN),
        verdict=inert(found.verdict),
        found=[f"{inert(name)}: {inert(value)}" for name, value in rows],
    )


def inert(text: str) -> str:
    """A text that means nothing to Markdown: what could is in a code span, on one line."""
    if re.fullmatch(r"[\w \u202f.,:;/+%±()'-]*", text):
        return text
    text, longest = escape_controls(text), max(map(len, re.findall("`+", text)), default=0)
    fence, room = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{room}{text}{room}{fence}"
