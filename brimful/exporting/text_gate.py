"""The gate on real texts for one model: it is read before anything is written, and asked afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.extras import require
from brimful.base.resources import processor, usable_cores
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.exporting.calibration import calibrate
from brimful.exporting.config import ExportConfig
from brimful.exporting.formats import FORMATS, FormatName
from brimful.exporting.padded import PaddedModel
from brimful.exporting.padded_batches import Inputs, Run, padded_batches, padded_outputs
from brimful.exporting.real_texts import (
    Candidate,
    Encode,
    Facts,
    GateTexts,
    RealTexts,
    RunTables,
    compare,
    encode_for,
    encode_texts_for,
    find_texts,
    require_little_loss,
)
from brimful.exporting.sensitivity import NAMED, described, layers_that_lose
from brimful.hf.int8 import int8_needs, products
from brimful.hf.model_folder import ModelFolder
from brimful.hf.reading import TextReading
from brimful.model.encoder import Encoder
from brimful.model.inference import batches, text_vectors
from brimful.precision.formats import InferencePrecision
from brimful.tables.table import Table
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.form import Outputs
from brimful.tasks.judging.speed import speeds_of
from brimful.tasks.model import TaskModel, load_task_model
from brimful.tasks.task import TaskHead

MUCH = 0.05
"""The error of a product's outputs in int8, in units of their size, above which it stays in bfloat16."""
REFERENCE: InferencePrecision = "fp32"
"""The number format of the model that an export is compared with."""
LOOKED_AT = 4
"""Batches by which the layers that lose most are found."""


@dataclass(frozen=True)
class TextGate:
    """A model, the texts that its export is compared on, and what it may lose.

    Attributes:
        model: of a task; None: the vectors of the encoder are compared.
        order: output i of the task is the head's output `order[i]`; None: they are in the same order.
        encoded: how texts become examples, without labels.
    """

    model: TaskModel | None
    encoder: Encoder
    reading: TextReading | None
    order: list[int] | None
    encoded: Callable[[Table], Encoded]
    compared: RealTexts
    calibration: RealTexts
    named: str
    most_loss: float
    int8: bool

    def inputs(self) -> list[Inputs]:
        """The texts to calibrate by, each by itself."""
        data = self.calibration.data
        each = (data.examples.take_texts(np.array([row])) for row in range(len(data)))
        return [inputs for examples in each for _, inputs in padded_batches(examples)]

    def judge(self, run: Run) -> Facts:
        """What an export loses that others run, as of `real_texts.compare`; and its speed, `texts_per_second`
        of many together and `p50_ms` of one by itself, on `cores` of the `processor`, and `withheld`, as of
        `judging.speed.Speed`.

        Raises:
            BrimfulError: it is more than it may lose.
        """

        def candidate(given: Examples) -> Outputs:
            return padded_outputs(run, given, self.order)

        found = self._compared(candidate)
        require_little_loss(found, self.most_loss, self.named, self._why)
        return found | self._speed(candidate)

    def judge_int8(self) -> Facts:
        """Give the encoder the steps with which it loses at most what it may, and say what it loses.

        Products whose own outputs lose much stay in bfloat16, and a quarter or half of them where that is
        not enough.

        Returns:
            as `judge`; `in_int8`, how many products are, and the names of those `in_bf16`.

        Raises:
            BrimfulError: with half of them it is more than it may lose, or the processor has no int8.
        """
        losses = calibrate(self.encoder, batches(self.calibration.data.examples))
        order = sorted(losses, key=losses.__getitem__, reverse=True)
        much = sum(loss > MUCH for loss in losses.values())
        found: Facts = {}
        for count in sorted({max(much, len(order) // part) for part in (len(order) + 1, 4, 2)}):
            for name in order[:count]:
                products(self.encoder)[name].steps = None
            found = self._compared(lambda given: self._outputs(given, "int8"))
            found |= {"in_int8": len(order) - count, "in_bf16": sorted(order[:count])}
            if found["loss"] <= self.most_loss:
                break
        if not found["in_int8"]:
            raise BrimfulError(
                f"{self.named}: in int8 each product loses more than {MUCH:.0%}; nothing was written"
            )
        rounded = [name for name in order if name not in found["in_bf16"]][:NAMED]
        worst = ", ".join(f"{name} ({losses[name]:.3f})" for name in rounded)
        why = f". Of the products in int8 these lose most of their own outputs: {worst}"
        require_little_loss(found, self.most_loss, self.named, lambda: why)
        return found | self._speed(lambda given: self._outputs(given, "int8"))

    def _compared(self, candidate: Candidate) -> Facts:
        """As `compare`. The model is in float32 on every processor, so that its own rounding does not count;
        `precision` says so."""
        found = compare(self.model, self.compared, lambda given: self._outputs(given, REFERENCE), candidate)
        return found | {"precision": REFERENCE}

    def _speed(self, candidate: Candidate) -> Facts:
        answer = {"": lambda table: candidate(self.encoded(table).examples)}
        speed = speeds_of(answer, self.compared.data.table)[""]
        found = {"texts_per_second": speed.texts_per_second, "p50_ms": speed.latency_ms}
        found |= {"withheld": speed.withheld}
        return found | {"processor": processor(), "cores": round(usable_cores())}

    def _outputs(self, examples: Examples, precision: InferencePrecision) -> Outputs:
        """The model's outputs, packed."""
        if self.model is None:
            assert self.reading is not None
            pooling, unit = self.reading.pooling, self.reading.unit
            return text_vectors(self.encoder, examples, pooling=pooling, unit=unit, precision=precision)
        outputs = self.model.outputs(examples, precision)
        if self.order is None:
            return outputs
        if isinstance(outputs, Ragged):
            return outputs.map_parts(lambda scores: scores[..., self.order])
        return outputs[..., self.order]

    def _why(self) -> str:
        """The layers that lose most, in a clause; of a format in float nothing."""
        if not self.int8:
            return ""
        head = None if self.model is None else self.model.head
        padded = PaddedModel(self.encoder, head, self.reading).eval()
        batches = [inputs for _, inputs in padded_batches(self.compared.data.examples)]
        chosen = batches[:: max(1, len(batches) // LOOKED_AT)][:LOOKED_AT]
        return described(layers_that_lose(padded, chosen))


def open_gate(
    config: ExportConfig,
    form: FormatName,
    source: ModelFolder,
    encoder: Encoder,
    head: Any,
    labels: list[str] | None,
    reading: TextReading | None,
    tables_of: Callable[[ModelFolder], RunTables],
) -> TextGate | None:
    """Read the texts; None where the format computes in float32 and the user names no texts.

    Args:
        encoder, head, labels: what is exported, of a task or nothing but an encoder.
        reading: of an encoder.
        tables_of: the tables of the run that made a model.

    Raises:
        BrimfulError: there are no texts, they cannot be read, the head is of no task, or `transformers` is
            needed and not installed.
    """
    if form == "int8" and (need := int8_needs(encoder.device)) is not None:
        raise BrimfulError(f"--format int8 is compared with the model where it computes, which needs {need}")
    if not FORMATS[form].rounds and not (config.test or config.calibrate):
        return None
    if form in ("hf", "sentence-transformers"):
        require(f"comparing --format {form} on texts (--test, --calibrate)", "transformers")
    model: TaskModel | None = None
    order: list[int] | None = None
    read: Encode
    if head is not None:
        if not isinstance(head, TaskHead) or not source.has_task:
            raise BrimfulError(
                f"--format {form} is compared on real texts, which needs the head of a task, or none: a"
                f" {type(head).__name__} is exported with --format onnx, without --test and --calibrate"
            )
        model = replace(load_task_model(source), encoder=encoder, head=head)
        if labels and list(model.task.labels) != labels:
            order = [labels.index(name) for name in model.task.labels]
        encoded, read = model.encode, encode_for(model)
    else:
        tokenizer = encoder.tokenizer
        assert tokenizer is not None
        assert reading is not None
        length, prompt = reading.max_length, reading.prompt

        def encoded(table: Table) -> Encoded:
            return encode(table, tokenizer, length, prompt=prompt)

        read = encode_texts_for(encoded)
    tasked = model is not None
    found: GateTexts = find_texts(read, config.test, config.calibrate, tables_of(source), tasked=tasked)
    if found.compared is None or found.calibration is None:
        raise BrimfulError(
            f"--format {form} rounds, and what that costs is measured on real texts: name some with"
            " --test TABLE (labelled) or --calibrate FILE"
        )
    named = f"{form} of {config.run}"
    return TextGate(
        model,
        encoder,
        reading,
        order,
        encoded,
        found.compared,
        found.calibration,
        named,
        config.most_loss,
        FORMATS[form].int8,
    )
