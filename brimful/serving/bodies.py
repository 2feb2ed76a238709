"""What requests ask, checked; which of it a model takes; and the JSON that answers."""

import codecs
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from brimful.serving.batch_model import BatchModel
from brimful.serving.opened import abstain
from brimful.serving.queue import LeftError, QueuedRequest, QueuedText, RefusedError

MAX_BODY_BYTES = 8 << 20
TOO_LARGE = f"the body has more than {MAX_BODY_BYTES:,} bytes"
TOKEN_IDS = (
    "; token ids are not read, since a client's are of another tokenizer: send texts, as langchain's"
    " OpenAIEmbeddings does with check_embedding_ctx_length=False"
)


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    """What all bodies have."""

    model: str | None = None
    overflow: Literal["window", "truncate", "reject"] | None = None

    @property
    def given(self) -> str | list[str]:
        """The text, or the list of texts.

        Raises:
            RefusedError: they are in none of the forms, or in several.
        """
        raise NotImplementedError

    @property
    def second(self) -> list[str] | None:
        """The second text of each pair."""
        return None


class ClassifyBody(Body):
    """The body of /v1/classify."""

    text: str | None = None
    texts: list[str] | None = None
    text_b: str | None = None
    texts_b: list[str] | None = None
    abstain_below: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=1)] | None = None

    @property
    def given(self) -> str | list[str]:
        if self.text is not None and self.texts is None:
            return self.text
        if self.texts is not None and self.text is None:
            return self.texts
        named = "none" if self.text is None else "both"
        raise RefusedError(422, f"one of text and texts is needed, not {named}")

    @property
    def second(self) -> list[str] | None:
        lone = self.text_b is not None and self.text is None
        if lone or (self.texts_b is not None and self.texts is None):
            raise RefusedError(422, "text_b goes with text, and texts_b with texts")
        if self.text_b is not None:
            return [self.text_b]
        if self.texts_b is not None and self.texts is not None and len(self.texts_b) != len(self.texts):
            counts = f"{len(self.texts)} texts cannot be paired with {len(self.texts_b)} texts_b"
            raise RefusedError(422, counts)
        return self.texts_b


class EmbeddingsBody(Body):
    """The body of /v1/embeddings. OpenAI's clients may send `user`, which nothing reads."""

    input: str | list[str]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None

    @property
    def given(self) -> str | list[str]:
        return self.input


def decoded(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    """A body, checked.

    Raises:
        RefusedError: 400 if it is no JSON in UTF-8; 422 if it is not what is expected.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        found = decoder.decode(body)
        if any(body.count(b'"%s"' % name.encode()) > 1 for name in found.__struct_fields__):
            json.loads(body, object_pairs_hook=_refuse_twice)
    except msgspec.ValidationError as error:
        are_ids = any(f"got `{kind}` - at `$.input[" in str(error) for kind in ("int", "array"))
        raise RefusedError(422, f"{error}{TOKEN_IDS if are_ids else ''}") from None
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedError(
            400, f"the body is no JSON ({error}), or a text holds half a surrogate pair"
        ) from None
    return found


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    """Refuse a field that is there twice, of which msgspec would take the last."""
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RefusedError(422, f"{twice[0]} is there twice")


class BodyReader:
    """The body of a request, as its pieces arrive."""

    def __init__(self, receive: Callable[[], Any]) -> None:
        self._receive, self._has_ended = receive, False

    async def read(self) -> bytes:
        """All of it.

        Raises:
            RefusedError: 413.
            LeftError: the client has left.
        """
        body = bytearray()
        while not self._has_ended:
            body += await self._piece()
            if len(body) > MAX_BODY_BYTES:
                raise RefusedError(413, TOO_LARGE)
        return bytes(body)

    async def discard(self) -> None:
        """Read what is left of it."""
        with suppress(LeftError):
            while not self._has_ended:
                await self._piece()

    async def _piece(self) -> bytes:
        message = await self._receive()
        self._has_ended = not message.get("more_body", False)
        if message["type"] == "http.disconnect":
            raise LeftError
        return bytes(message.get("body", b""))


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
