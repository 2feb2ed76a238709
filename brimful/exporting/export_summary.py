"""The Summary of an export: what was written, how close it is to the model, what comes next."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from brimful.base.console import counted
from brimful.base.numbers import branch, busy_note, megabytes, metric, milliseconds, percent, plain, short
from brimful.base.summary import MeasuredOn, ModelResult, Summary, make_facts_table
from brimful.tasks.judging.results import error_of
from brimful.tasks.registry import known_task

Facts = Mapping[str, Any]
WEIGHT_SUFFIXES = (".safetensors", ".onnx", ".data", ".xml", ".bin")
"""Of the files that hold an exported model."""
TEST_PARTS = ("test", "given")
"""Rows that no training has chosen by: only on them exports are compared with other models."""


def summarise_export(facts: Facts) -> Summary:
    """What came out of an export.

    Args:
        facts: what export.json holds, with `megabytes`, and `out` where it is known.
    """
    gate, pruned = branch(facts, "gate"), branch(facts, "pruned")
    difference = metric(facts, "max_abs_logit_difference")
    verdict = "not loaded with transformers, which is not installed"
    if difference is not None:
        verdict = f"its outputs in float32 are the model's within {difference:.1e}"
    if gate:
        verdict = f"{_describe_loss(gate)} on {counted(gate['texts'], 'text')} of {gate['file']}"
    busy = busy_note(metric(gate, "withheld"))
    equal, rate = metric(gate, "equal_predictions"), metric(gate, "texts_per_second")
    hidden, unseen = metric(facts, "max_abs_hidden_difference"), branch(pruned, "unseen")
    checkpoint = f"step {facts['step']:,}" if "step" in facts else None
    rows = {
        "Size": megabytes(metric(facts, "megabytes") or 0),
        "Model": f"{facts['model']}, {facts['parameters']:,} parameters, {facts['pieces']:,} pieces",
        "Checkpoint": f"{checkpoint}, averaged weights" if facts.get("averaged") else checkpoint,
        "Largest difference of an output": None if difference is None else f"{difference:.1e} in float32",
        "Hidden states, from transformers": None if hidden is None else f"{hidden:.1e}",
        "Equal predictions": None if equal is None else percent(equal),
        "Texts a second": None if rate is None else f"{short(rate)} {busy}".strip(),
        "One text": f"{milliseconds(gate['p50_ms'])} {busy}".strip() if "p50_ms" in gate else None,
        "On": f"{counted(gate['cores'], 'core')} of {gate['processor']}" if "cores" in gate else None,
        "Products in int8": plain(gate["in_int8"]) if "in_int8" in gate else None,
        "In a wider format": plain(gate["in_bf16"]) if gate.get("in_bf16") else None,
        "Pieces": _describe_pieces(pruned),
        "Unknown tokens before": _describe_unknown(unseen, "before"),
        "Unknown tokens after": _describe_unknown(unseen, "after"),
        "Next": f"python {shlex.quote(str(Path(facts['out']) / 'example.py'))}" if "out" in facts else None,
    }
    tables = make_facts_table("Export", rows)
    test, models = _compare_with_source(facts, gate)
    verdict = f"{verdict[:1].upper()}{verdict[1:]}."
    return Summary(f"Export as {facts['format']}", verdict, tables, [], test, models)


def measure_model(files: Iterable[Path]) -> float:
    """The size of the model among the files of an export in MB, without its tokenizer and pages."""
    return sum(file.stat().st_size for file in files if file.suffix in WEIGHT_SUFFIXES) / 1e6


def _describe_loss(gate: Facts) -> str:
    """What the format costs."""
    if "metric" not in gate:
        return f"{gate['loss_of']} is {1 - gate['loss']:.4f}"
    difference = f"{gate['after'] - gate['before']:+.4f} ± {gate['standard_error']:.4f}"
    return f"{gate['loss_of']} goes from {gate['before']:.4f} to {gate['after']:.4f} ({difference})"


def _describe_pieces(pruned: Facts) -> str | None:
    """What became of the vocabulary."""
    if not pruned:
        return None
    used = f"{counted(pruned['texts'], 'text')} use {pruned['used']:,}"
    return f"{pruned['pieces_before']:,} before, {pruned['pieces_after']:,} after; {used}"


def _describe_unknown(unseen: Facts, when: str) -> str | None:
    """The unknown tokens of texts that were held out of pruning."""
    if not unseen:
        return None
    unknown, tokens = unseen[f"unknown_{when}"], unseen[f"tokens_{when}"]
    return f"{unknown:,} of {tokens:,} in {counted(unseen['texts'], 'text')} held out"


def _compare_with_source(facts: Facts, gate: Facts) -> tuple[MeasuredOn | None, list[ModelResult]]:
    """The export and its model on test rows; None and no models where its metric is unknown there."""
    task = known_task(str(gate.get("task"))) if gate.get("part") in TEST_PARTS else None
    primary = next((one for one in task.metrics if one.name == gate.get("metric")), None) if task else None
    if primary is None:
        return None, []
    n = gate["texts"]
    is_high = primary.best == "highest"
    test = MeasuredOn(primary.title, n, str(gate.get("fingerprint", "")), is_high, primary.percent)
    models = []
    for name, key in ((f"Export, {facts['format']}", "after"), ("Its model", "before")):
        is_own = key == "after"
        models.append(
            ModelResult(
                name=name,
                value=gate[key],
                error=error_of({primary.name: gate[key]}, primary, n),
                pairs={"Its model": gate["standard_error"]} if is_own else {},
                is_own=is_own,
                folder="" if is_own else str(facts["source"]),
                milliseconds=metric(gate, "p50_ms") if is_own else None,
                texts_per_second=metric(gate, "texts_per_second") if is_own else None,
                withheld=metric(gate, "withheld") if is_own else None,
                megabytes=metric(facts, "megabytes") if is_own else None,
                parameters=metric(facts, "parameters") if is_own else None,
            )
        )
    return test, models
