"""The model that a fine-tuning starts from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.hf.folders import load_pretrained, named_tensors
from brimful.hf.model_folder import ModelFolder
from brimful.hf.tensors import classifier_weight, from_hf, to_hf
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig
from brimful.stages.finetune_config import FinetuneConfig
from brimful.tasks.data import TaskData
from brimful.tasks.model import TaskModel, load_task_model, reorder, take_weights
from brimful.tasks.task import Task, TaskHead


@dataclass(frozen=True)
class TaskStart:
    """What a folder gives a task: all its weights by their names in `transformers`, and the model whose head
    goes on, or why that cannot be read."""

    encoder: Encoder
    tensors: Mapping[str, Tensor]
    model: TaskModel | None = None
    unread: str = ""

    @classmethod
    def of(cls, folder: ModelFolder) -> Self:
        """What a folder gives; raises as `load_pretrained`."""
        encoder, model, unread = load_pretrained(folder)[0], None, ""
        if folder.has_task:
            try:
                model = load_task_model(folder)
            except BrimfulError as error:
                unread = str(error)
        return cls(encoder, named_tensors(folder, encoder)[0], model, unread)

    def why_new(self, head: TaskHead, task: Task) -> str:
        """Why the head of the folder's task does not go on in a new one; empty if it does or is absent."""
        if self.model is None:
            return self.unread
        theirs = self.model.task
        if type(theirs) is not type(task):
            return f"it is for {theirs.name}"
        if sorted(theirs.labels) != sorted(task.labels):
            return f"it has other labels than the table: {', '.join(theirs.labels[:9])}"
        ours, own = (getattr(each, "pooling", None) for each in (self.model.head, head))
        same = self.model.head.classifier.weight.shape == head.classifier.weight.shape
        return "" if same and ours == own else "it has another pooling or width"

    def fill(self, head: TaskHead, task: Task) -> bool:
        """Give a new head what the folder has of it, as `from_pretrained` does; say whether there is any."""
        if self.model is None or self.why_new(head, task):
            return start_transform(head, self.encoder.config, self.tensors)
        take_weights(head, self.model.head.state_dict())
        reorder(head, [self.model.task.labels.index(label) for label in task.labels])
        return True


def start_transform(head: TaskHead, config: EncoderConfig, tensors: Mapping[str, Tensor]) -> bool:
    """Copy into a new head what a folder has of it before the classifier: BERT's trained pooler, in modern
    the transform of a masked-LM head, that of any classifier. False where the head or the folder has none."""
    own, last = to_hf(head, config), classifier_weight(type(head), config).removesuffix("weight")
    wanted = [name for name in own if not name.startswith(last)]
    fits = (name in tensors and tensors[name].shape == own[name].shape for name in wanted)
    if not wanted or getattr(head, "linear", False) or not all(fits):
        return False
    from_hf(head, config, own | {name: tensors[name] for name in wanted})
    return True


def starting_model(
    config: FinetuneConfig, seed: int, task: Task, start: TaskStart | None = None
) -> tuple[Encoder, TaskHead]:
    """The model before training, which takes over the weights of `start`, what the encoder's folder holds; by
    default it is read."""
    start = start or TaskStart.of(config.encoder_folder)
    encoder = start.encoder
    if config.layers is not None:
        encoder = encoder.keep_layers(config.layers)
    torch.manual_seed(seed)
    rate = encoder.config.attention_dropout if config.dropout else 0.0
    # Drawn in any case, so that a seed gives the head the same weights.
    fresh = Encoder(replace(encoder.config, dropout=config.dropout, attention_dropout=rate))
    drawn = config.initialisation == "random"
    fresh.tokenizer = encoder.tokenizer
    fresh.pooling = encoder.pooling if config.pooling == "auto" else config.pooling
    if not drawn:
        fresh.load_state_dict(encoder.state_dict(), assign=True)
    head = task.new_head(fresh)
    if not drawn:
        start.fill(head, task)
    return fresh, head


def starting_task_model(config: FinetuneConfig, seed: int, data: TaskData) -> TaskModel:
    """The same, as a model that reads texts as the configuration says."""
    assert config.max_length is not None
    started = starting_model(config, seed, data.task)
    pairs = data.train.table.second is not None
    return TaskModel(data.task, *started, config.max_length, config.overlap, pairs=pairs)
