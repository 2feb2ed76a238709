"""The JSON that answers a request, from what the model says of its texts."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from brimful.prediction.served import abstain
from brimful.serving.bodies import ClassifyBody, EmbeddingsBody, RefusedError
from brimful.serving.models import Model, Result


def classified(model: Model, body: ClassifyBody, results: Sequence[Result], single: bool) -> Any:
    """The answer of /v1/classify."""
    if body.inputs is not None:
        routed = [_routed(model, result) for result in results]
        return routed[0] if single else routed
    rows = [result.value for result in results]
    if body.abstain_below is not None:
        rows = abstain(rows, body.abstain_below)
    about = ({"tokens": result.tokens, "windows": result.windows} | result.cut for result in results)
    return {
        "model": model.name,
        "results": [row | more for row, more in zip(rows, about, strict=True)],
        "usage": {"tokens": sum(result.tokens for result in results)},
    }


def _routed(model: Model, result: Result) -> Any:
    """What text-classification pipelines answer, and routers read: a distribution of labels, the likeliest
    first; or an envelope of spans."""
    row = result.value
    if "spans" in row:
        spans = [
            {"label": span["label"], "start": span["start"], "end": span["end"], "text": span["text"]}
            | {"score": span["probability"]}
            for span in row["spans"]
        ]
        return {"spans": spans, **result.cut, "model": model.name}
    scores = row["scores"] if "scores" in row else {"LABEL_0": row["value"]}
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    return [{"label": label, "score": score} for label, score in ranked]


def check_classify(model: Model, body: ClassifyBody) -> None:
    """Refuse what the model cannot answer.

    Raises:
        RefusedError: 422.
    """
    if model.encoder:
        raise RefusedError(422, f"{model.name} is an encoder, which gives vectors: post to /v1/embeddings")
    if body.abstain_below is not None and not model.abstains:
        raise RefusedError(422, f"abstain_below is for classification, and {model.name} does {model.task}")
    if body.inputs is not None and not (model.scored or model.task in ("regression", "token-classification")):
        raise RefusedError(
            422, f"inputs is for labels and spans, and {model.name} does {model.task}; send texts"
        )


def embedded(model: Model, body: EmbeddingsBody, results: Sequence[Result]) -> Any:
    """The answer of /v1/embeddings, in OpenAI's form."""
    vectors: list[np.ndarray] = [result.value for result in results]
    if body.dimensions is not None:
        cut = [vector[: body.dimensions] for vector in vectors]
        vectors = [vector / max(np.linalg.norm(vector), 1e-12) for vector in cut]
    as_base64 = body.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode()
            if as_base64
            else vector.tolist(),
        }
        | result.cut
        for index, (vector, result) in enumerate(zip(vectors, results, strict=True))
    ]
    tokens = sum(result.tokens for result in results)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model.name, "data": data, "usage": usage}


def check_embeddings(model: Model, body: EmbeddingsBody) -> None:
    """Refuse what the model cannot answer.

    Raises:
        RefusedError: 422.
    """
    if not model.encoder:
        raise RefusedError(422, f"{model.name} does {model.task} and gives no vectors: post to /v1/classify")
    if body.dimensions is not None and body.dimensions > model.width:
        raise RefusedError(422, f"dimensions is {body.dimensions}: {model.name} has {model.width}")
