"""The Summary of an export, and README.md, a model card with blanks that only the model's owner can fill."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

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
from brimful.base.seals import CONFIG, SUMMARY
from brimful.base.storage import read_object
from brimful.base.summary import (
    OVERVIEW,
    MeasuredOn,
    ModelResult,
    Summary,
    make_facts_table,
    make_table,
)
from brimful.base.types import Facts
from brimful.exporting.exported_model import Export
from brimful.exporting.formats import Format, render
from brimful.exporting.gate import describe_loss
from brimful.hf.model_folder import OVERLAP
from brimful.tasks.judging.comparison import describe_test, find_error
from brimful.tasks.registry import TASKS, find_task

WEIGHT_SUFFIXES = (".safetensors", ".onnx", ".data", ".xml", ".bin")
"""The suffixes of the files that hold an exported model."""
TEST_PARTS = ("test", "given")
"""The parts of the data that no training has used to choose. Exports are compared with other models on rows
of these parts only."""
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
"""The name by which model hubs sort a model, and a sentence about it, by its kind (`Export.kind`)."""


def measure_model(files: Iterable[Path]) -> float:
    """Return the size in MB of the model among the files of an export, without its tokenizer and pages."""
    return sum(file.stat().st_size for file in files if file.suffix in WEIGHT_SUFFIXES) / 1e6


def summarise_export(facts: Facts) -> Summary:
    """Return the Summary of an export.

    Args:
        facts: the content of export.json, with `megabytes`, and `out` if it is known.
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
    }
    if "step" in facts:
        rows["Checkpoint"] = f"step {facts['step']:,}"
    if difference is not None:
        rows["Largest difference of an output"] = f"{difference:.1e} in float32"
    if hidden is not None:
        rows["Hidden states, from transformers"] = f"{hidden:.1e}"
    rows |= _describe_speed(gate)
    pruned = find_mapping(facts, "pruned")
    if pruned:
        used = f"{pluralise(pruned['texts'], 'text')} use {pruned['used']:,}"
        rows["Pieces"] = f"{pruned['pieces_before']:,} before, {pruned['pieces_after']:,} after; {used}"
    if "out" in facts:
        rows["Next"] = f"python {shlex.quote(str(Path(facts['out']) / 'example.py'))}"
    details = make_table("On real texts", ["", ""], _list_details(gate), is_detail=True)
    test, models = _compare_with_source(facts, gate)
    title, verdict = f"Export as {facts['format']}", f"{verdict[:1].upper()}{verdict[1:]}."
    return Summary(title, verdict, make_facts_table("Export", rows) + details, [], test, models)


def _describe_speed(gate: Facts) -> dict[str, str]:
    """Return rows on the speed of an export, and on its products in eight bits."""
    if not gate:
        return {}
    rows = {}
    if "equal_predictions" in gate:
        rows["Equal predictions"] = format_percent(gate["equal_predictions"])
    rows["Texts a second"] = format_short(gate["texts_per_second"])
    rows["One text"] = format_milliseconds(gate["p50_ms"])
    rows["On"] = f"{pluralise(gate['cores'], 'core')} of {gate['processor']}"
    if "in_int8" in gate:
        rows["Products in int8"] = format_value(gate["in_int8"])
    if gate.get("in_bf16"):
        rows["In a wider format"] = format_value(gate["in_bf16"])
    return rows


def _list_details(gate: Facts) -> list[list[str]]:
    """Return the other measurements on real texts."""
    names = {
        "max_score_difference": "Largest difference of a score",
        "correlation": "Correlation of values",
        "mean_cosine": "Mean cosine",
        "least_cosine": "Least cosine",
    }
    if not gate:
        return []
    rows = [[name, f"{gate[key]:.4g}"] for key, name in names.items() if key in gate]
    unlabelled = "" if "metric" in gate else "; no labels were given, so the metric is unknown"
    rows.append(["Compared with", f"the model in {gate['precision']}{unlabelled}"])
    rows.append(["Instructions", gate["instructions"]])
    return rows


def _compare_with_source(facts: Facts, gate: Facts) -> tuple[MeasuredOn | None, list[ModelResult]]:
    """Return the test rows and the results of export and model on them; None and [] without a metric."""
    is_task = gate.get("part") in TEST_PARTS and gate.get("task") in TASKS
    metrics = find_task(gate["task"]).metrics if is_task else ()
    primary = next((one for one in metrics if one.name == gate.get("metric")), None)
    if primary is None:
        return None, []
    n = gate["texts"]  # the error of a proportion follows from it
    test = describe_test({"test": {"n": n, "fingerprint": gate.get("fingerprint", "")}}, primary)
    before, after = (find_error({primary.name: gate[key]}, primary, n) for key in ("before", "after"))
    source = ModelResult(name="Its model", value=gate["before"], error=before, folder=str(facts["source"]))
    own = ModelResult(
        name=f"Export, {facts['format']}",
        value=gate["after"],
        error=after,
        pairs={source.name: gate["standard_error"]},
        is_own=True,
        milliseconds=find_number(gate, "p50_ms"),
        texts_per_second=find_number(gate, "texts_per_second"),
        megabytes=find_number(facts, "megabytes"),
        parameters=find_number(facts, "parameters"),
    )
    return test, [own, source]


def fill_card(export: Export, form: Format, name: str, summary: Summary) -> str:
    """Return README.md: it begins with YAML for model hubs, and has the verdict of the model's own run.

    Args:
        name: the name of the model.
        summary: the Summary of the export.
    """
    run = export.source.path.parent
    is_run = (run / SUMMARY).is_file() and (run / CONFIG).is_file()
    run_overview = find_mapping(read_object(run / SUMMARY), OVERVIEW) if is_run else {}
    pipeline, about = PIPELINES[export.kind]
    facts = []
    for table in summary.tables:
        facts += [f"{escape_markdown(title)}: {escape_markdown(value)}" for title, value in table.rows]
    return render(
        "README.md.j2",
        library=form.library,
        pipeline=pipeline,
        name=escape_markdown(name),
        about=about,
        export=export,
        file=form.describe_file(),
        overlap=export.values.get(OVERLAP),
        labels=[escape_markdown(label) for label in export.labels or ()],
        run_verdict=escape_markdown(run_overview.get("verdict") or FILL_IN),
        verdict=escape_markdown(summary.verdict),
        facts=facts,
    )


def escape_markdown(text: str) -> str:
    """Return a text that Markdown shows as it is: on one line, and in a code span if it has special marks."""
    if re.fullmatch(r"[\w \u202f.,:;/+%±()'-]*", text):
        return text
    text = escape_controls(text)
    # CommonMark: the fence is longer than any run of backticks in the text, with a space on each side of it.
    ticks = re.findall("`+", text)
    if not ticks:
        return f"`{text}`"
    fence = "`" + max(ticks)
    return f"{fence} {text} {fence}"
