"""The teacher of most tests of `brimful distil`."""

from pathlib import Path

import pytest

from brimful.base.config import write_yaml
from brimful.hf.folders import save_model
from brimful.model.heads import SequenceHead
from brimful.stages.task_options import FinetuneConfig
from builders.thin_encoders import thin_encoder

ROWS = [("good fine nice", "yes"), ("bad awful poor", "no"), ("nice and good", "yes"), ("poor and bad", "no")]


@pytest.fixture(scope="session")
def teacher(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a fine-tuning run leaves: a config, a model of 4 layers, and the encoder that it came from.

    One folder for the whole session: read it, don't write to it.
    """
    folder = tmp_path_factory.mktemp("teacher")
    encoders = [thin_encoder(corpus_dir, seed, layers=4) for seed in range(2)]
    save_model(folder / "encoder", encoders[0])
    save_model(folder / "run" / "model", encoders[1], SequenceHead(encoders[1], 2), ["no", "yes"])
    table = folder / "rows.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    paths = {"encoder": str(folder / "encoder"), "train": str(table), "test": str(table)}
    config = FinetuneConfig(**paths, out=str(folder / "run"), max_length=16)
    write_yaml(folder / "run" / "config.yaml", config)
    return folder / "run"
