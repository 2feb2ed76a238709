"""Which requests a model takes, and the JSON that answers them."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from brimful.serving.batch_model import BatchModel
from brimful.serving.bodies import Body, ClassifyBody, EmbeddingsBody
from brimful.serving.opened import abstain
from brimful.serving.queue import QueuedRequest, QueuedText, RefusedError

TEXTS, CHARACTERS = 2048, 200_000
"""The most texts of a request, and the most characters of a text."""
OVERLAP = 32
"""Tokens that windows share where the model was trained without windows."""
SCORES = 250_000
"""The most scores of an answer: about 10 MB."""


def request_of(model: BatchModel, body: Body) -> QueuedRequest:
    """A body's texts on their way to a model.

    Raises:
        RefusedError: 413 or 422: the model cannot read them so.
    """
    served, second = model.served, body.second
    texts = [body.given] if isinstance(body.given, str) else body.given
    if problem := _unfit(model, body):
        raise RefusedError(422, f"{model.name} {problem}")
    if len(texts) > TEXTS:
        raise RefusedError(422, f"{len(texts):,} texts are more than the {TEXTS:,} of a request: divide it")
    labels = len(model.labels)
    scores = min(getattr(body, "top_k", None) or labels, labels) * len(texts)
    if scores > SCORES:
        raise RefusedError(
            422,
            f"{len(texts):,} texts of {labels:,} labels have more scores than the {SCORES:,} of an"
            " answer: send fewer texts, or top_k for the likeliest labels alone",
        )
    if model.pairs is not None and texts and (second is not None) != model.pairs:
        need = "text_b (or texts_b) beside text" if model.pairs else "text (or texts) alone"
        raise RefusedError(422, f"{model.name} reads {need}")
    lengths = [len(text) for text in (*texts, *(second or ()))]
    if lengths and max(lengths) > CHARACTERS:
        raise RefusedError(413, f"a text has {max(lengths):,} characters, over {CHARACTERS:,}: divide it")
    overlap = served.overlap if body.overflow is None else None
    if body.overflow == "window":
        overlap = min(OVERLAP, served.max_length // 4) if served.overlap is None else served.overlap
    most = served.max_length if overlap is None else CHARACTERS
    tokens = sum(min(length // 2 + 2, most) for length in lengths)  # until they are counted
    reject = body.overflow == "reject"
    return QueuedRequest(model, texts, second, overlap=overlap, reject=reject, tokens=tokens)


def _unfit(model: BatchModel, body: Body) -> str | None:
    """What of a body a model cannot answer."""
    if isinstance(body, ClassifyBody):
        if model.width:
            return "is an encoder, which gives vectors: post to /v1/embeddings"
        if body.abstain_below is not None and not model.abstains:
            return f"does {model.task}; abstain_below is for classification"
        if body.top_k is not None and not model.labels:
            return f"does {model.task}; top_k is for classification"
    elif not model.width:
        return f"does {model.task} and gives no vectors: post to /v1/classify"
    elif isinstance(body, EmbeddingsBody) and (body.dimensions or 0) > model.width:
        return f"has {model.width} dimensions, fewer than {body.dimensions}"
    return None


def classified(model: BatchModel, body: ClassifyBody, texts: Sequence[QueuedText]) -> Any:
    """The answer of /v1/classify."""
    rows = [text.value for text in texts]
    if model.labels:
        rows = [text.value | {"scores": _scores(model, text, body.top_k)} for text in texts]
    if body.abstain_below is not None:
        rows = abstain(rows, body.abstain_below)
    counts = [sum(text.lengths) for text in texts]
    results = []
    for row, text, tokens in zip(rows, texts, counts, strict=True):
        about = {"tokens": tokens, "windows": len(text.lengths)}
        results.append(_written(row | about | text.cut))
    return {"model": model.name, "results": results, "usage": {"tokens": sum(counts)}}


def _scores(model: BatchModel, text: QueuedText, top_k: int | None) -> dict[str, float]:
    """The scores of all labels in their order, or of the likeliest, the best first."""
    assert text.scores is not None
    ranked = [] if top_k is None else np.argsort(-text.scores, kind="stable")[:top_k].tolist()
    values = text.scores.tolist()
    return {model.labels[index]: values[index] for index in ranked or range(len(values))}


def _written(row: Any) -> msgspec.Raw:
    """A row as JSON: a call that wrote all of a large answer at once would hold up other threads."""
    return msgspec.Raw(msgspec.json.encode(row))


def embedded(model: BatchModel, body: EmbeddingsBody, texts: Sequence[QueuedText]) -> Any:
    """The answer of /v1/embeddings, in OpenAI's form."""
    data = []
    for index, text in enumerate(texts):
        vector: np.ndarray = text.value
        if body.dimensions is not None:
            vector = vector[: body.dimensions]
            vector = vector / max(np.linalg.norm(vector), 1e-12)
        written = vector.tolist()
        if body.encoding_format == "base64":
            written = b64encode(vector.astype("<f4").tobytes()).decode()
        data.append(_written({"object": "embedding", "index": index, "embedding": written} | text.cut))
    tokens = sum(sum(text.lengths) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model.name, "data": data, "usage": usage}
