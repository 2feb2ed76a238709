"""The teacher of most tests of `brimful distil`."""

from pathlib import Path

import pytest
import torch

from brimful import Encoder
from brimful.base.config import write_yaml
from brimful.corpus.text.tokenizer import load
from brimful.hf.folders import save_model
from brimful.model.heads import SequenceHead
from brimful.model.shape import EncoderConfig
from brimful.stages.task_options import FinetuneConfig
from builders.distillation import ROWS


@pytest.fixture(scope="session")
def teacher(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a fine-tuning run leaves: a config, a model of 4 layers, and the encoder that it came from.

    One folder for the whole session: read it, don't write to it.
    """
    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = load(corpus_dir)
    torch.manual_seed(0)
    encoders = []
    for _ in range(2):
        encoders.append(
            Encoder(
                EncoderConfig(
                    vocabulary_size=tokenizer.get_vocab_size(),
                    hidden_size=32,
                    layers=4,
                    heads=2,
                    intermediate_size=64,
                    max_length=64,
                    dropout=0.1,
                )
            )
        )
        encoders[-1].tokenizer = tokenizer
    save_model(folder / "encoder", encoders[0])
    save_model(folder / "run" / "model", encoders[1], SequenceHead(encoders[1], 2), ["no", "yes"])
    table = folder / "rows.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    config = FinetuneConfig(
        encoder=str(folder / "encoder"),
        train=str(table),
        test=str(table),
        out=str(folder / "run"),
        max_length=16,
    )
    write_yaml(folder / "run" / "config.yaml", config)
    return folder / "run"
