"""The model that a fine-tuning starts from."""

from contextlib import nullcontext
from dataclasses import replace

import torch

from brimful.errors import BrimfulError
from brimful.finetuning.config import FinetuneConfig
from brimful.hf.folders import load_pretrained
from brimful.model.drawing import discarded
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.tasks.task import Task, TaskHead


def starting_model(
    config: FinetuneConfig,
    seed: int,
    task: Task,
    source: tuple[Encoder, MaskedLMHead | None] | None = None,
) -> tuple[Encoder, TaskHead]:
    """The model before training. The transform of a pretrained masked-LM head starts the new head, as when
    `transformers` loads a ModernBERT checkpoint: the tensors have the same name.

    Args:
        source: what the encoder's folder holds, whose weights the model takes over; else it is read.
    """
    encoder, pretraining_head = source or load_pretrained(config.encoder_folder)
    if config.layers is not None:
        encoder = encoder.keep_layers(config.layers)
    torch.manual_seed(seed)
    rate = encoder.config.attention_dropout if config.dropout else 0.0
    # A seed gives the head the same weights whether or not the encoder's are drawn before them.
    drawn = config.initialisation == "random" or config.reinit_top
    with nullcontext() if drawn else discarded():
        fresh = Encoder(replace(encoder.config, dropout=config.dropout, attention_dropout=rate))
    fresh.tokenizer = encoder.tokenizer
    fresh.pooling = encoder.pooling if config.pooling == "auto" else config.pooling
    if config.initialisation == "pretrained":
        kept = encoder.config.layers - config.reinit_top
        if kept < 0:
            raise BrimfulError(
                f"reinit_top is {config.reinit_top}, and the encoder has {encoder.config.layers} layers"
            )
        new = tuple(f"layers.{index}." for index in range(kept, encoder.config.layers))
        tensors = {name: value for name, value in encoder.state_dict().items() if not name.startswith(new)}
        fresh.load_state_dict(tensors, strict=not new, assign=True)
    head = task.new_head(fresh)
    if config.initialisation == "pretrained" and pretraining_head is not None:
        head.start_from(pretraining_head)
    return fresh, head
