"""Estimates by data sheet against bench/gpu's predictions, which sum over the kernels of recorded steps."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bench.common.workload import CAPACITY, MASKED, model_config, sample_lengths
from brimful.data.batch import IGNORED, blank
from brimful.data.masking import prediction_slots
from brimful.data.sequences import SequencesConfig
from brimful.estimates.assumptions import AssumeConfig
from brimful.estimates.memory import held, kept_products, traced_pass, trained
from brimful.estimates.rates import Work, optimizer_seconds, pass_seconds
from brimful.nn.layers import Architecture
from brimful.optim.build import OptimizerConfig
from brimful.precision.policy import Precision, Residual
from brimful.train.config import TrainerConfig
from brimful.train.data_sheets import BF16_SINCE, find_sheet

RESULTS = Path(__file__).parents[1] / "results"
DEVICES = ("h100", "a100", "l40s", "t4")


def compared(*, small: bool = False) -> list[dict[str, Any]]:
    """A row for each recorded case.

    Args:
        small: the smallest model alone.
    """
    rows = []
    for name in DEVICES:
        record = json.loads((RESULTS / f"predicted_{name}.json").read_text(encoding="utf-8"))
        for case in record["cases"]:
            if case["case"]["side"] == "brimful" and (not small or case["case"]["model"] == "30m"):
                rows.append(compared_case(name, case))
    return rows


def compared_case(name: str, case: dict[str, Any]) -> dict[str, Any]:
    """One case: the estimate's milliseconds and GiB, the recorded ones, and their ratios."""
    sheet, asked = find_sheet(name), case["case"]
    config = model_config(asked["model"], asked["architecture"])
    precision: Precision = "bf16" if sheet.capability >= BF16_SINCE else "fp16"
    residual: Residual = "fp32" if precision == "fp16" or asked["residual"] == "fp32" else "bf16"
    trainer, assume = TrainerConfig(residual=residual), AssumeConfig()
    lengths = sample_lengths(None, case["sequences"], CAPACITY, 0)
    while sum(lengths) > case["tokens"]:
        lengths.pop()
    predictions = prediction_slots(case["tokens"], MASKED, "tokens")
    work = Work(tuple(lengths), case["tokens"], predictions, round(MASKED * sum(lengths)))
    model = trained(config, SequencesConfig())
    parts = pass_seconds(work, config, model, trainer, precision, sheet, assume, compiled=True)
    step = optimizer_seconds(model, OptimizerConfig(), trainer, precision, sheet, assume)
    size = memory(asked["model"], asked["architecture"], precision, residual, work)
    milliseconds, gib = 1e3 * (sum(parts.values()) + step), size / 2**30
    return {
        "device": name,
        "case": f"{asked['model']} {asked['architecture']}, residual {residual}",
        "milliseconds": milliseconds,
        "recorded_milliseconds": case["derated"]["milliseconds"],
        "time": milliseconds / case["derated"]["milliseconds"],
        "gib": gib,
        "recorded_gib": case["peak_gib"],
        "memory": gib / case["peak_gib"],
    }


@cache
def memory(
    name: str, architecture: Architecture, precision: Precision, residual: Residual, work: Work
) -> float:
    """Bytes of a step on a GPU, without its context."""
    config, sequences, trainer = (
        model_config(name, architecture),
        SequencesConfig(),
        TrainerConfig(residual=residual),
    )
    batch = blank(list(work.lengths), max_length=CAPACITY, pad=0, slots=work.slots)
    labels = torch.full((work.predictions,), IGNORED, dtype=torch.int64)
    batch = replace(batch, mlm_positions=torch.zeros_like(labels), mlm_labels=labels)
    model = trained(config, sequences)
    traced = traced_pass(config, sequences, trainer, precision, batch, has_gradients=True)
    rest = held(model, OptimizerConfig(), trainer, precision)
    activations = AssumeConfig().memory_factor * (traced.peak - rest.gradients)
    return rest.total + activations + kept_products(config, trainer, work.slots)
