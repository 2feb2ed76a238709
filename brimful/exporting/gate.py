"""The gate of `brimful export`: a folder is written only if others compute from it what the model computes.

One comparison is made twice: Brimful computes packed sequences in float32, another runtime (`Run`) the same
ones padded. On random sequences, before anything is rounded, every number has to agree (`check_given`,
`check_written`). On real texts, the `Gate` measures what the written model loses as its users run it, on this
processor, and refuses too much.
"""

import importlib.util
import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, hash_words
from brimful.base.resources import processor_name, usable_cores
from brimful.base.system import read_kernel_file
from brimful.base.types import InferencePrecision
from brimful.corpus.text.special_ids import special_ids
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.exporting.calibration import calibrate
from brimful.exporting.exported import Export, RealTexts
from brimful.exporting.graph import transformers_run
from brimful.exporting.runtimes import Inputs, Run, padded_outputs
from brimful.hf.folders import transformers_reads
from brimful.hf.int8_steps import products
from brimful.hf.model_folder import ModelFolder
from brimful.hf.tensors import Head
from brimful.hf.text_reading import TextReading
from brimful.model.encoder import Encoder
from brimful.model.inference import make_batches, text_vectors
from brimful.model.int8_rounding import INSTRUCTIONS
from brimful.tasks.judging.comparison import Judged, MethodComparison, fingerprint_rows, measure_speeds
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.task_model import TaskModel, compute_outputs

TOLERANCE = 1e-4
"""The largest `Difference.relative` that an export may have, in float32."""
RANDOM_SEQUENCES = 16
LONGEST_RANDOM_TOKENS = 128
REFERENCE_PRECISION: InferencePrecision = "fp32"
"""The number format of the model on every processor, so that its own rounding does not count."""
MOST_PRODUCT_ERROR = 0.05
"""The error of a product's outputs in int8, in units of their size, above which it stays in bfloat16."""
WIDER_SHARES = (0.0, 0.25, 0.5)
"""Of the products of an encoder, those that stay in bfloat16, until no more is lost than may be."""
SUMS_FOUR = (*INSTRUCTIONS, "i8mm", "asimddp")
"""Instructions that sum four products of eight bits: `INSTRUCTIONS`, and those of ARM."""
_KNOWN_INSTRUCTIONS = (
    *("amx_int8", "amx_bf16", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx512f", "avx2"),
    *("i8mm", "asimddp"),
)
_INSTRUCTION_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_NUMBER_KEYS = ("probability", "probabilities", "no_answer_margin", "n_best")
Facts = dict[str, Any]
Candidate = Callable[[Examples], Outputs]
"""Examples -> outputs in the order of the task's labels, or vectors (n, hidden)."""


class Difference(NamedTuple):
    """How far outputs are from those that were expected.

    Attributes:
        absolute: the largest difference.
        scale: the largest absolute value that was expected.
    """

    absolute: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference in units of the scale, where that is above 1: rounding errors grow with it."""
        return self.absolute / max(1.0, self.scale)


def packed_outputs(
    encoder: Encoder,
    head: Head | None,
    reading: TextReading | None,
    examples: Examples,
    precision: InferencePrecision = REFERENCE_PRECISION,
) -> Outputs:
    """What Brimful computes for each example, as `compute_outputs`; without a head vectors, made as
    `reading` says, or hidden states.

    Raises:
        NotFiniteError: a number is NaN or infinite.
    """
    if head is None and reading is not None:
        pooling, unit = reading.pooling, reading.unit
        return text_vectors(encoder, examples, pooling=pooling, unit=unit, precision=precision)
    return compute_outputs(encoder, head, examples, precision)


def random_examples(encoder: Encoder) -> Examples:
    """Random sequences [CLS] ... [SEP] of 2 to at most 128 tokens; the same ones on every call.

    They contain no padding tokens, because RoBERTa in `transformers` skips those when it numbers positions.
    """
    assert encoder.tokenizer is not None
    special, pad = special_ids(encoder.tokenizer), encoder.config.pad_id
    longest = min(LONGEST_RANDOM_TOKENS, encoder.config.max_length)
    sequences = []
    for index in range(RANDOM_SEQUENCES):
        length = 2 + (longest - 2) * index // (RANDOM_SEQUENCES - 1)
        draws = hash_words(derive_key("export", index), np.arange(length))
        ids = (draws % np.uint64(encoder.config.vocabulary_size)).astype(np.int32)
        ids[ids == pad] = special.sep
        ids[0], ids[-1] = special.cls, special.sep
        sequences.append(ids)
    types = [np.zeros(len(ids), dtype=np.uint8) for ids in sequences]
    return Examples(sequences, types, {}, longest, pad)


def measure_difference(
    encoder: Encoder, head: Head | None, run: Run, reading: TextReading | None = None
) -> Difference:
    """The difference of a runtime's outputs from `packed_outputs` on random sequences.

    Raises:
        NotFiniteError: Brimful's are NaN or infinite.
    """
    examples = random_examples(encoder)
    ours = packed_outputs(encoder, head, reading, examples)
    theirs = padded_outputs(run, examples)
    with np.errstate(over="ignore"):  # is no small difference
        differences = [np.abs(one - other).max() for one, other in zip(ours, theirs, strict=True)]
    scale = max(float(np.abs(each).max()) for each in ours)
    return Difference(float(np.max(differences)), scale)  # NaN if one of them is


def check_given(source: ModelFolder, encoder: Encoder, kept: np.ndarray | None) -> float | None:
    """The largest absolute difference of a hidden state from that of `transformers` on the given folder; None
    where `transformers` is not installed, or does not find the encoder under the names there.

    Args:
        kept: the old id of each of the encoder's, where pieces were dropped.

    Raises:
        BrimfulError: hidden states differ, or `transformers` cannot read the folder.
    """
    if not importlib.util.find_spec("transformers"):
        return None
    if not transformers_reads(source, encoder):
        warn(
            f"transformers does not find the encoder of {source} under the names there: only what was written"
            " is compared with what transformers reads in it"
        )
        return None
    try:
        theirs = transformers_run(source.encoder_path, None, str(source))
    except OSError as error:
        raise BrimfulError(f"transformers cannot read {source} ({error}); nothing was written") from error
    old = np.arange(encoder.config.vocabulary_size) if kept is None else kept

    def with_old_ids(inputs: Inputs) -> np.ndarray:
        return theirs(inputs | {"input_ids": old[inputs["input_ids"]]})

    difference = measure_difference(encoder, None, with_old_ids)
    return _require_small(difference, f"{source}: hidden states differ from those of transformers")


def check_written(export: Export, name: str, load: Callable[[], Run], *, vectors: bool = True) -> float:
    """The largest absolute difference of an output of a written model, before anything is rounded.

    Args:
        name: of its format, for messages.
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


def _require_small(difference: Difference, named: str) -> float:
    if difference.relative <= TOLERANCE:  # NaN is not
        return difference.absolute
    raise BrimfulError(f"{named} by {difference.absolute:.1e}; nothing was written")


@dataclass(frozen=True)
class Gate:
    """A model, the texts that its export is compared on, and what it may lose; `named` in messages."""

    export: Export
    compared: RealTexts
    calibration: RealTexts
    named: str
    most_loss: float

    def judge(self, run: Run) -> Facts:
        """What an export loses that others run, as of `compare`; and its speed, `texts_per_second` of many
        together and `p50_ms` of one by itself, on `cores` of the `processor_name`.

        Raises:
            BrimfulError: it is more than it may lose.
        """

        def candidate(examples: Examples) -> Outputs:
            return padded_outputs(run, examples, self.export.order)

        return self._accept(candidate, self._compare(candidate))

    def judge_int8(self) -> Facts:
        """Give the encoder the steps with which it loses at most what it may, and say what it loses.

        Products whose own outputs lose much stay in bfloat16, and a quarter or half of them where that is
        not enough.

        Returns:
            as `judge`; `in_int8`, how many products are, and the names of those `in_bf16`.

        Raises:
            BrimfulError: with half of them it is more than it may lose, or the processor has no int8.
        """
        encoder = self.export.encoder

        def candidate(examples: Examples) -> Outputs:
            return self._packed(examples, "int8")

        losses = calibrate(encoder, make_batches(self.calibration.data.examples))
        worst_first = sorted(losses, key=losses.__getitem__, reverse=True)
        bad = sum(loss > MOST_PRODUCT_ERROR for loss in losses.values())
        if bad == len(losses):
            raise BrimfulError(
                f"{self.named}: in int8 each product loses more than {MOST_PRODUCT_ERROR:.0%}; nothing was"
                " written"
            )
        facts: Facts = {}
        for count in sorted({max(bad, int(share * len(losses))) for share in WIDER_SHARES}):
            for name in worst_first[:count]:
                products(encoder)[name].steps = None
            facts = self._compare(candidate)
            facts |= {"in_int8": len(losses) - count, "in_bf16": sorted(worst_first[:count])}
            if facts["loss"] <= self.most_loss:
                break
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
        """The facts with the candidate's speed, if it loses little enough."""
        require_little_loss(facts, self.most_loss, self.named)
        answers = {"": lambda table: candidate(self.export.encode(table).examples)}
        speed = measure_speeds(answers, self.compared.data.table)[""]
        return facts | {
            "texts_per_second": speed.texts_per_second,
            "p50_ms": speed.latency_ms,
            "processor": processor_name(),
            "cores": round(usable_cores()),
        }


def compare(task_model: TaskModel | None, texts: RealTexts, before: Outputs, after: Outputs) -> Facts:
    """What changes from a model's outputs to those of its export.

    Args:
        task_model: None for encoders, whose vectors are compared.
        before, after: for the examples of `texts`, in the order of the task's labels.

    Returns:
        `file`, `part`, `texts`, `instructions`, the `precision` of the model, the `loss` that `--most-loss`
        limits and what it is of (`loss_of`: the metric, predictions, or the cosine). Of a task: its name,
        `task`, `max_score_difference`, `equal_predictions` (of a regression `correlation`), and with labels
        `metric`, `before`, `after`, `standard_error` of their paired difference, and the `fingerprint` of the
        rows. Of an encoder `mean_cosine` and `least_cosine`.

    Raises:
        BrimfulError: an output is NaN or infinite.
    """
    numbers = [each.values if isinstance(each, Ragged) else each for each in (before, after)]
    if not all(np.isfinite(each).all() for each in numbers):
        raise BrimfulError("outputs on real texts are NaN or infinite; nothing was written")
    facts: Facts = {
        "file": texts.file.name,
        "part": texts.part,
        "texts": len(texts.data),
        "instructions": described_instructions(),
        "precision": REFERENCE_PRECISION,
    }
    if task_model is None:
        cosines = (numbers[0] * numbers[1]).sum(1) / np.prod(np.linalg.norm(numbers, axis=2), axis=0)
        mean, least = float(cosines.mean()), float(cosines.min())
        loss = {"loss": 1 - mean, "loss_of": "the mean cosine"}
        return facts | {"mean_cosine": mean, "least_cosine": least, **loss}
    task, data = task_model.task, texts.data
    answers = [task_model.calibrate(task.answers(outputs, data)) for outputs in (before, after)]
    scores = numbers
    if task.name == "token-classification":
        scores = [softmax(each, axis=-1) for each in numbers]
    elif not isinstance(before, Ragged):
        scores = [task.scores(each) for each in answers]
    facts |= {"task": task.name, "max_score_difference": float(np.abs(scores[0] - scores[1]).max())}
    if task.name == "regression":
        values = np.stack([np.asarray(each)[:, 0] for each in answers])
        # There is no correlation where one side is constant.
        correlation = float(np.corrcoef(values)[0, 1]) if np.ptp(values, axis=1).all() else 0.0
        facts |= {"correlation": correlation, "loss": 1 - correlation, "loss_of": "the correlation of values"}
    else:
        rows = [[_without_numbers(row) for row in task.rows(each, data)] for each in answers]
        equal = float(np.mean([one == other for one, other in zip(*rows, strict=True)]))
        facts |= {"equal_predictions": equal, "loss": 1 - equal, "loss_of": "the share of equal predictions"}
    if not texts.labelled:
        return facts
    methods = {name: [Judged(task, each)] for name, each in zip(("before", "after"), answers, strict=True)}
    comparison, metric = MethodComparison(methods, data), task.metrics[0]
    found = comparison.difference("after", "before")
    difference = found["difference"]
    return facts | {
        "fingerprint": fingerprint_rows(data.table),
        "metric": metric.name,
        **comparison.values,
        "standard_error": found["standard_error"],
        "loss": 0.0 - difference if metric.best == "highest" else difference,
        "loss_of": metric.title,
    }


def _without_numbers(value: Any) -> Any:
    """A row of predictions without its numbers."""
    if isinstance(value, dict):
        return {key: _without_numbers(each) for key, each in value.items() if key not in _NUMBER_KEYS}
    return [_without_numbers(each) for each in value] if isinstance(value, list) else value


def require_little_loss(facts: Facts, most: float, named: str) -> None:
    """Refuse what loses more than `most`, and say so where the metric is unknown.

    Args:
        facts: of `compare`.
        named: the export.

    Raises:
        BrimfulError: it loses more.
    """
    said = f"{describe_loss(facts)} on {facts['texts']:,} texts of {facts['file']} ({facts['instructions']})"
    if facts["loss"] > most:
        raise BrimfulError(f"{named}: {said}: more is lost than --most-loss {most:g}; nothing was written")
    if "metric" not in facts:
        warn(f"{named}: its metric is unknown, since --test names no labelled texts; {said}")


def describe_loss(facts: Facts) -> str:
    """A clause on what an export loses, by the facts of `compare`."""
    if "metric" not in facts:
        return f"{facts['loss_of']} is {1 - facts['loss']:.4f}"
    difference = f"{facts['after'] - facts['before']:+.4f} ± {facts['standard_error']:.4f}"
    return f"{facts['loss_of']} goes from {facts['before']:.4f} to {facts['after']:.4f} ({difference})"


def instruction_sets() -> list[str]:
    """Those of this processor that decide how fast, and in int8 how exact, an export is."""
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", read_kernel_file("proc/cpuinfo") or "", re.MULTILINE)
    flags = set(line[1].split()) if line else set()
    return [name for name in _KNOWN_INSTRUCTIONS if name in flags]


def described_instructions() -> str:
    """The sets in a line, with what limits them."""
    limits = [f"{name}={os.environ[name]}" for name in _INSTRUCTION_LIMITS if name in os.environ]
    found = instruction_sets() or [platform.machine()]
    return ", ".join([*found, *limits])
