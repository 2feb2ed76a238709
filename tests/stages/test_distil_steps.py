"""`brimful distil-encoder`, and prepared data."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brimful import Encoder
from brimful.base.distributed import ALONE
from brimful.base.errors import BrimfulError
from brimful.commands.distil import distil
from brimful.commands.distil_encoder import distil_encoder
from brimful.corpus.shards import Corpus
from brimful.corpus.text.special_ids import special_ids
from brimful.runs.folder import RunFolder
from brimful.stages.distil_encoder import ShardTexts
from brimful.train.metrics import read_metrics
from brimful.train.objective import Runtime
from builders.distillation import EPOCH, ROWS, STILL


def test_an_encoder_teaches_an_encoder(teacher, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{text}\n" for text, _ in ROWS))
    given = {"teacher": str(teacher.parent / "encoder"), "unlabelled": [str(texts)], "test": str(texts)}
    given |= {"student_hidden": 16, "batch": 4, "precision": "fp32"}
    long = {"epochs": 80.0, "learning_rate": 1e-2}
    before = distil_encoder(out=str(tmp_path / "a"), layers=STILL, vectors=STILL, **given)
    after = distil_encoder(out=str(tmp_path / "b"), layers=EPOCH, vectors=long, **given)
    assert after["test"]["cosine"] > max(0.9, before["test"]["cosine"])
    assert Encoder.load(tmp_path / "b" / "encoder").embed(["good"]).shape == (1, 16)


def test_a_student_that_learned_no_vectors_does_not_say_how_it_makes_them(teacher, tmp_path):
    """As its teacher: so fine-tuning chooses. One that learned vectors makes them as it learned to."""
    given = {"teacher": str(teacher.parent / "encoder"), "unlabelled": [str(teacher.parent / "rows.tsv")]}
    assert Encoder.load(teacher.parent / "encoder").pooling is None
    for name, vectors, pooling in (("layers", STILL, None), ("vectors", EPOCH, "mean")):
        distil_encoder(**given, layers=EPOCH, vectors=vectors, out=str(tmp_path / name))
        assert Encoder.load(tmp_path / name / "encoder").pooling == pooling


def test_an_encoders_student_that_was_ended_goes_on_to_the_same_bits(teacher, tmp_path, monkeypatch, capsys):
    given = {"teacher": str(teacher.parent / "encoder"), "unlabelled": [str(teacher.parent / "rows.tsv")]}
    given |= {"student_hidden": 16, "layers": EPOCH, "vectors": EPOCH, "batch": 2, "precision": "fp32"}
    distil_encoder(**given, out=str(tmp_path / "straight"))
    train = RunFolder.train

    def ended(self: RunFolder, directory: Path, *more: Any) -> Any:
        if directory.name == "vectors":
            raise KeyboardInterrupt
        return train(self, directory, *more)

    monkeypatch.setattr(RunFolder, "train", ended)
    with pytest.raises(KeyboardInterrupt):
        distil_encoder(**given, out=str(tmp_path / "run"))
    monkeypatch.undo()
    with pytest.raises(
        BrimfulError, match=r"was not written by `brimful distil`: unknown key.*brimful export"
    ):
        distil(resume=str(tmp_path / "run"))
    distil_encoder(resume=str(tmp_path / "run"))
    assert "distil layers, seed 0: already finished" in capsys.readouterr().err
    made = [tmp_path / name / "encoder" / "model.safetensors" for name in ("run", "straight")]
    assert made[0].read_bytes() == made[1].read_bytes()


@pytest.mark.slow
def test_an_encoder_learns_layers_from_prepared_data(teacher, corpus_dir, tmp_path, capsys):
    """General distillation on shards: no masks, every token once an epoch, no texts needed."""
    given = {"teacher": str(teacher.parent / "encoder"), "data": [f"{corpus_dir}:2"], "student_layers": 1}
    given |= {"batch": 16, "precision": "fp32", "layers": {"epochs": 2.0, "learning_rate": 1e-3}}
    summary = distil_encoder(**given, out=str(tmp_path / "run"))
    assert summary["texts"] == 0
    assert "sequences an epoch of prepared data" in capsys.readouterr().err
    losses = [row["loss.hidden"] for row in read_metrics(tmp_path / "run/stages/seed-0/layers/metrics.jsonl")]
    assert losses[-1] < 0.9 * losses[0]
    assert Encoder.load(tmp_path / "run" / "encoder").config.layers == 1
    assert not (tmp_path / "run" / "blocks").exists()
    assert not (tmp_path / "run" / "stages" / "seed-0" / "vectors").exists()

    encoder, corpus = Encoder.load(teacher.parent / "encoder"), Corpus.open(corpus_dir).part("train")
    options = {"max_length": 16, "sequences": 8, "tokens": 64, "seed": 0, "main": True}
    texts = ShardTexts([str(corpus_dir)], encoder, directory=tmp_path / "plans", **options)
    ids = special_ids(encoder.tokenizer)
    with closing(texts.stream(Runtime(ALONE, "fp32"))) as stream:
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
    with pytest.raises(BrimfulError, match="which this run does not have"):
        distil_encoder(**data, teacher=str(teacher.parent / "encoder"), layers={"epochs": 0.0})
    encoder = Encoder.load(teacher.parent / "encoder")
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(tmp_path / "other")
    with pytest.raises(BrimfulError, match="made with another tokenizer than the teacher's"):
        distil_encoder(**data, teacher=str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"student_layers": 9}, "student_layers is 9: the teacher has 4 layers"),
        ({"unlabelled": ["gone.txt"]}, "gone.txt: No such file"),
        ({"logits": {"labels": -1.0}}, "weight of labels is -1"),
        ({"keep_layers": [0], "initialisation": "random"}, "starts from no layers"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_what_cannot_work_is_refused_before_a_folder_is_made(teacher, tmp_path, options, said, dry_run):
    with pytest.raises(BrimfulError, match=said):
        distil(teacher=str(teacher), **options, out=str(tmp_path / "run"), dry_run=dry_run)
    assert not (tmp_path / "run").exists()


def test_a_dry_run_writes_nothing(teacher, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("one text\nanother\n")
    answer = distil(teacher=str(teacher), out=str(tmp_path / "run"), unlabelled=[str(more)], dry_run=True)
    assert answer == {"dry_run": True, "texts": len(ROWS) + 2, "student_layers": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["more.txt"]
