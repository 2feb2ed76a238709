"""A task model: an encoder with the head of a task."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.types import InferencePrecision, Numbers
from brimful.data.batch import PackedBatch
from brimful.data.examples import TEXTS_AT_ONCE, Examples, warn_of_cut, warn_of_empty
from brimful.data.ragged import Ragged
from brimful.hf.folders import HEADS, count_parameters, load_model, require_tokenizer, save_model
from brimful.hf.int8_steps import calibrated_precision
from brimful.hf.model_folder import OVERLAP, PAIRS, PROBLEMS, SETTINGS, TEMPERATURE, ModelFolder
from brimful.hf.tensor_names import Head
from brimful.model.encoder import Encoder
from brimful.model.heads import SequenceHead, TokenHead
from brimful.model.inference import list_texts, run_by_sequence, run_by_token
from brimful.tables.table import Table, require_pairs
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import Outputs, Row
from brimful.tasks.registry import calibrate, find_saved_form, find_task, open_form, predict_rows
from brimful.tasks.task import Task, TaskHead


@dataclass(frozen=True)
class TaskModel:
    """An encoder with its tokenizer, a head, and their task.

    Attributes:
        max_length: most tokens of an example.
        overlap: tokens that windows of a longer text share; None cuts the text.
        temperature: divisor of a classifier's logits for calibrated probabilities.
        pairs: whether the model was trained on pairs of texts; None for models of other tools.
    """

    task: Task
    encoder: Encoder
    head: TaskHead
    max_length: int
    overlap: int | None = None
    temperature: float | None = None
    pairs: bool | None = None

    @classmethod
    def load(cls, path: Path | str) -> "TaskModel":
        """Open the task model in a Hugging Face folder or a run; as `load_task_model`."""
        return load_task_model(path)

    @property
    def tokenizer(self) -> Tokenizer:
        """The encoder's tokenizer."""
        assert self.encoder.tokenizer is not None
        return self.encoder.tokenizer

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return count_parameters(self.encoder, self.head)

    def to(self, device: torch.device) -> "TaskModel":
        """Move the model to `device`, in place."""
        self.encoder.to(device)
        self.head.to(device)
        return self

    def outputs(self, examples: Examples, precision: InferencePrecision, *, finite: bool = True) -> Outputs:
        """Return the head's outputs for every example, as `compute_outputs`."""
        return compute_outputs(self.encoder, self.head, examples, precision, finite=finite)

    def predict(
        self,
        texts: Iterable[str],
        second: Iterable[str] | None = None,
        *,
        scores: bool = False,
        precision: InferencePrecision = "auto",
    ) -> list[Row]:
        """Return a row for each text, in their order, with the columns that `brimful predict` writes.

        Texts over `max_length` tokens are read in windows if the model has an `overlap`; otherwise they are
        cut, with a warning.

        Args:
            texts: of any number and length; questions, if the task is question answering.
            second: the second text of each pair; the context of each question.
            scores: whether rows have the text and `scores` too: the probability of each label.
            precision: of the computation; auto: as in `Encoder.embed`.

        Raises:
            BrimfulError: a text is not a string, or the task has no scores.
        """
        second_texts = None if second is None else list_texts(second)
        table = self.task.from_texts(list_texts(texts), second_texts)
        if table.second is not None and len(table.second) != len(table):
            raise BrimfulError(f"{len(table)} texts cannot be paired with {len(table.second)} second texts")
        if not len(table):
            return []
        warn_of_empty(table.texts)
        resolved = calibrated_precision(precision, self.encoder, self.encoder.device)
        rows: list[Row] = []
        cut = 0
        for start in range(0, len(table), TEXTS_AT_ONCE):  # slices, which bound the memory
            data = self.encode(table.take(range(len(table))[start : start + TEXTS_AT_ONCE]))
            cut += data.examples.cut
            answers = self.answers(data, resolved)
            rows += predict_rows(self.task, answers, data, scores=scores, first=start + 1)
        warn_of_cut(cut, self.max_length, "replace(model, overlap=32) reads them in windows")
        return rows

    def encode(self, table: Table) -> Encoded:
        """Encode a table without labels.

        Raises:
            BrimfulError: as `Task.encode`; or the table has pairs and the training table had none, or the
                reverse.
        """
        if self.pairs is not None:
            require_pairs(table, self.pairs, "the model's training table")
        return self.task.encode(table, self.tokenizer, self.max_length, self.overlap, labelled=False)

    def answers(self, data: Encoded, precision: InferencePrecision) -> Any:
        """Return the task's calibrated answer for each row of a table, computed on the encoder's device."""
        outputs = self.outputs(data.examples, precision)
        return self.calibrate(self.task.answers(outputs, data))

    def judge(
        self, data: Encoded, precision: InferencePrecision, *, finite: bool = True
    ) -> tuple[Any, Numbers]:
        """Return the answers for a labelled table, one a row, and their metrics; `finite` as in
        `compute_outputs`."""
        outputs = self.outputs(data.examples, precision, finite=finite)
        answers = self.task.answers(outputs, data)
        return answers, self.task.measure(answers, data)

    def calibrate(self, answers: Any) -> Any:
        """Return answers whose probabilities are calibrated, if the model has a temperature."""
        return calibrate(answers, self.temperature)

    def save(self, folder: Path, *, token_types: bool = True) -> None:
        """Write a Hugging Face folder that `load_task_model` reads; `token_types` as in `save_model`."""
        fold(self.head)  # other libraries do not know its unit and zero
        extra = {
            OVERLAP: self.overlap,
            TEMPERATURE: self.temperature,
            SETTINGS: self.task.settings or None,
            PAIRS: self.pairs,
        }
        save_model(
            folder,
            self.encoder,
            self.head,
            self.task.labels,
            max_length=self.max_length,
            problem_type=self.task.problem_type,
            token_types=token_types,
            extra={key: value for key, value in extra.items() if value is not None},
        )


def compute_outputs(
    encoder: Encoder,
    head: Head | None,
    examples: Examples,
    precision: InferencePrecision,
    *,
    finite: bool = True,
) -> Outputs:
    """Return the outputs of a head for every example, or hidden states without one, in evaluation mode.

    The head computes in the type of its own weights, also where the encoder computes in 16 bits: rounding
    would change probabilities with the other texts of a batch.

    Returns:
        float32 (n, C) of sequences, ragged (tokens, C) of tokens.

    Raises:
        NotFiniteError: with `finite`, if a number is NaN or infinite.
    """
    for module in (encoder, head):
        if module is not None and module.training:  # `eval` visits all modules, which takes a millisecond
            module.eval()
    dtype = next((head or encoder).parameters()).dtype

    def forward(batch: PackedBatch) -> Tensor:
        hidden = encoder(batch).to(dtype)
        if head is None:
            return hidden
        with torch.autocast(hidden.device.type, enabled=False):
            return head(hidden, batch) if isinstance(head, TaskHead) else head(hidden)

    if isinstance(head, SequenceHead):
        return run_by_sequence(forward, examples, encoder.device, precision=precision, finite=finite)
    arrays = run_by_token(forward, examples, encoder.device, precision=precision, finite=finite)
    return Ragged.of(arrays, np.float32, arrays[0].shape[1:])


def reorder_outputs(head: TaskHead, order: Sequence[int]) -> None:
    """Put a head's outputs into another order, in place: output `order[i]` becomes output i."""
    with torch.no_grad():
        for tensor in (head.classifier.weight, head.classifier.bias):
            tensor.copy_(tensor[list(order)])


def fold(head: TaskHead) -> None:
    """Multiply a head's unit into its weights and add its zero to the bias, in place; outputs stay."""
    with torch.no_grad():
        head.classifier.weight.mul_(head.unit)
        head.classifier.bias.mul_(head.unit).add_(head.zero)
    head.unit, head.zero = 1.0, 0.0


def take_weights(head: TaskHead, tensors: Mapping[str, torch.Tensor]) -> None:
    """Load the weights of a folded head into another one with a unit and a zero; outputs stay."""
    head.load_state_dict(tensors)
    with torch.no_grad():
        head.classifier.weight.div_(head.unit)
        head.classifier.bias.sub_(head.zero).div_(head.unit)


def load_task_model(path: ModelFolder | Path | str) -> TaskModel:
    """Open the task model in a Hugging Face folder or a run, in evaluation mode; config.json names its task.

    Raises:
        BrimfulError: the folder holds no model of a known task, or has no tokenizer.
    """
    folder = ModelFolder.open(path, "model")
    encoder, head, labels = load_model(folder)
    usual = PROBLEMS.get(HEADS[type(head)]) if head is not None else None
    if usual is None:
        raise BrimfulError(f"{path} holds no task model; fine-tune one with `brimful finetune`")
    assert isinstance(head, TaskHead)
    require_tokenizer(encoder, path)
    names = labels or [f"LABEL_{index}" for index in range(head.classes)]  # as in `transformers`
    kind = find_task(find_saved_form(folder, usual, head.classes).name)
    task, saved = open_form(kind, folder, names, of_texts=type(head) is SequenceHead)
    if type(head) is TokenHead and task.labels != names:  # tags of other tools may stand in any order
        reorder_outputs(head, [names.index(label) for label in task.labels])
    return TaskModel(task, encoder, head, folder.text_length(encoder.config), **saved._asdict())
