"""`brimful distil-encoder`, and prepared data."""

from contextlib import closing
from typing import Any

import pytest
import torch

from brimful import BrimfulError, Encoder, distil, distil_encoder
from brimful.base.distributed import SINGLE_RANK
from brimful.base.types import IGNORED
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
    given |= {"layers": EPOCH | {"epochs": 0.01}, "batch": 16, "max_length": 16, "precision": "fp32"}
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
    """General distillation on shards: no masks; pooling stays open."""
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

    encoder = Encoder.load(teacher.parent / "encoder")
    texts = ShardTexts(
        DistilEncoderConfig(data=(str(corpus_dir),)), encoder, 16, tmp_path / "plans", main=True
    )
    with closing(texts.stream(Runtime(SINGLE_RANK, "fp32"))) as stream:
        batches, _ = stream.take(stream.start())
    for batch in batches:
        used = batch.mlm_labels != IGNORED
        assert torch.equal(batch.tokens[batch.mlm_positions[used]].long(), batch.mlm_labels[used].long())
