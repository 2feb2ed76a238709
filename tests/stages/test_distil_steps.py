"""`brimful distil-encoder`, and prepared data."""

import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from brimful import Encoder
from brimful.base.distributed import SINGLE_RANK
from brimful.base.errors import BrimfulError
from brimful.commands.distil import distil
from brimful.commands.distil_encoder import distil_encoder
from brimful.corpus.shards import Corpus
from brimful.corpus.text.special_ids import special_ids
from brimful.stages import distil_encoder as distil_encoder_module
from brimful.stages.distil_encoder import ShardTexts
from brimful.stages.distil_options import DistilEncoderConfig
from brimful.train.metrics import read_metrics
from brimful.train.objective import Runtime
from builders.distillation import EPOCH


def test_an_encoders_student_that_was_ended_goes_on_to_the_same_bits(
    teacher, corpus_dir, tmp_path, monkeypatch
):
    given = {"teacher": str(teacher.parent / "encoder"), "data": [str(corpus_dir)], "student_hidden": 16}
    given |= {"layers": EPOCH | {"epochs": 0.1}, "batch": 16, "max_length": 16, "precision": "fp32"}
    distil_encoder(**given, out=str(tmp_path / "straight"))
    made = distil_encoder_module.save_model

    def ended(*more: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(distil_encoder_module, "save_model", ended)
    with pytest.raises(KeyboardInterrupt):
        distil_encoder(**given, out=str(tmp_path / "run"))
    monkeypatch.setattr(distil_encoder_module, "save_model", made)
    with pytest.raises(
        BrimfulError, match=r"was not written by `brimful distil`: unknown key.*brimful export"
    ):
        distil(resume=str(tmp_path / "run"))
    distil_encoder(resume=str(tmp_path / "run"))
    weights = [tmp_path / name / "encoder" / "model.safetensors" for name in ("run", "straight")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_an_encoder_learns_layers_from_prepared_data(teacher, corpus_dir, tmp_path, capsys):
    """General distillation on shards: no masks, every token once an epoch; pooling stays open."""
    given = {"teacher": str(teacher.parent / "encoder"), "data": [f"{corpus_dir}:2"], "student_layers": 1}
    given |= {"batch": 16, "precision": "fp32", "layers": {"epochs": 2.0, "learning_rate": 1e-3}}
    summary = distil_encoder(**given, out=str(tmp_path / "run"))
    assert summary["sequences"] > 0
    assert "sequences an epoch" in capsys.readouterr().err
    losses = [row["loss.hidden"] for row in read_metrics(tmp_path / "run/stages/seed-0/layers/metrics.jsonl")]
    assert losses[-1] < 0.9 * losses[0]
    assert Encoder.load(tmp_path / "run" / "encoder").config.layers == 1
    assert not (tmp_path / "run" / "blocks").exists()
    assert Encoder.load(tmp_path / "run" / "encoder").pooling is None

    encoder, corpus = Encoder.load(teacher.parent / "encoder"), Corpus.open(corpus_dir).part("train")
    config = DistilEncoderConfig(data=(str(corpus_dir),), batch=8, micro_batch_tokens=64)
    texts = ShardTexts(config, encoder, 16, tmp_path / "plans", main=True)
    ids = special_ids(encoder.tokenizer)
    with closing(texts.stream(Runtime(SINGLE_RANK, "fp32"))) as stream:
        cursor, counts = stream.start(), np.zeros(encoder.config.vocabulary_size, dtype=np.int64)
        while cursor["sources"][corpus_dir.name]["epoch"] == 0:
            batches, following = stream.take(cursor)
            for batch in batches:
                counts += np.bincount(batch.tokens.numpy(), minlength=len(counts))
            cursor = following
    read = np.concatenate([np.asarray(shard.tokens) for shard in corpus.shards])
    expected = np.bincount(read, minlength=len(counts))
    counts[[ids.cls, ids.sep, ids.pad]] = expected[[ids.cls, ids.sep, ids.pad]] = 0
    excess = counts - expected  # the last update reaches into the next epoch
    assert (excess >= 0).all()
    assert excess.sum() < 8 * 16


def test_prepared_data_that_cannot_teach_is_refused(teacher, corpus_dir, tmp_path):
    data = {"data": [str(corpus_dir)], "out": str(tmp_path / "run")}
    with pytest.raises(BrimfulError, match="is a model of a task: `brimful distil` makes its student"):
        distil_encoder(**data, teacher=str(teacher))
    with pytest.raises(BrimfulError, match=r"layers\.epochs is 0: the layers are all"):
        distil_encoder(**data, teacher=str(teacher.parent / "encoder"), layers={"epochs": 0.0})
    encoder = Encoder.load(teacher.parent / "encoder")
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(tmp_path / "other")
    with pytest.raises(BrimfulError, match="made with another tokenizer than the teacher's"):
        distil_encoder(**data, teacher=str(tmp_path / "other"))
    with pytest.raises(BrimfulError, match="has another tokenizer than the teacher, whose layers"):
        distil_encoder(**data, teacher=str(teacher.parent / "encoder"), student=str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"student_layers": 9}, "student_layers is 9: the teacher has 4 layers"),
        ({"unlabelled": ["gone.txt"]}, "gone.txt: No such file"),
        ({"keep_layers": [0], "initialisation": "random"}, "starts from no layers"),
    ],
)
def test_what_cannot_work_is_refused_before_a_folder_is_made(teacher, tmp_path, options, said):
    with pytest.raises(BrimfulError, match=said):
        distil(teacher=str(teacher), **options, out=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
