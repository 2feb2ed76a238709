"""The gate of `brimful export`: a folder is written only if others compute from it what the model computes.

One comparison is made twice: Brimful computes packed sequences in float32, another runtime (`Run`) the same
ones padded. On random sequences, before anything is rounded, every number has to agree (`check_source`,
`check_written`). On real texts, the `Gate` measures the loss of the written model as its users run it, on
this processor, and refuses too large a loss.
"""

import importlib.util
import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.special import softmax

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.machine import count_cores, processor_name, read_kernel_file
from brimful.base.types import InferencePrecision, Values
from brimful.corpus.text.special_ids import special_ids
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.exporting.calibration import calibrate
from brimful.exporting.exported_model import Export, RealTexts
from brimful.exporting.int8_files import write_integers
from brimful.exporting.padded_batches import Inputs, Run, padded_outputs
from brimful.exporting.padded_model import transformers_run
from brimful.hf.folders import is_read_by_transformers, load_model
from brimful.hf.int8_steps import products
from brimful.hf.model_folder import ModelFolder
from brimful.hf.tensor_names import Head, Tensors
from brimful.hf.text_reading import TextReading
from brimful.model.encoder import Encoder
from brimful.model.inference import make_batches, text_vectors
from brimful.model.int8_rounding import INSTRUCTIONS
from brimful.tasks.judging.comparison import Judged, MethodComparison, fingerprint_rows, measure_speeds
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.task_model import TaskModel, compute_outputs

TOLERANCE = 1e-4
"""The largest relative difference of outputs that an export may have, in float32 (`measure_difference`)."""
RANDOM_SEQUENCES = 16
LONGEST_RANDOM_TOKENS = 128
REFERENCE_PRECISION: InferencePrecision = "fp32"
"""The number format of the model on every processor, so that its own rounding does not count."""
PRODUCT_ERROR_LIMIT = 0.05
"""The error of a product's outputs in int8, relative to their size, above which it stays in bfloat16."""
BFLOAT16_SHARES = (0.0, 0.25, 0.5)
"""The shares of an encoder's products that stay in bfloat16, tried in turn until the loss is small enough."""
DOT_PRODUCT_SETS = (*INSTRUCTIONS, "i8mm", "asimddp")
"""Instructions that sum four products of eight bits: `INSTRUCTIONS`, and two sets of ARM."""
_X86_SETS = ("amx_int8", "amx_bf16", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx512f", "avx2")
_KNOWN_INSTRUCTIONS = (*_X86_SETS, "i8mm", "asimddp")
_INSTRUCTION_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_NUMBER_KEYS = ("probability", "probabilities", "no_answer_margin", "n_best")
Facts = Values


class LossError(BrimfulError):
    """A written model loses more than it may."""


Candidate = Callable[[Examples], Outputs]
"""Examples -> outputs in the order of the task's labels, or vectors (n, hidden)."""


def packed_outputs(
    encoder: Encoder,
    head: Head | None,
    reading: TextReading | None,
    examples: Examples,
    precision: InferencePrecision = REFERENCE_PRECISION,
) -> Outputs:
    """Compute Brimful's outputs for each example, as `compute_outputs`; without a head, vectors as `reading`
    makes them, or hidden states.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    if head is None and reading is not None:
        pooling, unit = reading.pooling, reading.unit
        return text_vectors(encoder, examples, pooling=pooling, unit=unit, precision=precision)
    return compute_outputs(encoder, head, examples, precision)


def random_examples(encoder: Encoder) -> Examples:
    """Draw random sequences [CLS] ... [SEP] of 2 to at most 128 tokens; the same ones on every call.

    They contain no padding tokens, because RoBERTa in `transformers` skips those when it numbers positions.
    """
    assert encoder.tokenizer is not None
    special, pad = special_ids(encoder.tokenizer), encoder.config.pad_id
    longest = min(LONGEST_RANDOM_TOKENS, encoder.config.max_length)
    sequences = []
    for index in range(RANDOM_SEQUENCES):
        length = 2 + (longest - 2) * index // (RANDOM_SEQUENCES - 1)
        ids = np.random.default_rng(index).integers(
            encoder.config.vocabulary_size, size=length, dtype=np.int32
        )
        ids[ids == pad] = special.sep  # any other token would do
        ids[0], ids[-1] = special.cls, special.sep
        sequences.append(ids)
    types = [np.zeros(len(ids), dtype=np.uint8) for ids in sequences]
    return Examples(sequences, types, {}, longest, pad)


def measure_difference(
    encoder: Encoder, head: Head | None, run: Run, reading: TextReading | None = None
) -> tuple[float, float]:
    """Measure the difference of a runtime's outputs from `packed_outputs` on random sequences.

    Returns:
        The largest difference, and the same in units of the largest output, where that is above 1: rounding
        errors grow with it.

    Raises:
        NotFiniteError: Brimful's outputs are NaN or infinite.
    """
    examples = random_examples(encoder)
    ours = packed_outputs(encoder, head, reading, examples)
    theirs = padded_outputs(run, examples)
    differences, scale = [], 0.0
    with np.errstate(over="ignore"):  # an infinite difference is refused, too
        for one, other in zip(ours, theirs, strict=True):
            differences.append(np.abs(one - other).max())
            scale = max(scale, float(np.abs(one).max()))
    largest = float(np.max(differences))  # np.max gives NaN if one of them is
    return largest, largest / max(1.0, scale)


def check_source(source: ModelFolder, encoder: Encoder, old_ids: ndarray | None) -> float | None:
    """Compare hidden states with `transformers` on the folder that is exported.

    Args:
        old_ids: the old id of each of the encoder's pieces, if pieces were dropped.

    Returns:
        The largest absolute difference; None if `transformers` is not installed, or does not find the encoder
        under the names there.

    Raises:
        BrimfulError: hidden states differ, or `transformers` cannot read the folder.
    """
    if not importlib.util.find_spec("transformers"):
        return None
    if not is_read_by_transformers(source, encoder):
        warn(
            f"transformers does not find the encoder of {source} under the names there, or its weights are in"
            " eight bits: it is compared only on the folder that was written"
        )
        return None
    try:
        theirs = transformers_run(source.encoder_path, None, str(source))
    except OSError as error:
        raise BrimfulError(f"transformers cannot read {source} ({error}); nothing was written") from error

    def run_with_old_ids(inputs: Inputs) -> ndarray:
        ids = inputs["input_ids"]
        return theirs(inputs | {"input_ids": ids if old_ids is None else old_ids[ids]})

    difference = measure_difference(encoder, None, run_with_old_ids)
    return _require_small(difference, f"{source}: hidden states differ from those of transformers")


def check_written(export: Export, name: str, load: Callable[[], Run], *, vectors: bool = True) -> float:
    """Return the largest absolute difference of an output of a written model, before anything is rounded.

    Args:
        name: the name of its format, for messages.
        load: opens it in its runtime, in float32.
        vectors: whether it makes vectors of an encoder's hidden states.

    Raises:
        BrimfulError: outputs differ, or it cannot be read back.
    """
    reading = export.reading if vectors else None
    try:
        difference = measure_difference(export.encoder, export.head, load(), reading)
    except OSError as error:
        raise BrimfulError(f"the {name} export cannot be read back ({error}); nothing was written") from error
    return _require_small(difference, f"the {name} export of {export.source} has outputs that differ")


def _require_small(difference: tuple[float, float], named: str) -> float:
    absolute, relative = difference
    if relative <= TOLERANCE:  # false for NaN
        return absolute
    raise BrimfulError(f"{named} by {absolute:.1e}; nothing was written")


@dataclass(frozen=True)
class Gate:
    """A model, the texts on which its export is compared, and the largest loss; `named` is for messages."""

    export: Export
    compared: RealTexts
    calibration: RealTexts
    named: str
    most_loss: float

    def judge(self, run: Run) -> Facts:
        """Measure the loss of an export that others run, as `compare` does, and its speed: `texts_per_second`
        of many together and `p50_ms` of one by itself, on `cores` of the `processor`.

        Raises:
            BrimfulError: it is more than it may lose.
        """
        candidate = partial(padded_outputs, run, order=self.export.order)
        return self._accept(candidate, self._compare(candidate))

    def judge_int8(self, folder: Path, floats: Tensors) -> Facts:
        """Give the encoder the steps of int8, write it in eight bits, and measure the loss of the folder.

        Products whose own outputs lose much stay in bfloat16, and a quarter or half of them if that is not
        enough.

        Args:
            floats: the tensors of the model under the names of the folder.

        Returns:
            The facts of `judge`; `in_int8`, the number of products in int8, and the names of the others,
            `in_bf16`.

        Raises:
            BrimfulError: with half of the products it is more than it may lose, or the processor has no int8.
        """
        encoder = self.export.encoder
        losses = calibrate(encoder, make_batches(self.calibration.data.examples))
        worst_first = sorted(losses, key=losses.__getitem__, reverse=True)
        inexact = sum(loss > PRODUCT_ERROR_LIMIT for loss in losses.values())
        if inexact == len(losses):
            raise LossError(
                f"{self.named}: in int8 each product loses more than {PRODUCT_ERROR_LIMIT:.0%}; nothing was"
                " written"
            )
        for count in sorted({max(inexact, int(share * len(losses))) for share in BFLOAT16_SHARES}):
            for name in worst_first[:count]:
                products(encoder)[name].steps = None
            write_integers(folder, encoder, floats)
            written, head, _ = load_model(folder)
            in_int8 = replace(self, export=replace(self.export, encoder=written, head=head))
            candidate = partial(in_int8._packed, precision="int8")
            facts = self._compare(candidate)
            facts |= {"in_int8": len(losses) - count, "in_bf16": sorted(worst_first[:count])}
            if facts["loss"] <= self.most_loss:
                break  # else more products lose their steps; `_accept` refuses the last result
        return self._accept(candidate, facts)

    @cached_property
    def _expected(self) -> Outputs:
        return self._packed(self.compared.data.examples, REFERENCE_PRECISION)

    def _packed(self, examples: Examples, precision: InferencePrecision) -> Outputs:
        export, order = self.export, self.export.order
        outputs = packed_outputs(export.encoder, export.head, export.reading, examples, precision)
        if order is None:
            return outputs
        if isinstance(outputs, Ragged):
            return outputs.map_parts(lambda scores: scores[..., order])
        return outputs[..., order]

    def _compare(self, candidate: Candidate) -> Facts:
        after = candidate(self.compared.data.examples)
        return compare(self.export.task, self.compared, self._expected, after)

    def _accept(self, candidate: Candidate, facts: Facts) -> Facts:
        """Add the candidate's speed to the facts, if it loses little enough."""
        require_little_loss(facts, self.most_loss, self.named)
        # From text to output, as its users run it: the tokenizer's time counts.
        answers = {"": lambda table: candidate(self.export.encode(table).examples)}
        speed = measure_speeds(answers, self.compared.data.table)[""]
        return facts | {
            "texts_per_second": speed.texts_per_second,
            "p50_ms": speed.latency_ms,
            "processor": processor_name(),
            "cores": count_cores(),
        }


def compare(task_model: TaskModel | None, texts: RealTexts, before: Outputs, after: Outputs) -> Facts:
    """Compare a model's outputs with its export's.

    Args:
        task_model: None for encoders, whose vectors are compared.
        before, after: the outputs for the examples of `texts`, in the order of the task's labels.

    Returns:
        `file`, `part`, `texts`, `instructions`, the `precision` of the model, the `loss` that `--most-loss`
        limits and its measure (`loss_of`: the metric, predictions, or the cosine). For a task: its name,
        `task`, `max_score_difference`, `equal_predictions` (for a regression `correlation`), and with labels
        `metric`, `before`, `after`, `standard_error` of their paired difference, and the `fingerprint` of the
        rows. For an encoder `mean_cosine` and `least_cosine`.

    Raises:
        BrimfulError: an output is NaN or infinite.
    """
    for outputs in (before, after):
        if not np.isfinite(_flatten(outputs)).all():
            raise BrimfulError("outputs on real texts are NaN or infinite; nothing was written")
    facts = {
        "file": texts.file.name,
        "part": texts.part,
        "texts": len(texts.data),
        "instructions": describe_instructions(),
        "precision": REFERENCE_PRECISION,
    }
    if task_model is None:
        return facts | _compare_vectors(_flatten(before), _flatten(after))
    task, data = task_model.task, texts.data
    old = task_model.calibrate(task.answers(before, data))
    new = task_model.calibrate(task.answers(after, data))
    differences = _scores(task, before, old) - _scores(task, after, new)
    facts |= {"task": task.name, "max_score_difference": float(np.abs(differences).max())}
    if task.name == "regression":
        facts |= _compare_values(np.asarray(old)[:, 0], np.asarray(new)[:, 0])
    else:
        rows = zip(_drop_numbers(task.rows(old, data)), _drop_numbers(task.rows(new, data)), strict=True)
        equal = float(np.mean([one == other for one, other in rows]))
        facts |= {"equal_predictions": equal, "loss": 1 - equal, "loss_of": "the share of equal predictions"}
    return facts | _compare_metric(task, data, old, new) if texts.labelled else facts


def _flatten(outputs: Outputs) -> ndarray:
    return outputs.values if isinstance(outputs, Ragged) else outputs


def _compare_vectors(before: ndarray, after: ndarray) -> Facts:
    """Compare vectors, (n, hidden) each."""
    cosines = (before * after).sum(1) / (np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1))
    mean, least = float(cosines.mean()), float(cosines.min())
    return {"mean_cosine": mean, "least_cosine": least, "loss": 1 - mean, "loss_of": "the mean cosine"}


def _compare_values(before: ndarray, after: ndarray) -> Facts:
    correlation = 0.0
    if np.ptp(before) and np.ptp(after):  # constant values have no correlation
        correlation = float(np.corrcoef(before, after)[0, 1])
    return {"correlation": correlation, "loss": 1 - correlation, "loss_of": "the correlation of values"}


def _scores(task: Any, outputs: Outputs, answers: Any) -> ndarray:
    """Return probabilities for tags and labels; the outputs themselves for answers in a text."""
    if task.name == "token-classification":
        return softmax(_flatten(outputs), axis=-1)
    return outputs.values if isinstance(outputs, Ragged) else task.scores(answers)


def _compare_metric(task: Any, data: Any, old: Any, new: Any) -> Facts:
    """Compare answers with labels, by the primary metric."""
    comparison = MethodComparison({"before": [Judged(task, old)], "after": [Judged(task, new)]}, data)
    metric, measured = task.metrics[0], comparison.difference("after", "before")
    loss = measured["difference"]
    if metric.best == "highest":
        loss = 0.0 - loss
    return {
        "fingerprint": fingerprint_rows(data.table),
        "metric": metric.name,
        **comparison.values,
        "standard_error": measured["standard_error"],
        "loss": loss,
        "loss_of": metric.title,
    }


def _drop_numbers(value: Any) -> Any:
    """Return rows of predictions without their numbers."""
    if isinstance(value, list):
        return [_drop_numbers(each) for each in value]
    if isinstance(value, dict):
        return {key: _drop_numbers(each) for key, each in value.items() if key not in _NUMBER_KEYS}
    return value


def require_little_loss(facts: Facts, most: float, named: str) -> None:
    """Refuse an export that loses more than `most`, and warn where its metric is unknown.

    Args:
        facts: the result of `compare`.
        named: the export.

    Raises:
        BrimfulError: it loses more.
    """
    loss = f"{describe_loss(facts)} on {facts['texts']:,} texts of {facts['file']} ({facts['instructions']})"
    if facts["loss"] > most:
        raise LossError(f"{named}: {loss}: more is lost than --most-loss {most:g}; nothing was written")
    if "metric" not in facts:
        warn(f"{named}: its metric is unknown, since --test names no labelled texts; {loss}")


def describe_loss(facts: Facts) -> str:
    """Return a clause on the loss of an export, by the facts of `compare`."""
    if "metric" not in facts:
        return f"{facts['loss_of']} is {1 - facts['loss']:.4f}"
    difference = f"{facts['after'] - facts['before']:+.4f} ± {facts['standard_error']:.4f}"
    return f"{facts['loss_of']} goes from {facts['before']:.4f} to {facts['after']:.4f} ({difference})"


def list_instruction_sets() -> list[str]:
    """List the processor's instruction sets that decide how fast, and in int8 how exact, an export is."""
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", read_kernel_file("proc/cpuinfo") or "", re.MULTILINE)
    flags = set(line[1].split()) if line else set()
    return [name for name in _KNOWN_INSTRUCTIONS if name in flags]


def describe_instructions() -> str:
    """Return these sets in a line, with the variables that limit their use."""
    limits = [f"{name}={os.environ[name]}" for name in _INSTRUCTION_LIMITS if name in os.environ]
    return ", ".join((list_instruction_sets() or [platform.machine()]) + limits)
