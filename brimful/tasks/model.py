"""A task model: an encoder with the head of a task."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from brimful.data.examples import Examples
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import load_model, save_model, text_length
from brimful.objectives.supervised import Evaluate, no_evaluation
from brimful.precision.policy import Precision
from brimful.runs.directory import find_model
from brimful.storage import read_json
from brimful.tasks.inference import predict
from brimful.tasks.registry import tasks
from brimful.tasks.task import Task
from brimful.train.objective import Runtime


@dataclass(frozen=True)
class TaskModel:
    """An encoder with its tokenizer, a head, their task, and the most tokens of a text."""

    task: Task
    encoder: Encoder
    head: SequenceHead
    max_length: int

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for module in (self.encoder, self.head) for p in module.parameters())

    def to(self, device: torch.device) -> "TaskModel":
        """The same model, moved to `device` in place."""
        self.encoder.to(device)
        self.head.to(device)
        return self

    def outputs(self, examples: Examples, device: torch.device, precision: Precision) -> np.ndarray:
        """The head's outputs for every example, float32 (n, outputs), in evaluation mode; as `predict`."""
        encoder, head = self.encoder.eval(), self.head.eval()
        return predict(
            lambda batch: head(encoder(batch), batch), examples, device=device, precision=precision
        )

    def judge(self, examples: Examples, runtime: Runtime) -> tuple[np.ndarray, dict[str, float]]:
        """Outputs for labelled examples, float32 (n, outputs), and their metrics."""
        outputs = self.outputs(examples, runtime.device, runtime.precision)
        return outputs, self.task.measure(outputs, examples.targets)

    def save(self, folder: Path, *, token_types: bool = True) -> None:
        """Write a Hugging Face folder that `load_task_model` reads; `token_types` as in `save_model`."""
        save_model(
            folder,
            self.encoder,
            self.head,
            self.task.labels,
            max_length=self.max_length,
            problem_type=self.task.problem_type,
            token_types=token_types,
        )


def evaluation(task: Task, head: SequenceHead, examples: Examples | None) -> Evaluate:
    """The `evaluate` of an objective: the task's metrics on held-out examples, if there are any."""
    if examples is None:
        return no_evaluation
    held_out = examples

    def evaluate(encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        return TaskModel(task, encoder, head, held_out.max_length).judge(held_out, runtime)[1]

    return evaluate


def load_task_model(path: Path | str) -> TaskModel:
    """The task model in a Hugging Face folder or a run, in evaluation mode.

    Its task follows from config.json: from `problem_type`; without it, one output is a regression and several
    are the classes of one label, as in `transformers`.

    Raises:
        BrimfulError: the folder holds no model of a known task, or has no tokenizer.
    """
    folder = find_model(Path(path), "model")
    encoder, head, labels = load_model(folder)
    if not isinstance(head, SequenceHead) or labels is None:
        raise BrimfulError(f"{path} holds no task model; fine-tune one with `brimful finetune`")
    if encoder.tokenizer is None:
        raise BrimfulError(f"{path} has no tokenizer.json; add it beside config.json")
    problem = read_json(folder / "config.json").get("problem_type")
    problem = problem or ("regression" if head.classes == 1 else "single_label_classification")
    known = {task.problem_type: task for task in tasks().values()}
    if problem not in known:
        raise BrimfulError(f"{path}: no task has the problem_type {problem!r}; known: {', '.join(known)}")
    task = known[problem].from_labels(labels)
    if len(task.labels) != head.classes:
        raise BrimfulError(
            f"the model in {path} has {head.classes} outputs, but {len(task.labels)} labels for {task.name}:"
            " check id2label in config.json"
        )
    return TaskModel(task, encoder, head, text_length(folder, encoder))
