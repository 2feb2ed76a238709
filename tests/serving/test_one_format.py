"""predict, embed and serve compute in one number format, and give a text the same numbers in any company."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from brimful import Encoder, TaskModel, predict
from brimful.kernels.inference_layer import lays_out_bf16
from brimful.precision import policy
from builders.http_app import Asked
from builders.task_models import new_encoder, task_model

TASKS = ["classification", "mean", "multi-label", "regression", "token-classification", "question-answering"]
FORMATS = [("fp32", False), ("bf16", False), ("auto", False), ("auto", True)]
"""What is asked for, and whether the processor is one of those with fast bfloat16."""
OTHERS = 400


@pytest.fixture(params=FORMATS, ids=["fp32", "bf16", "auto-slow", "auto-fast"])
def asked(request, monkeypatch):
    """The precision that is asked for, and the format that it is."""
    precision, fast = request.param
    monkeypatch.setattr(policy, "has_fast_bf16", lambda device: fast)
    found = {False: "fp32", True: "bf16"}[fast] if precision == "auto" else precision
    if found == "bf16" and not lays_out_bf16():
        pytest.skip("oneDNN has no bfloat16 for this processor")
    return precision, found


def some_texts(seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(f"w{i}" for i in random.integers(0, 90, random.integers(1, 29))) for _ in range(OTHERS)]


def numbers(value: Any) -> list[float]:
    """All numbers of a row, in order."""
    if isinstance(value, dict):
        return [number for key in sorted(value) if key not in ("id", "row") for number in numbers(value[key])]
    if isinstance(value, list):
        return [number for each in value for number in numbers(each)]
    return [float(value)] if isinstance(value, int | float) else []


def written(tmp_path: Path, texts: list[dict[str, str]], precision: str) -> tuple[list[Any], str]:
    """What `predict` writes for them, and the format that it names."""
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(each) + "\n" for each in texts))
    given = {"model": str(tmp_path / "model"), "input": str(tmp_path / "texts.jsonl")}
    found = predict(**given, output=str(tmp_path / "out.jsonl"), precision=precision)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    return rows, found["precision"]


@pytest.mark.parametrize("task", TASKS)
def test_a_text_has_the_same_answer_from_every_verb_in_any_company(task, asked, seed, tmp_path):
    precision, format = asked
    task_model(task).save(tmp_path / "model")
    texts = some_texts(seed)
    asks = task == "question-answering"
    rows = [{"question": text[:9], "context": text, "id": ""} if asks else {"text": text} for text in texts]
    many, named = written(tmp_path, rows, precision)
    first = next(number for number, row in enumerate(many) if numbers(row))  # a text without spans has none
    rows, texts = rows[first : first + 1], texts[first:]
    alone, named_alone = written(tmp_path, rows, precision)
    model = TaskModel.load(tmp_path / "model")
    columns = [[row["question"] for row in rows], texts[:1]] if asks else [texts[:1]]
    in_python = model.predict(*columns, precision=precision)
    app = Asked(models=(str(tmp_path / "model"),), precision=precision)
    body = {"text": columns[0][0]} | ({"text_b": texts[0]} if asks else {})
    served = app.ask("/v1/classify", **body)["results"][0]
    told = app.get("/v1/models").json()["data"][0]["precision"]
    assert named == named_alone == told == format
    wanted = numbers(many[first])
    for found in (alone[0], in_python[0], {key: served[key] for key in many[first] if key in served}):
        np.testing.assert_allclose(numbers(found), wanted, rtol=1e-5, atol=5e-6)


def test_a_vector_too(asked, seed, tmp_path):
    precision, format = asked
    new_encoder().save(tmp_path / "model")
    texts = some_texts(seed)
    many, named = written(tmp_path, [{"text": text} for text in texts], precision)
    encoder = Encoder.load(tmp_path / "model")
    app = Asked(models=(str(tmp_path / "model"),), precision=precision)
    served = app.ask("/v1/embeddings", input=texts[:1])["data"][0]["embedding"]
    assert named == format
    for found in (served, encoder.embed(texts[:1], precision=precision)[0]):
        np.testing.assert_allclose(found, many[0]["vector"], rtol=1e-5, atol=5e-6)
    other = encoder.embed(texts[:1], precision="bf16" if format == "fp32" else "fp32")[0]
    assert np.abs(other - served).max() > 1e-4 or not torch.backends.mkldnn.is_available()
