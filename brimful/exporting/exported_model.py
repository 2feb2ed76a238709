"""A model that is exported: the facts for its folder, example and card, how it reads texts, and real texts.

It is compared and calibrated on texts of the user, else of its run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation
from brimful.base.types import Values
from brimful.corpus.text.special_ids import Side, special_tokens, truncation_side
from brimful.hf.model_folder import PAIRS, ModelFolder
from brimful.hf.tensor_names import Head
from brimful.hf.text_reading import TextReading
from brimful.model.encoder import Encoder
from brimful.model.heads import ClassifierHead, MaskedLMHead, SequenceHead, SpanHead, TokenHead
from brimful.model.initial_weights import skip_initial_weights
from brimful.tables.layouts import FileLayout
from brimful.tables.table import Table
from brimful.tables.table_files import read_texts
from brimful.tasks.cached_tables import RunTables, TaskFiles
from brimful.tasks.encoded_tables import Encoded, encode
from brimful.tasks.task import TaskHead
from brimful.tasks.task_data import split_rows
from brimful.tasks.task_model import TaskModel, load_task_model

CALIBRATION_TEXTS = 300
"""The most texts from which the ranges of activations are found."""
COMPARED_TEXTS = 4000
"""The most rows that are compared; a larger file is sampled at random."""


@dataclass(frozen=True)
class Export:
    """A model on its way into a folder.

    Attributes:
        head: None for an encoder; `reading` then says how it makes vectors.
        labels: names of the head's classes; None if they have no names.
        source: the folder from which the model was read.
        settings: the arguments of `save_model` that write encoder and head as they were.
        token_types: whether token types are an input.
    """

    encoder: Encoder
    head: Head | None
    labels: list[str] | None
    source: ModelFolder
    settings: Values
    token_types: bool
    reading: TextReading | None

    @property
    def max_length(self) -> int:
        """Tokens at which a text is cut."""
        return int(self.settings["max_length"])

    @property
    def tokenizer(self) -> Tokenizer:
        """The encoder's tokenizer, which every model that is exported has."""
        assert self.encoder.tokenizer is not None
        return self.encoder.tokenizer

    @cached_property
    def special(self) -> dict[str, tuple[str, int]]:
        """The names and ids of special tokens, by role."""
        return special_tokens(self.tokenizer)

    @property
    def side(self) -> Side:
        """The side on which long texts are cut."""
        return truncation_side(self.tokenizer)

    @property
    def values(self) -> Values:
        """The settings in config.json, beside the shape."""
        return {"problem_type": self.settings["problem_type"], **self.settings["extra"]}

    @property
    def reads_two(self) -> bool:
        """Whether its inputs are pairs of texts."""
        return self.kind == "answers" or bool(self.values.get(PAIRS))

    @property
    def kind(self) -> str:
        """The kind of its outputs: classes, labels, values, tokens, answers, words or vectors."""
        if isinstance(self.head, SpanHead):
            return "answers"
        if isinstance(self.head, TokenHead):
            return "tokens"
        if isinstance(self.head, MaskedLMHead):
            return "words"
        if not isinstance(self.head, SequenceHead):  # no head, or one that no format takes
            return "vectors"
        problem = self.values["problem_type"]  # without one, the number of classes decides
        if problem == "regression" or (problem is None and self.head.classes == 1):
            return "values"
        return "labels" if problem == "multi_label_classification" else "classes"

    @cached_property
    def task(self) -> TaskModel | None:
        """The model with its task; None for an encoder without a head.

        Raises:
            BrimfulError: its head does not belong to a task.
        """
        if self.head is None:
            return None
        if not isinstance(self.head, TaskHead) or not self.source.has_task:
            raise BrimfulError(
                "an export is compared on real texts if its model has the head of a task, or none: a"
                f" {type(self.head).__name__} is exported without --test and --calibrate"
            )
        return replace(load_task_model(self.source), encoder=self.encoder, head=self.head)

    @property
    def order(self) -> list[int] | None:
        """Output i of the task is the head's output `order[i]`; None: they are in the same order."""
        if not self.task or not self.labels or list(self.task.task.labels) in ([], self.labels):
            return None
        return list(map(self.labels.index, self.task.task.labels))

    def encode(self, table: Table, *, labelled: bool = False) -> Encoded:
        """Return the examples of a table, as the model reads them.

        Args:
            labelled: whether the table's labels become targets; only with a task.
        """
        model = self.task
        if model is None:
            assert self.reading is not None
            return encode(table, self.tokenizer, self.reading.max_length, prompt=self.reading.prompt)
        if labelled:
            return model.task.encode(table, self.tokenizer, model.max_length, model.overlap, labelled=True)
        return model.encode(table)

    def read(self, path: Path, layout: FileLayout, *, labelled: bool, part: str = "given") -> "RealTexts":
        """Read the rows of a file.

        Raises:
            BrimfulError: it cannot be read.
        """
        if self.task is None:
            table = read_texts(path, layout)
        else:
            table = TaskFiles(type(self.task.task), layout, labelled=labelled).read(path)
        return RealTexts(path, self.encode(table, labelled=labelled), labelled, part)


@dataclass(frozen=True)
class RealTexts:
    """Real texts.

    Attributes:
        labelled: whether `data` has targets, so that the metric is known.
        part: the part of the run: test, dev or train; `given` if the user names the file.
    """

    file: Path
    data: Encoded
    labelled: bool
    part: str = "given"

    def sample(self, count: int, skip: int = 0) -> "RealTexts":
        """Return `count` rows at random, in the order of the file; they are the same on every call.

        Args:
            skip: number of rows that are drawn first and left out.
        """
        rows = permutation(len(self.data), derive_key("export", "texts")).astype(np.int64)
        return replace(self, data=self.data.take(np.sort(rows[skip : skip + count])))


def find_texts(
    export: Export, test: str | None, calibrate: str | None, run: RunTables
) -> tuple[RealTexts, RealTexts] | None:
    """Read the texts to compare on, and the texts to calibrate by.

    Args:
        test, calibrate: files of the user, with the columns of the run's tables.
        run: its tables are read for a task where the user names no file; held-out rows calibrate nothing.

    Returns:
        At most `COMPARED_TEXTS` and `CALIBRATION_TEXTS` texts, or None. Without a test, the first are other
        rows of the file that calibrates, if it has enough.
    """
    is_task = export.task is not None
    parts: dict[str, RealTexts] = {}
    if is_task and run.train is not None and run.held_out and not (test and calibrate):
        fitted = export.read(run.train, run.layout, labelled=True).data
        for name, rows in run.held_out.items():
            fitted, part = split_rows(fitted, rows, name)
            parts[name] = RealTexts(part.table.path, part, labelled=True, part=name)
        parts["train"] = RealTexts(run.train, fitted, labelled=False, part="train")

    def read_part(name: str) -> RealTexts | None:
        path = getattr(run, name) if is_task else None
        if name in parts or path is None:
            return parts.get(name)
        return export.read(path, run.layout, labelled=name != "train", part=name)

    if test:
        tests: RealTexts | None = export.read(Path(test), run.layout, labelled=is_task)
    else:
        tests = read_part("test") or read_part("dev")
    if calibrate:
        calibration: RealTexts | None = export.read(Path(calibrate), run.layout, labelled=False)
    else:
        calibration = read_part("train") or tests
    if calibration is None:
        return None
    if tests is not None:
        compared = tests.sample(COMPARED_TEXTS)
    else:
        skip = 0
        if len(calibration.data) >= 2 * CALIBRATION_TEXTS:  # enough for two samples without a common row
            skip = CALIBRATION_TEXTS
        compared = calibration.sample(COMPARED_TEXTS, skip)
    # Drawn from the whole file, which may be sorted by label.
    return compared, calibration.sample(CALIBRATION_TEXTS)


K = TypeVar("K", bound=MaskedLMHead | ClassifierHead | None)


def keep_rows(encoder: Encoder, head: K, old_ids: Sequence[int] | np.ndarray) -> tuple[Encoder, K]:
    """Copy a model with the rows of some pieces. Their hidden states and scores do not change.

    The copy has no tokenizer, since the encoder's has the old ids.

    Args:
        head: the encoder's own, or None.
        old_ids: the old id of each new one, int64; the padding token is among them, and no id comes twice.
    """
    config, ids = encoder.config, torch.as_tensor(np.asarray(old_ids, dtype=np.int64))
    pad = int((ids == config.pad_id).nonzero().item())
    with skip_initial_weights():
        smaller = Encoder(replace(config, vocabulary_size=len(ids), pad_id=pad))
        smaller.to(encoder.embedding.weight)
    smaller.pooling = encoder.pooling
    ids = ids.to(encoder.device)
    with torch.no_grad():
        # Behind the pieces are rows of padding, which nothing reads.
        rows = torch.cat((encoder.word_embeddings[ids], smaller.embedding.weight[len(ids) :]))
        changed = {"embedding.weight": rows}
        if encoder.position is not None:  # in RoBERTa, the padding token says where positions begin
            begin = smaller.config.position_offset
            used = encoder.position.weight[config.position_offset :]
            changed["position.weight"] = torch.cat((used.new_zeros(begin, used.shape[1]), used))
        smaller.load_state_dict(encoder.state_dict() | changed)
    smaller.train(encoder.training)  # a new module is in training mode
    if not isinstance(head, MaskedLMHead):
        return smaller, head
    with skip_initial_weights():
        narrowed = type(head)(smaller).to(head.bias)
    narrowed.load_state_dict(head.state_dict() | {"bias": head.bias.detach()[ids]})
    return smaller, narrowed.train(head.training)
