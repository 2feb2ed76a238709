"""Classification of texts and pairs of texts: its loss, its tables, its figures."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from brimful.console import warn
from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples, ExampleStream
from brimful.errors import BrimfulError
from brimful.nn.attention import Layout
from brimful.nn.encoder import Encoder
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import load_model, text_length
from brimful.nn.linear_cross_entropy import cross_entropy_sum, hits
from brimful.randomness import derive_key, permutation
from brimful.runs.directory import find_model
from brimful.storage import atomic_file
from brimful.tasks.inference import predict
from brimful.tasks.metrics import classification_figures
from brimful.tasks.table import Table, encode, label_ids, label_names, read_table
from brimful.train.objective import JudgedBy, Runtime


@dataclass(frozen=True)
class Classifier:
    """A task model: encoder (with tokenizer), head, names of the classes, and where it cuts texts."""

    encoder: Encoder
    head: SequenceHead
    labels: list[str]
    max_length: int

    @property
    def parameters(self) -> int:
        """How many it has."""
        return sum(p.numel() for module in (self.encoder, self.head) for p in module.parameters())


def load_classifier(path: Path | str) -> Classifier:
    """The task model in a folder or a run, in evaluation mode.

    Raises:
        BrimfulError: there is none, or it has no tokenizer.
    """
    folder = find_model(Path(path), "model")
    encoder, head, labels = load_model(folder)
    if not isinstance(head, SequenceHead) or labels is None:
        raise BrimfulError(f"{path} holds no classifier; fine-tune one with `brimful finetune`")
    if encoder.tokenizer is None:
        raise BrimfulError(f"{path} has no tokenizer.json; add it beside config.json")
    return Classifier(encoder, head, labels, text_length(folder, encoder))


def judge(
    encoder: Encoder, head: SequenceHead, examples: Examples, runtime: Runtime
) -> tuple[np.ndarray, dict[str, float]]:
    """Logits float32 (n, classes) of labelled examples, and accuracy, F1, mean loss and n."""
    encoder.eval()
    head.eval()
    labels = examples.targets["label"]
    logits = predict(
        lambda batch: head(encoder(batch), batch),
        examples,
        device=runtime.device,
        precision=runtime.precision,
    )
    loss = cross_entropy_sum(torch.from_numpy(logits), torch.from_numpy(labels)) / len(labels)
    return logits, classification_figures(logits.argmax(1), labels, logits.shape[1]) | {"loss": float(loss)}


@dataclass(frozen=True)
class Task:
    """Tables of a classification task, encoded.

    Attributes:
        fit, dev: what learning rates are compared on; fit is all of train where there is nothing to compare.
        train: all examples to train on in the end.
    """

    labels: list[str]
    fit: Examples
    dev: Examples | None
    train: Examples
    test: Examples
    leaked: int


def load_task(
    encoder: Encoder, train_path: str, dev_path: str | None, test_path: str, *, max_length: int, split: bool
) -> Task:
    """Read and encode the tables.

    Args:
        split: hold out a fifth of train as dev where no dev table is given.

    Raises:
        BrimfulError: a table is missing or malformed, a label is unknown, a table is too small to split.
    """
    train, test = read_table(train_path, labelled=True), read_table(test_path, labelled=True)
    labels = label_names(train)
    leaked = len(set(train.keys()) & set(test.keys()))
    if leaked:
        warn(f"{leaked} texts of {test.path} are also in {train.path}: the test figures are too good")

    def encoded(table: Table) -> Examples:
        return encode_labelled(table, encoder, max_length, labels)

    everything = encoded(train)
    dev: Examples | None = None
    fit = everything
    if dev_path:
        dev = encoded(read_table(dev_path, labelled=True))
    elif split:
        order = permutation(len(train), derive_key("dev"))
        size = len(train) // 5
        if not size:
            raise BrimfulError(f"{train.path} has {len(train)} rows, too few to hold out a fifth; give --dev")
        dev, fit = encoded(train.take(order[:size])), encoded(train.take(np.sort(order[size:])))
    return Task(labels, fit, dev, everything, encoded(test), leaked)


def example_stream(
    examples: Examples, sequences: int, tokens: int, seed: int, runtime: Runtime
) -> ExampleStream:
    """Updates of `sequences` examples for this rank, in micro-batches of at most `tokens` tokens."""
    return ExampleStream(
        examples,
        sequences=sequences,
        tokens=tokens,
        seed=seed,
        fixed_shapes=runtime.device.type == "cuda",
        rank=runtime.world.rank,
        world=runtime.world.size,
    )


def check_max_length(max_length: int, encoder: Encoder) -> None:
    """Refuse a length that leaves no room for a token between [CLS] and [SEP], or that the encoder lacks."""
    longest = encoder.config.max_length
    if not 3 <= max_length <= longest:
        raise BrimfulError(f"max_length is {max_length}: it must be from 3 to the encoder's {longest}")


def encode_labelled(table: Table, encoder: Encoder, max_length: int, labels: list[str]) -> Examples:
    """A labelled table as examples with the target "label"."""
    if encoder.tokenizer is None:
        raise BrimfulError("the encoder's folder has no tokenizer.json; add it beside config.json")
    check_max_length(max_length, encoder)
    return encode(table, encoder.tokenizer, max_length, {"label": label_ids(table, labels)})


class Classification:
    """The objective: one term, `classification`, the mean cross-entropy over an update's examples."""

    coefficients: ClassVar[dict[str, float]] = {"classification": 1.0}
    watched: ClassVar[tuple[str, ...]] = ("accuracy",)
    judged_by: ClassVar[JudgedBy | None] = ("accuracy", "highest")
    compiles: ClassVar[bool] = True

    def __init__(self, head: SequenceHead, held_out: Examples | None) -> None:
        self.head = head
        self.held_out = held_out

    def modules(self) -> dict[str, nn.Module]:
        return {"head": self.head}

    def frozen(self) -> dict[str, nn.Module]:
        return {}

    def normalizers(self, batch: PackedBatch) -> dict[str, float]:
        return dict.fromkeys(("classification", "accuracy"), float(batch.real_sequences))

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> dict[str, Tensor]:
        logits, labels = self.head(encoder(batch, layout), batch), batch.targets["label"]
        return {"classification": cross_entropy_sum(logits, labels), "accuracy": hits(logits, labels)}

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        """Accuracy, F1 and mean loss on the held-out examples."""
        return {} if self.held_out is None else judge(encoder, self.head, self.held_out, runtime)[1]


def write_predictions(path: Path, logits: np.ndarray, task: Task) -> None:
    """One JSON object a test row, in its order: label, prediction, probability of the prediction."""
    probabilities = torch.softmax(torch.from_numpy(logits), -1).numpy()
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for label, row in zip(task.test.targets["label"], probabilities, strict=True):
            guess = int(row.argmax())
            value = {
                "label": task.labels[label],
                "prediction": task.labels[guess],
                "probability": float(row[guess]),
            }
            file.write(json.dumps(value, ensure_ascii=False) + "\n")
