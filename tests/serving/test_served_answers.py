"""Answers over HTTP are those of `predict`, whatever else is asked meanwhile, in the forms of each path."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import brimful
from brimful import TaskModel
from builders.http_app import asked
from builders.served import nearly
from builders.task_models import new_encoder, task_model

RANDOM = np.random.default_rng(5)
TEXTS = [
    "",
    "w1",
    "😀 w3 é w4 w80",
    *(" ".join(f"w{i}" for i in RANDOM.integers(0, 90, n)) for n in RANDOM.integers(1, 90, 25)),
]
TASKS = ["classification", "multi-label", "regression", "token-classification"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, folder_of):
    """A folder with a model of each task, an encoder, and the graph of the classifier."""
    folder = tmp_path_factory.mktemp("tasks")
    for task in (*TASKS, "question-answering"):
        task_model(task).save(folder / task)
    new_encoder().save(folder / "encoder")
    shutil.copytree(folder_of("classification") / "onnx", folder / "onnx")
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with asked(*sorted(folder.iterdir()), precision="fp32") as found:
        yield found


def predicted(folder: Path, tmp_path: Path, texts: list[str], **options: Any) -> list[dict[str, Any]]:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    brimful.predict(model=str(folder), input=str(source), output=str(output), precision="fp32", **options)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row.pop("row") for row in rows if "row" in row] in ([], list(range(1, len(texts) + 1)))
    return rows


@pytest.mark.parametrize("model", [*TASKS, "onnx"])
def test_answers_are_those_of_predict(model, folder, server, tmp_path):
    scores = model not in ("token-classification", "regression")
    rows = predicted(folder / model, tmp_path, TEXTS, scores=scores)
    bodies = [{"texts": TEXTS}, *({"text": text} for text in TEXTS)]  # all in one, and each in its own
    responses = server.post_all("/v1/classify", *({"model": model, **body} for body in bodies))
    first, *others = (response.json() for response in responses)
    found = first["results"]
    for result, answer, row, text in zip(found, others, rows, TEXTS, strict=True):
        assert nearly(answer["results"], [result])
        about = {key: result.pop(key) for key in ("tokens", "windows")}
        cut = result.pop("truncated_at", None)
        row.pop("text", None)
        assert nearly(result, row), text
        assert about["tokens"] >= 0 < about["windows"]
        assert (cut is None) == (about["windows"] > 1 or len(text.split()) <= 30)
    assert first["usage"] == {"tokens": sum(answer["usage"]["tokens"] for answer in others)}


def test_pairs_and_single_texts_of_one_model_do_not_mix(folder, server):
    model = TaskModel.load(folder / "multi-label")
    single = model.predict(TEXTS, scores=True, precision="fp32")
    pairs = model.predict(TEXTS, TEXTS[::-1], scores=True, precision="fp32")
    bodies = [{"text": text, "model": "multi-label"} for text in TEXTS]
    bodies += [body | {"text_b": second} for body, second in zip(bodies, TEXTS[::-1], strict=True)]
    found = [response.json()["results"][0] for response in server.post_all("/v1/classify", *bodies)]
    for results, rows in ((found[: len(TEXTS)], single), (found[len(TEXTS) :], pairs)):
        for result, row in zip(results, rows, strict=True):
            row = {key: row[key] for key in row if key not in ("row", "text", "text_b")}
            assert nearly({key: result[key] for key in row}, row)


def test_vectors_are_those_of_predict(folder, server, tmp_path):
    rows = predicted(folder / "encoder", tmp_path, TEXTS)
    answer = server.ask("/v1/embeddings", input=TEXTS, model="encoder")
    assert answer["object"] == "list"
    assert [each["index"] for each in answer["data"]] == list(range(len(TEXTS)))
    expected = np.array([row["vector"] for row in rows])
    np.testing.assert_allclose([each["embedding"] for each in answer["data"]], expected, atol=1e-5)
    given = {"input": TEXTS, "model": "encoder", "encoding_format": "base64", "dimensions": 5}
    data = server.ask("/v1/embeddings", **given)["data"]
    found = np.array([np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in data])
    cut = expected[:, :5] / np.linalg.norm(expected[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose(found, cut, atol=1e-5)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > len(TEXTS)


def test_a_long_text_is_read_as_overflow_says(folder, server, tmp_path):
    long = "😀 " + " ".join(f"w{i}" for i in range(80))
    for model, overlap in (("classification", 8), ("multi-label", 8), ("onnx", 8)):
        (row,) = predicted(folder / model, tmp_path, [long], scores=True, overlap=overlap)
        answer = server.ask("/v1/classify", text=long, model=model, overflow="window")
        (result,) = answer["results"]
        assert result["windows"] > 1
        assert "truncated_at" not in result
        row.pop("text")
        assert nearly({key: result[key] for key in row}, row)
        (cut,) = server.ask("/v1/classify", text=long, model=model, overflow="truncate")["results"]
        read = long[: cut["truncated_at"]]
        assert read == "😀 " + " ".join(f"w{i}" for i in range(29))  # and two markers
        (again,) = server.ask("/v1/classify", text=read, model=model)["results"]
        assert nearly(again["scores"], cut["scores"])
        assert cut["tokens"] == 32 == again["tokens"]
        strict = {"model": model, "overflow": "reject"}
        status, message = server.refused("/v1/classify", {"texts": ["w1", long], **strict})
        assert status == 422
        assert message.startswith("text 2 has more tokens")
        assert server.ask("/v1/classify", text=read, **strict)["results"][0]["tokens"] == 32


def test_a_classifier_abstains_below_a_probability(server):
    results = server.ask("/v1/classify", texts=TEXTS, model="classification", abstain_below=0.4)["results"]
    assert {result["abstained"] for result in results} == {True, False}
    for result in results:
        assert result["abstained"] == (result["probability"] < 0.4)


def test_models_say_what_they_are(server):
    cards = {each["id"]: each for each in server.get("/v1/models").json()["data"]}
    assert cards.keys() == {*TASKS, "question-answering", "encoder", "onnx"}
    assert cards["encoder"]["width"] == 48
    assert cards["classification"]["labels"] == ["a", "b", "c"]
    assert cards["token-classification"]["labels"] == ["X", "Y"]
    assert cards["question-answering"]["pairs"] is True
    assert all(card["precision"] == "fp32" and card["max_length"] >= 32 for card in cards.values())


def test_an_answer_says_where_its_time_went_and_metrics_count_it(server):
    before = server.get("/metrics").text
    response = server.post("/v1/classify", {"texts": TEXTS, "model": "classification"})
    timing = response.headers["server-timing"]
    assert [part.partition(";dur=")[0] for part in timing.split(", ")] == ["queue", "compute"]
    response = server.post("/v1/classify", {"texts": [], "model": "classification"})
    assert (response.status_code, response.json()["results"]) == (200, [])
    assert "server-timing" not in response.headers
    assert server.ask("/v1/embeddings", input=[], model="encoder")["data"] == []
    after = server.get("/metrics").text
    name = 'brimful_texts_total{model="classification"}'
    counts = [
        float(next((line.split()[-1] for line in text.splitlines() if line.startswith(name)), 0))
        for text in (before, after)
    ]
    assert counts[1] - counts[0] == len(TEXTS)
    assert "brimful_queue_requests 0.0" in after
