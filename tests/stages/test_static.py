"""Static models: what they start from, what they learn, and that numpy and tokenizers alone serve them."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from brimful import Encoder
from brimful.base.errors import BrimfulError
from brimful.commands.export import export
from brimful.commands.predict import predict
from brimful.corpus.text.tokenizer import load
from brimful.model.shape import EncoderConfig
from brimful.stages import distil_static
from brimful.stages.distil_static import starting_vectors, token_vectors, train_static
from brimful.tasks.static import StaticModel, token_ids

TEXTS = [
    "good fine nice day",
    "bad awful poor room",
    "nice and good",
    "poor and bad",
    "fine day",
    "awful room",
]
CLASSES = np.array([1, 0, 1, 0, 1, 0])
LABELS = ["neg", "pos"]


@pytest.fixture(scope="module")
def encoder(corpus_dir: Path) -> Encoder:
    tokenizer = load(corpus_dir)
    torch.manual_seed(0)
    config = EncoderConfig(
        vocabulary_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        layers=1,
        heads=2,
        intermediate_size=32,
        max_length=64,
    )
    encoder = Encoder(config)
    encoder.tokenizer, encoder.pooling = tokenizer, "mean"
    return encoder


def ids_of(encoder: Encoder, texts: list[str] = TEXTS) -> list[np.ndarray]:
    return token_ids(encoder.tokenizer, texts, 64)


def test_a_token_has_the_vector_of_a_text_of_that_token(encoder):
    word = "good"
    (ids,) = ids_of(encoder, [word])
    vectors = token_vectors(encoder)
    assert vectors.shape == (encoder.config.vocabulary_size, 16)
    if len(ids) == 1:
        np.testing.assert_allclose(vectors[ids[0]], encoder.embed([word])[0], rtol=1e-5, atol=1e-6)
    tokens = [encoder.tokenizer.id_to_token(i) for i in range(200)]
    alone = next(i for i, t in enumerate(tokens) if t.isalpha() and [*ids_of(encoder, [t])[0]] == [i])
    np.testing.assert_allclose(vectors[alone], encoder.embed([tokens[alone]])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dimensions", [None, 5])
def test_text_means_start_with_mean_0_and_deviation_1(encoder, dimensions):
    texts = ids_of(encoder)
    start = starting_vectors(token_vectors(encoder), texts, dimensions)
    means = np.stack([start[ids].mean(0) for ids in texts])
    assert means.shape == (len(texts), dimensions or 16)
    np.testing.assert_allclose(means.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(means.std(0), 1, atol=1e-2)


def test_it_learns_classes_and_a_teachers_probabilities(encoder, monkeypatch):
    monkeypatch.setattr(distil_static, "LEARNING_RATE", 3e-2)
    monkeypatch.setattr(distil_static, "TEXTS_IN_UPDATE", 2)
    monkeypatch.setattr(distil_static, "DROPOUT", 0.0)
    long = {"dimensions": 8, "epochs": 200}
    model = train_static(encoder, ids_of(encoder), CLASSES, LABELS, **long)
    assert (model.predict(TEXTS).argmax(1) == CLASSES).all()
    chances = np.where(CLASSES[:, None] == [0, 1], 0.8, 0.2)
    soft = train_static(encoder, ids_of(encoder), chances, LABELS, **long).predict(TEXTS)
    np.testing.assert_allclose(soft, chances, atol=0.12)  # and not 0 or 1
    again = train_static(encoder, ids_of(encoder), CLASSES, LABELS, **long)
    assert (again.predict(TEXTS) == model.predict(TEXTS)).all()


def test_a_text_without_tokens_has_an_answer(encoder):
    model = train_static(encoder, [*ids_of(encoder), np.zeros(0, np.int32)], np.append(CLASSES, 1), LABELS)
    assert np.isfinite(model.predict(["", "good"])).all()
    assert model.predict([]).shape == (0, 2)


def test_it_is_served_without_torch(encoder, tmp_path):
    model = train_static(encoder, ids_of(encoder), CLASSES, LABELS, epochs=2)
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "weights.npz",
    ]
    code = """
import json, sys
from brimful.tasks.static import StaticModel
model = StaticModel.load(sys.argv[1])
print(json.dumps([model.predict(sys.argv[2:]).tolist(), list(model.labels), model.parameters]))
assert not {"torch", "scipy", "numba", "sklearn"} & set(sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "model"), *TEXTS]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    probabilities, labels, parameters = json.loads(said)
    np.testing.assert_array_equal(np.array(probabilities, np.float32), model.predict(TEXTS))
    assert (labels, parameters) == (LABELS, model.parameters)


def test_predict_takes_it_as_any_task_model(encoder, tmp_path):
    model = train_static(encoder, ids_of(encoder), CLASSES, LABELS, epochs=2, max_length=3)
    model.save(tmp_path / "run" / "model")
    texts = [*TEXTS, "good", "bad day and a very bad room"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    chances = model.predict(texts)

    def predicted(name: str, **more: object) -> list[dict]:
        given = {"model": str(tmp_path / "run"), "input": str(tmp_path / "in.txt")}
        predict(**given, output=str(tmp_path / name), **more)
        return [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]

    rows = predicted("out.jsonl")
    assert [row["prediction"] for row in rows] == [LABELS[best] for best in chances.argmax(1)]
    np.testing.assert_allclose([row["probability"] for row in rows], chances.max(1), atol=1e-4)
    rows = predicted("scores.jsonl", scores=True)
    assert [row["text"] for row in rows] == texts
    np.testing.assert_allclose([row["scores"]["pos"] for row in rows], chances[:, 1], atol=1e-6)
    rows = predicted("sure.jsonl", abstain_below=0.999)
    assert all(row["abstained"] == (row["probability"] < 0.999) for row in rows)
    predict(
        model=str(tmp_path / "run"),
        input=str(tmp_path / "in.txt"),
        output=str(tmp_path / "a.npy"),
        max_length=1,
    )
    first = [ids[:1] for ids in ids_of(encoder, texts)]
    expected = np.exp(model.logits(first))
    np.testing.assert_allclose(
        np.load(tmp_path / "a.npy"), expected / expected.sum(1, keepdims=True), atol=1e-6
    )


def test_what_static_models_cannot_do_is_refused(encoder, tmp_path):
    train_static(encoder, ids_of(encoder), CLASSES, LABELS, epochs=1).save(tmp_path / "model")
    (tmp_path / "in.tsv").write_text("text\ttext_b\na\tb\n")
    given = {"model": str(tmp_path / "model"), "output": str(tmp_path / "out.jsonl")}
    with pytest.raises(BrimfulError, match="has pairs of texts"):
        predict(**given, input=str(tmp_path / "in.tsv"))
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(BrimfulError, match="reads no windows; leave --overlap out"):
        predict(**given, input=str(tmp_path / "in.txt"), overlap=4)
    with pytest.raises(BrimfulError, match=r"config.json describes a brimful static model, not an encoder"):
        export(run=str(tmp_path / "model"), out=str(tmp_path / "export"))
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "export").exists()


def test_what_is_no_static_model_is_refused(encoder, tmp_path):
    encoder.save(tmp_path / "encoder")
    with pytest.raises(BrimfulError, match="holds no static model"):
        StaticModel.load(tmp_path / "encoder")
    model = train_static(encoder, ids_of(encoder), CLASSES, LABELS, epochs=1)
    with pytest.raises(BrimfulError, match="not a static model"):
        model.save(tmp_path / "encoder")
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")  # an earlier one is replaced
    (tmp_path / "model" / "weights.npz").write_bytes(b"")
    with pytest.raises(BrimfulError, match="no whole static model"):
        StaticModel.load(tmp_path / "model")


def test_damage_of_a_static_model_is_one_line(encoder, tmp_path):
    model = train_static(encoder, ids_of(encoder), CLASSES, LABELS, epochs=1)
    model.save(tmp_path / "model")
    path, config = tmp_path / "model" / "weights.npz", tmp_path / "model" / "config.json"
    with np.load(path) as arrays:
        weights = dict(arrays)
    values = json.loads(config.read_text())
    nan = np.full_like(weights["bias"], np.nan)
    arrays = [
        {"vectors": np.float32(3)},
        {"vectors": weights["vectors"][:, :3]},
        {"vectors": weights["vectors"][:3]},
        {"vectors": weights["vectors"].astype(str)},
        {"matrix": weights["matrix"][:1]},
        {"matrix": weights["matrix"].astype(np.complex64)},
        {"bias": weights["bias"][:, None]},
        {"bias": weights["bias"].astype(np.int64)},
        {"bias": nan},
        {"vectors": np.array([object()], dtype=object)},
    ]
    settings = [
        *({"labels": value} for value in (3, "ab", None, ["a"], ["a", 3], ["a", "b", "c"], {"a": 0}, [])),
        *({"max_length": value} for value in ("x", 0, -1, None, 2.5, True, 10**30, [3])),
    ]
    for changes in (*arrays, *settings):
        named = {**weights, **{k: v for k, v in changes.items() if k in weights}}
        np.savez(path, **named)
        config.write_text(json.dumps(values | {k: v for k, v in changes.items() if k in values}))
        with pytest.raises(BrimfulError, match="holds no whole static model: ") as caught:
            StaticModel.load(tmp_path / "model")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value).replace(str(tmp_path), "")) < 250
    for key in (*weights, "labels", "max_length"):
        np.savez(path, **{name: array for name, array in weights.items() if name != key})
        config.write_text(json.dumps({k: v for k, v in values.items() if k != key}))
        with pytest.raises(BrimfulError, match="holds no whole static model: "):
            StaticModel.load(tmp_path / "model")
    np.savez(path, **weights | {"matrix": np.full_like(weights["matrix"], 3e38)})
    config.write_text(json.dumps(values))
    with pytest.raises(BrimfulError, match="outputs are NaN or infinite"):
        StaticModel.load(tmp_path / "model").predict(TEXTS)


def test_an_encoder_of_nan_has_no_static_model(encoder):
    damaged = copy.deepcopy(encoder)
    with torch.no_grad():
        damaged.embedding.weight[7] = torch.nan
    with pytest.raises(BrimfulError, match="outputs are NaN or infinite"):
        train_static(damaged, ids_of(encoder), CLASSES, LABELS)


def test_targets_that_do_not_fit_are_refused(encoder):
    with pytest.raises(BrimfulError, match="do not fit"):
        train_static(encoder, ids_of(encoder), CLASSES[:3], LABELS)
    with pytest.raises(BrimfulError, match="no text has a token"):
        train_static(encoder, [np.zeros(0, np.int32)], CLASSES[:1], LABELS)
