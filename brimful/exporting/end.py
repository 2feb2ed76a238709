"""What `export` prints at its end: what was written, how close it is to the model, what comes next."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brimful.base.console import counted
from brimful.exporting.formats import FORMATS
from brimful.reports.content import busy_note

Result = Mapping[str, Any]


def show_export(result: Result) -> None:
    """Print the end of an export, or of its dry run."""
    model = f"{result['model']}, {result['parameters']:,} parameters, {result['pieces']:,} pieces"
    if "dry_run" in result:
        print(f"dry run: {result['source']} can be exported as {result['format']} ({model})")
        return
    print(f"{result['out']}: {result['format']}, {result['megabytes']:,.1f} MB; {_outputs(result)}")
    print(f"  {model}{_checkpoint(result)}")
    if (hidden := result.get("max_abs_hidden_difference")) is not None:
        print(f"  its hidden states are those of transformers within {hidden:.1e}")
    if pruned := result.get("pruned"):
        _show_pruned(pruned)
    if gate := result.get("gate"):
        print(f"  {_lost(gate)} on {counted(gate['texts'], 'text')} of {gate['file']}")
        busy = f", {note}" if (note := busy_note(gate.get("withheld"))) else ""
        print(
            f"  {gate['texts_per_second']:,.0f} texts a second, {gate['p50_ms']:.3g} ms for one, on"
            f" {counted(gate['cores'], 'core')} of {gate['processor']}{busy}"
        )
        if "in_int8" in gate:
            wider = ", ".join(gate["in_bf16"]) or "none"
            print(f"  {gate['in_int8']} products in int8; in a wider format: {wider}")
    print(f"next: python {shlex.quote(str(Path(result['out']) / 'example.py'))}")


def _outputs(result: Result) -> str:
    difference = result.get("max_abs_logit_difference")
    if difference is None:
        return "not loaded with transformers, which is not installed"
    before = "before it is rounded, " if FORMATS[result["format"]].rounds else ""
    return f"{before}its outputs are the model's within {difference:.1e}"


def _checkpoint(result: Result) -> str:
    if "step" not in result:
        return ""
    return f"; step {result['step']:,}{', averaged weights' if result.get('averaged') else ''}"


def _show_pruned(pruned: Result) -> None:
    pieces = f"{pruned['pieces_before']:,} pieces -> {pruned['pieces_after']:,}"
    print(f"  {pieces}, by {counted(pruned['texts'], 'text')} that use {pruned['used']:,}")
    if unseen := pruned["unseen"]:
        before, after = (
            f"{unseen[f'unknown_{when}']:,} of {unseen[f'tokens_{when}']:,}" for when in ("before", "after")
        )
        print(f"  unknown tokens of {counted(unseen['texts'], 'text')} held out: {before} -> {after}")


def _lost(gate: Result) -> str:
    """What rounding costs."""
    if "metric" not in gate:
        return f"{gate['loss_of']} is {1 - gate['loss']:.4f}"
    difference = f"{gate['after'] - gate['before']:+.4f} ± {gate['standard_error']:.4f}"
    return f"{gate['loss_of']} goes from {gate['before']:.4f} to {gate['after']:.4f} ({difference})"
