"""Servers that others would write, for `bench.serve --sides`: of the same model, and of TF-IDF in its place.

    transformers   the text-classification pipeline behind FastAPI, as in their documentation: the endpoint is
                   a plain function, so it runs in FastAPI's threads
    openvino       the model of `brimful export --format onnx` in OpenVINO behind FastAPI, with a tokenizer
                   and a request of OpenVINO's for each of these threads
    tfidf          scikit-learn's logistic regression on TF-IDF, trained at the start, behind FastAPI

It runs in an environment of its own and imports nothing of Brimful:
pip install fastapi uvicorn torch transformers openvino tokenizers scikit-learn

    python peers.py transformers|openvino FOLDER
    python peers.py tfidf TRAIN.tsv [TEXTS.jsonl ANSWERS.jsonl]
"""

import csv
import json
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI

Scores = list[dict[str, float]]


def transformers_pipeline(folder: Path) -> Callable[[list[str]], Scores]:
    """The pipeline, with the scores of all labels and texts cut where the model's positions end."""
    from transformers import AutoConfig, pipeline

    most = AutoConfig.from_pretrained(folder).max_position_embeddings
    classify = pipeline("text-classification", str(folder), device="cpu", top_k=None)

    def scores(texts: list[str]) -> Scores:
        found = classify(texts, batch_size=32, truncation=True, max_length=most)
        return [{each["label"]: each["score"] for each in labels} for labels in found]

    return scores


def openvino_graph(folder: Path) -> Callable[[list[str]], Scores]:
    """The graph, with padded batches."""
    import openvino
    from tokenizers import Tokenizer

    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = [values["id2label"][str(number)] for number in range(len(values["id2label"]))]
    model = openvino.Core().compile_model(folder / "onnx" / "model.onnx", "CPU")
    inputs = [each.any_name for each in model.inputs]
    own = threading.local()

    def scores(texts: list[str]) -> Scores:
        if not hasattr(own, "tokenizer"):
            own.request = model.create_infer_request()
            own.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            own.tokenizer.enable_padding(pad_id=values["pad_token_id"])
            own.tokenizer.enable_truncation(values["max_position_embeddings"])
        found = own.tokenizer.encode_batch(texts)
        given = {
            "input_ids": [each.ids for each in found],
            "attention_mask": [each.attention_mask for each in found],
            "token_type_ids": [each.type_ids for each in found],
        }
        logits = own.request.infer({name: np.array(given[name], dtype=np.int64) for name in inputs})[0]
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        return [dict(zip(names, row.tolist(), strict=True)) for row in shares]

    return scores


def tfidf(table: Path) -> Callable[[list[str]], Scores]:
    """The regression, its strength chosen by five folds; of characters where texts are not ASCII."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline

    with table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    texts = [row["text"] for row in rows]
    by = {"token_pattern": r"(?u)\b\w+\b"} if "".join(texts[:1000]).isascii() else {"analyzer": "char"}
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, **by)
    model = make_pipeline(features, LogisticRegressionCV(Cs=[1, 3, 10, 30], cv=5, max_iter=1000))
    model.fit(texts, [row["label"] for row in rows])
    names = [str(name) for name in model.classes_]
    return lambda some: [dict(zip(names, row, strict=True)) for row in model.predict_proba(some).tolist()]


KINDS = {"transformers": transformers_pipeline, "openvino": openvino_graph, "tfidf": tfidf}


def answer(model: Callable[[list[str]], Scores], texts: Path, answers: Path) -> None:
    """Write what a model says of a file of texts, as `brimful predict` would."""
    given = [json.loads(line)["text"] for line in texts.read_text(encoding="utf-8").splitlines()]
    found = [(max(scores, key=scores.__getitem__), scores) for scores in model(given)]
    rows = [{"prediction": label, "probability": scores[label]} for label, scores in found]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(json.dumps({"texts": len(rows)}))


def main(kind: str, path: str, *files: str) -> None:
    model = KINDS[kind](Path(path))
    if files:
        answer(model, *map(Path, files))
        return
    app = FastAPI()

    @app.post("/v1/classify")
    def classify(body: dict[str, Any]) -> dict[str, Any]:
        texts = [body["text"]] if "text" in body else body["texts"]
        found = model(texts)
        return {
            "results": [{"prediction": max(each, key=each.__getitem__), "scores": each} for each in found]
        }

    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    # As uvicorn has it where it opens the socket itself; else the kernel delays answers by 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"serving {kind} on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning")).run([listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
