"""The gate on real texts for one model: it is read before anything is written, and asked afterwards."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.errors import BrimfulError
from brimful.exporting.card import run_of
from brimful.exporting.config import ExportConfig
from brimful.exporting.formats import FORMATS, FormatName
from brimful.exporting.padded import PaddedModel
from brimful.exporting.padded_batches import Inputs, Run, padded_batches, padded_outputs
from brimful.exporting.real_texts import (
    Encode,
    Facts,
    GateTexts,
    RealTexts,
    compare,
    encode_for,
    encode_texts_for,
    find_texts,
    require_little_loss,
)
from brimful.exporting.sensitivity import described, layers_that_lose
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.heads import pool
from brimful.model.inference import evaluating, run_by_sequence
from brimful.model.shape import Pooling
from brimful.tasks.encoded import encode
from brimful.tasks.form import Outputs
from brimful.tasks.model import TaskModel, load_task_model
from brimful.tasks.task import TaskHead

LOOKED_AT = 4
"""Batches by which the layers that lose most are found."""


@dataclass(frozen=True)
class TextGate:
    """A model, the texts that its export is compared on, and what it may lose.

    Attributes:
        model: of a task; None: the vectors of the encoder are compared.
        order: output i of the task is the head's output `order[i]`; None: they are in the same order.
    """

    model: TaskModel | None
    encoder: Encoder
    pooling: Pooling | None
    order: list[int] | None
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
        """What the export loses; see `real_texts.compare`.

        Raises:
            BrimfulError: it is more than it may lose.
        """
        found = compare(
            self.model, self.compared, self._exact, lambda given: padded_outputs(run, given, self.order)
        )
        require_little_loss(found, self.most_loss, self.named, self._why)
        return found

    def _exact(self, examples: Examples) -> Outputs:
        """The model in float32, packed."""
        if self.model is None:
            with evaluating(self.encoder):
                return run_by_sequence(
                    lambda batch: pool(self.encoder(batch).float(), batch, self.pooling or "mean"),
                    examples,
                    self.encoder.device,
                )
        outputs = self.model.outputs(examples, "fp32")
        if self.order is None:
            return outputs
        if isinstance(outputs, Ragged):
            return replace(outputs, values=outputs.values[..., self.order])
        return outputs[..., self.order]

    def _why(self) -> str:
        """The layers that lose most, in a clause; of a format in float nothing."""
        if not self.int8:
            return ""
        head = None if self.model is None else self.model.head
        padded = PaddedModel(self.encoder, head, self.pooling).eval()
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
    pooling: Pooling | None,
) -> TextGate | None:
    """Read the texts; None where the format computes in float32 and the user names no texts.

    Args:
        encoder, head, labels: what is exported, of a task or nothing but an encoder.
        pooling: of an encoder.

    Raises:
        BrimfulError: there are no texts, they cannot be read, or the head is of no task.
    """
    if not FORMATS[form].rounds and not (config.test or config.calibrate):
        return None
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
        read = encode_for(model)
    else:
        tokenizer, max_length = encoder.tokenizer, source.text_length(encoder.config)
        assert tokenizer is not None
        read = encode_texts_for(lambda table: encode(table, tokenizer, max_length))
    tasked = model is not None
    found: GateTexts = find_texts(read, config.test, config.calibrate, run_of(source), tasked=tasked)
    if found.compared is None or found.calibration is None:
        raise BrimfulError(
            f"--format {form} rounds, and what that costs is measured on real texts: name some with"
            " --test TABLE (labelled) or --calibrate FILE"
        )
    named = f"{form} of {config.run}"
    return TextGate(
        model,
        encoder,
        pooling,
        order,
        found.compared,
        found.calibration,
        named,
        config.most_loss,
        FORMATS[form].int8,
    )
