"""README.md of an export: what is known of the model, and blanks for what only its owner knows."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brimful.base.config import read_yaml
from brimful.base.console import counted, visible
from brimful.base.numbers import accuracy_error, metric
from brimful.exporting.example import Exported
from brimful.exporting.formats import FORMATS
from brimful.hf.int8 import FILE as STEPS
from brimful.hf.model_folder import OVERLAP, ModelFolder
from brimful.runs.directory import CONFIG, SUMMARY, read_summary

_DATA = ("data", "train", "dev", "test", "unlabelled")
_TRAINING = ("encoder", "teacher", "epochs", "batch", "max_length", "seed", "precision")
_PIPELINES = {
    "classes": "text-classification",
    "labels": "text-classification",
    "values": "text-classification",
    "tokens": "token-classification",
    "answers": "question-answering",
    "words": "fill-mask",
    "vectors": "sentence-similarity",
}
_LIBRARIES = {"hf": "transformers", "sentence-transformers": "sentence-transformers", "int8": "brimful"}
FILL_IN = "(fill in)"


def run_of(folder: ModelFolder) -> dict[str, Any]:
    """The options and the summary of the run that a model's folder is in; empty where it is in none."""
    run = folder.path.parent
    if not (run / SUMMARY).is_file() or not (run / CONFIG).is_file():
        return {}
    return {"options": read_yaml(run / CONFIG), "summary": read_summary(run)}


def card(
    export: Exported, name: str, labels: list[str] | None, run: Mapping[str, Any], facts: Mapping[str, Any]
) -> str:
    """The page, with the YAML that model hubs read first.

    Args:
        name: of the model.
        run: see `run_of`.
        facts: what export.json will say.
    """
    options, summary = run.get("options", {}), run.get("summary", {})
    library = _LIBRARIES.get(export.format, export.format.partition("-")[0])
    lines = ["---", "license:  # fill in", "language:  # fill in", f"library_name: {library}"]
    lines += [f"pipeline_tag: {_PIPELINES[export.kind]}", "---", "", f"# {_inert(name)}", ""]
    lines += [_what(export, facts), "", "## Use", "", f"    python example.py {_usage(export)}", ""]
    lines += [f"{_stored(export)} {_length(export)}"]
    lines += ["", f"Labels: {', '.join(map(_inert, labels))}."] if labels else []
    lines += ["", "## Data", "", *_rows(options, _DATA)]
    lines += [f"- What the data are, who may use them, and whom they concern: {FILL_IN}", ""]
    lines += ["## Metrics", "", *_metrics(summary), "", "## Training", "", *_rows(options, _TRAINING)]
    lines += _rows(summary, ("parameters", "learning_rate", "seconds")) or [f"- {FILL_IN}"]
    lines += ["", "## Export", "", *_export(facts), "", "## Licence and limits", ""]
    lines += [f"- Licence of the model: {FILL_IN}", f"- Licence of the data: {FILL_IN}"]
    lines += [f"- What it is for, and what it must not be used for: {FILL_IN}", ""]
    return "\n".join(lines)


def _inert(text: str) -> str:
    """A name that means nothing to Markdown: what could is in a code span, on one line."""
    if re.fullmatch(r"[\w .,:/+-]*", text):
        return text
    text, longest = visible(text), max(map(len, re.findall("`+", text)), default=0)
    fence, room = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{room}{text}{room}{fence}"


def _what(export: Exported, facts: Mapping[str, Any]) -> str:
    said = {
        "classes": "One label for each text, with its probability.",
        "labels": "Any number of labels for each text, with their probabilities.",
        "values": "A value for each text.",
        "tokens": "Labelled spans of each text.",
        "answers": "The answer to a question, as a span of a text.",
        "words": "The words that a masked text may have had.",
        "vectors": "A vector for each text; the cosine of two says how alike the texts are.",
    }[export.kind]
    return f"{said} {facts['model']}, {facts['parameters']:,} parameters, {facts['pieces']:,} pieces."


def _stored(export: Exported) -> str:
    """Where the model is, and what its numbers are."""
    file = f"The model is `{FORMATS[export.format].file}`"
    if export.format != "int8":
        return f"{file} ({export.format})."
    return (
        f"{file}, with the weights and the size of the format hf. Eight bits are only how Brimful computes"
        f" when it predicts, on x86 CPUs; the steps for it are in `{STEPS}`."
    )


def _length(export: Exported) -> str:
    """What becomes of long texts."""
    if (shared := export.values.get(OVERLAP)) is not None:
        told = f"Texts are read in windows of {export.max_length} tokens that share {shared}"
        return f"{told} (`brimful predict`; example.py reads the first window)."
    return f"Texts are cut at {export.max_length} tokens{', on the left' if export.side == 'left' else ''}."


def _usage(export: Exported) -> str:
    if export.kind == "answers":
        return "QUESTION TEXT"
    return "TEXT TEXT_B" if export.reads_two else "TEXT..."


def _rows(values: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """A line for each of these that is known. Of a path its name alone: the rest is of no use elsewhere."""
    return [f"- {name}: {_shown(values[name])}" for name in names if _is_known(values.get(name))]


def _is_known(value: Any) -> bool:
    return value is not None and value != [] and not isinstance(value, Mapping)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, Mapping):  # a corpus of a mixture
        return _shown(value.get("path", FILL_IN))
    if isinstance(value, str):
        return _inert(Path(value).name)
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}"


def _metrics(summary: Mapping[str, Any]) -> list[str]:
    """The metrics of the model on test, or else dev, with their errors."""
    table = "the test table" if summary.get("test") else "the dev table, by which the model was chosen"
    found = summary.get("test") or summary.get("dev")
    if not isinstance(found, Mapping):
        return [f"- {FILL_IN}"]
    n = metric(found, "n")
    if isinstance(student := summary.get("student"), Mapping):  # `test` has only the number of rows
        found = {key: value for key, value in student.items() if key != "parameters"}
    names = [key for key in found if key != "n" and not key.endswith("_std")]
    numbers = {key: value for key in names if (value := metric(found, key)) is not None}
    rows = "" if n is None else f", {n:,.0f} rows"
    lines = [f"- {key}: {value:.6g}{_error(found, key, n)}" for key, value in numbers.items()]
    return [f"On {table}{rows}:", "", *(lines or [f"- {FILL_IN}"])]


def _error(found: Mapping[str, Any], key: str, n: float | None) -> str:
    """The deviation of a metric over seeds, or the standard error of an accuracy over rows."""
    if (deviation := metric(found, f"{key}_std")) is not None:
        return f" ± {deviation:.2g} (standard deviation over seeds)"
    error = accuracy_error(found[key], n) if key == "accuracy" else None
    return "" if error is None else f" ± {error:.2g} (standard error)"


def _export(facts: Mapping[str, Any]) -> list[str]:
    """What was compared, and with what result."""
    difference = facts.get("max_abs_logit_difference")
    said = "Largest difference of an output in float32 from the model's, on random texts"
    lines = [] if difference is None else [f"- {said}: {difference:.1e}"]
    gate = facts.get("gate")
    if gate is None and difference is None:
        return ["- It was not loaded with transformers, which was not installed."]
    if gate is None:
        return lines
    lines += [
        f"- Compared with the model in {gate['precision']} on {gate['texts']:,} texts of"
        f" {_inert(gate['file'])}, on"
        f" {gate['instructions']}"
    ]
    if "metric" in gate:
        change = f"{gate['before']:.4f} before, {gate['after']:.4f} after"
        lines += [
            f"- {gate['metric']}: {change}; standard error of the difference {gate['standard_error']:.4f}"
        ]
    else:
        lines += ["- The metric is unknown: no labelled texts were given"]
    names = ("max_score_difference", "equal_predictions", "correlation", "mean_cosine", "least_cosine")
    lines += [f"- {name}: {gate[name]:.4g}" for name in names if name in gate]
    lines += [
        f"- {gate['texts_per_second']:,.0f} texts a second, {gate['p50_ms']:.3g} ms for one, on"
        f" {counted(gate['cores'], 'core')} of {gate['processor']}"
    ]
    if "in_int8" in gate:
        rest = ", ".join(gate["in_bf16"]) or "none"
        lines += [f"- {gate['in_int8']} products in int8; in a wider format: {rest}"]
    by_label = gate.get("by_label", [])
    return lines + [
        f"- {_inert(each['label'])}: F1 {each['f1_before']:.4f} before, {each['f1_after']:.4f} after"
        for each in by_label
    ]
