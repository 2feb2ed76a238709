"""How token vectors are pooled: as the encoder was trained, or as an option says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import brimful
from brimful import BrimfulError, Encoder, distil, export, finetune, predict
from brimful.base.config import read_yaml
from brimful.base.distributed import World
from brimful.hf.folders import load_model, save_model, write_modules
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import reads_token_types
from brimful.model.inference import text_vectors
from brimful.tables.table import Table
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import encode
from brimful.tasks.judging.baselines import Frozen
from brimful.train.objective import Runtime
from builders.encoders import small, word_tokenizer
from builders.thin_encoders import thin_encoder


@pytest.fixture(scope="module")
def folder(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that says it was trained with the mean, one that says nothing, and two tables."""
    folder = tmp_path_factory.mktemp("pooling")
    encoder = thin_encoder(corpus_dir, architecture="bert", max_length=32)
    save_model(folder / "plain", encoder)
    encoder.pooling = "mean"
    save_model(folder / "embedder", encoder)
    random = np.random.default_rng(1)
    labels = random.integers(0, 2, 40)
    texts = [" ".join(random.choice(["good", "bad"], 6)) for _ in labels]
    single = ["text\tlabel", *(f"{text}\t{label}" for text, label in zip(texts, labels, strict=True))]
    pairs = ["text\ttext_b\tlabel", *(f"{text}\tgood\t{n}" for text, n in zip(texts, labels, strict=True))]
    (folder / "single.tsv").write_text("\n".join(single) + "\n")
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    return folder


def run(folder: Path, out: Path, encoder: str, table: str = "single.tsv", **options: object) -> Path:
    path = str(folder / table)
    options |= {"encoder": str(folder / encoder), "train": path, "test": path, "out": str(out)}
    finetune(epochs=1.0, precision="fp32", **options)
    return out


@pytest.mark.parametrize(
    ("encoder", "asked", "pooling"),
    [
        ("embedder", "auto", "mean"),
        ("plain", "auto", "first"),
        ("plain", "mean", "mean"),
        ("embedder", "first", "first"),
    ],
)
def test_pooling_is_that_of_training_or_asked_for(folder, tmp_path, encoder, asked, pooling, capsys):
    finished = run(folder, tmp_path / "run", encoder, pooling=asked)
    guessed = (encoder, asked) == ("plain", "auto")
    assert ("says no pooling: a new dense layer reads the first token" in capsys.readouterr().err) is guessed
    assert read_yaml(finished / "config.yaml")["pooling"] == pooling
    trained, head, _ = load_model(finished / "model")
    assert (trained.pooling, head.pooling, head.linear) == (pooling, pooling, pooling == "mean")


def test_a_model_of_the_mean_predicts_and_is_distilled_and_exported(folder: Path, tmp_path: Path) -> None:
    """It was trained on single texts: token types are an input nowhere."""
    finished = run(folder, tmp_path / "run", "embedder")
    assert not reads_token_types(ModelFolder(finished / "model"), load_model(finished / "model")[0].config)
    predict(model=str(finished), input=str(folder / "single.tsv"), output=str(tmp_path / "out.jsonl"))
    again = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    first = [json.loads(line) for line in (finished / "predictions.jsonl").read_text().splitlines()]
    assert [row["prediction"] for row in again] == [row["prediction"] for row in first]
    stage = {"epochs": 1.0, "learning_rate": 1e-3}
    distil(teacher=str(finished), out=str(tmp_path / "student"), student_layers=1, layers=stage, logits=stage)
    assert load_model(tmp_path / "student" / "model")[1].linear
    result = export(run=str(tmp_path / "student"), out=str(tmp_path / "export"))
    assert result["format"] == "sentence-transformers"
    names = json.loads((tmp_path / "export" / "tokenizer_config.json").read_text())["model_input_names"]
    assert names == ["input_ids", "attention_mask"]


def test_pooling_is_refused_where_nothing_is_pooled(folder: Path, tmp_path: Path) -> None:
    (folder / "spans.jsonl").write_text('{"text": "good bad", "spans": [[0, 4, "N"]]}\n' * 8)
    with pytest.raises(BrimfulError, match="pooling"):
        run(folder, tmp_path / "run", "plain", "spans.jsonl", task="token-classification", pooling="mean")


def test_a_model_of_pairs_reads_token_types(folder: Path, tmp_path: Path) -> None:
    finished = run(folder, tmp_path / "run", "embedder", "pairs.tsv")
    assert reads_token_types(ModelFolder(finished / "model"), load_model(finished / "model")[0].config)


TEXTS = ["w1 w2 w3 w4", "w5", "w9 w8 w7", "w5 w1"]


@pytest.fixture(params=["first", "mean", None])
def encoder_folder(request, tmp_path: Path) -> Path:
    torch.manual_seed(2)
    encoder = small("bert", vocabulary_size=95)
    encoder.tokenizer = word_tokenizer()
    save_model(tmp_path / "model", encoder)
    if request.param:
        write_modules(tmp_path / "model", encoder.config.hidden_size, request.param, 50)
    return tmp_path / "model"


def test_the_pooling_of_the_folder_is_the_default(encoder_folder, tmp_path):
    encoder = Encoder.load(encoder_folder)
    first = encoder.pooling == "first"
    wanted = np.stack([hidden[0] if first else hidden.mean(0) for hidden in encoder.encode(TEXTS)])
    np.testing.assert_allclose(encoder.embed(TEXTS), wanted, atol=1e-5)
    for pooling in ("mean", "max"):
        asked = [getattr(hidden, pooling)(0) for hidden in encoder.encode(TEXTS)]
        np.testing.assert_allclose(encoder.embed(TEXTS, pooling), asked, atol=1e-5)

    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    files = {"input": str(tmp_path / "texts.txt"), "output": str(tmp_path / "out.npy")}
    brimful.predict(model=str(encoder_folder), **files)
    np.testing.assert_allclose(np.load(files["output"]), wanted, atol=1e-5)

    runtime = Runtime(World(0, 1, torch.device("cpu")), "fp32")
    data = encode(Table(Path("a"), TEXTS, None, None), encoder.tokenizer, 50)
    np.testing.assert_allclose(text_vectors(encoder, data.examples), wanted, atol=1e-5)
    frozen = Frozen(encoder, Classification([]), 50, None, runtime)
    scaled = (wanted - wanted.mean(0)) / wanted.std(0)
    np.testing.assert_allclose(frozen.fit(data.table), scaled, atol=1e-3)
