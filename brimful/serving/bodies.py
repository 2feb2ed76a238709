"""The bodies of requests: their fields, the checks of a model for them, and the JSON of the answers."""

import codecs
import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from brimful.base.types import Numbers, Values
from brimful.serving.batch_model import BatchModel
from brimful.serving.queue import LeftError, QueuedRequest, QueuedText, RefusedError
from brimful.serving.served_model import abstain

Texts = tuple[list[str], list[str] | None]
"""Texts, and the second texts of pairs."""
MAX_BODY_BYTES = 8 << 20
MAX_TEXTS = 2048
"""The most texts of a request."""
MAX_TEXT_CHARACTERS = 200_000
"""The most characters of a text that is read in windows, or of a text of a pair."""
MAX_SCORES = 250_000
"""The most scores of an answer: about 10 MB of JSON."""
DEFAULT_OVERLAP_TOKENS = 32
"""Tokens that neighbouring windows share if the model was trained without windows."""
TOO_LARGE = f"the body has more than {MAX_BODY_BYTES:,} bytes"
TOKEN_IDS_HINT = (
    "; token ids are not read, since a client's are of another tokenizer: send texts, as langchain's"
    " OpenAIEmbeddings does with check_embedding_ctx_length=False"
)


class CommonFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that all bodies have."""

    model: str | None = None
    overflow: Literal["window", "truncate", "reject"] | None = None


class ClassifyBody(CommonFields):
    """The body of /v1/classify."""

    text: str | None = None
    texts: list[str] | None = None
    text_b: str | None = None
    texts_b: list[str] | None = None
    abstain_below: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=1)] | None = None

    def texts_and_seconds(self) -> Texts:
        """Return the texts, and the second texts of pairs; refuse fields that are missing or contradict."""
        if (self.text is None) == (self.texts is None):
            message = f"one of text and texts is needed, not {'none' if self.text is None else 'both'}"
            raise RefusedError(422, message)
        if self.text is not None and self.texts_b is None:
            return [self.text], None if self.text_b is None else [self.text_b]
        if self.texts is not None and self.text_b is None:
            if self.texts_b is not None and len(self.texts_b) != len(self.texts):
                message = f"{len(self.texts)} texts cannot be paired with {len(self.texts_b)} texts_b"
                raise RefusedError(422, message)
            return self.texts, self.texts_b
        raise RefusedError(422, "text_b goes with text, and texts_b with texts")

    def check_model(self, model: BatchModel, texts: int) -> None:
        """Refuse a model that cannot answer so many texts with these fields."""
        if model.width:
            message = f"{model.name} is an encoder, which gives vectors: post to /v1/embeddings"
            raise RefusedError(422, message)
        fits = {"abstain_below": model.abstains, "top_k": bool(model.labels)}
        for field, is_possible in fits.items():
            if getattr(self, field) is not None and not is_possible:
                raise RefusedError(422, f"{model.name} does {model.task}; {field} is for classification")
        labels = len(model.labels)
        if texts * min(self.top_k or labels, labels) > MAX_SCORES:
            raise RefusedError(
                422,
                f"{texts:,} texts of {labels:,} labels have more scores than the {MAX_SCORES:,} of an answer:"
                " send fewer texts, or top_k for the likeliest labels alone",
            )

    def write_answer(self, model: BatchModel, texts: Sequence[QueuedText]) -> bytes:
        """Return the answer in JSON."""
        rows = [text.value for text in texts]
        if model.labels:
            rows = [text.value | {"scores": self._scores(model.labels, text)} for text in texts]
        if self.abstain_below is not None:
            rows = abstain(rows, self.abstain_below)
        results, tokens = [], 0
        for row, text in zip(rows, texts, strict=True):
            length = sum(text.lengths)
            tokens += length
            results.append(_as_raw(row | {"tokens": length, "windows": len(text.lengths)} | text.cut))
        return msgspec.json.encode({"model": model.name, "results": results, "usage": {"tokens": tokens}})

    def _scores(self, labels: Sequence[str], text: QueuedText) -> Numbers:
        """Return the scores of all labels in their order, or the `top_k` highest, the best first."""
        assert text.scores is not None
        order = np.arange(len(labels))
        if self.top_k is not None:
            order = np.argsort(-text.scores, kind="stable")[: self.top_k]
        names = [labels[index] for index in order.tolist()]
        return dict(zip(names, text.scores[order].tolist(), strict=True))


class EmbeddingsBody(CommonFields):
    """The body of /v1/embeddings, as OpenAI's clients send it. Nothing reads `user`."""

    input: str | list[str]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None

    def texts_and_seconds(self) -> Texts:
        if isinstance(self.input, str):
            return [self.input], None
        return self.input, None

    def check_model(self, model: BatchModel, texts: int) -> None:
        if not model.width:
            message = f"{model.name} does {model.task} and gives no vectors: post to /v1/classify"
            raise RefusedError(422, message)
        if self.dimensions is not None and self.dimensions > model.width:
            message = f"{model.name} has {model.width} dimensions, fewer than {self.dimensions}"
            raise RefusedError(422, message)

    def write_answer(self, model: BatchModel, texts: Sequence[QueuedText]) -> bytes:
        rows, tokens = [], 0
        for index, text in enumerate(texts):
            vector = text.value  # float32 (width,)
            if self.dimensions is not None:
                vector = vector[: self.dimensions]
                vector = vector / max(np.linalg.norm(vector), 1e-12)
            numbers = vector.tolist()
            if self.encoding_format == "base64":
                numbers = b64encode(vector.astype("<f4").tobytes()).decode()
            rows.append(_as_raw({"object": "embedding", "index": index, "embedding": numbers} | text.cut))
            tokens += sum(text.lengths)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return msgspec.json.encode({"object": "list", "model": model.name, "data": rows, "usage": usage})


Body = ClassifyBody | EmbeddingsBody


def _as_raw(row: Values) -> msgspec.Raw:
    # One call for all of a large answer would keep Python's lock from other threads until its end.
    return msgspec.Raw(msgspec.json.encode(row))


def decode_body(schema: type[Body], content: bytes) -> Body:
    """Return the body that JSON holds; refuse other bytes with 400, and wrong fields with 422."""
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        body = msgspec.json.decode(content, type=schema)
        # Text may look like a repeated name, so what this cheap look finds is parsed again.
        if any(content.count(b'"%s"' % name.encode()) > 1 for name in body.__struct_fields__):
            json.loads(content, object_pairs_hook=_refuse_repeats)
    except msgspec.ValidationError as error:
        message = str(error)
        if re.search(r"got `(int|array)` - at `\$\.input\[", message):
            message += TOKEN_IDS_HINT
        raise RefusedError(422, message) from None
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"the body is not JSON ({error}), or a text holds half a surrogate pair"
        raise RefusedError(400, message) from None
    return body


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> None:
    """Refuse a field that occurs twice, of which msgspec would take the last."""
    names = set()
    for name, _ in pairs:
        if name in names:
            raise RefusedError(422, f"{name} is there twice")
        names.add(name)


class BodyReader:
    """Reads the body of a request, which arrives in pieces."""

    def __init__(self, receive: Callable[[], Any]) -> None:
        self._receive = receive  # the function of ASGI that returns the next piece
        self._has_ended = False

    async def read(self) -> bytes:
        """Return the whole body; refuse a long one with 413."""
        body = bytearray()
        while not self._has_ended:
            body += await self._next_piece()
            if len(body) > MAX_BODY_BYTES:
                raise RefusedError(413, TOO_LARGE)
        return bytes(body)

    async def discard(self) -> None:
        """Read the body to its end, and keep nothing."""
        with suppress(LeftError):
            while not self._has_ended:
                await self._next_piece()

    async def _next_piece(self) -> bytes:
        message = await self._receive()
        self._has_ended = not message.get("more_body", False)
        if message["type"] == "http.disconnect":
            raise LeftError
        return bytes(message.get("body", b""))


def make_request(model: BatchModel, body: Body) -> QueuedRequest:
    """Return the request for the answers to a body; refuse texts that the model cannot read so."""
    texts, second = body.texts_and_seconds()
    if len(texts) > MAX_TEXTS:
        message = f"{len(texts):,} texts are more than the {MAX_TEXTS:,} of a request: divide it"
        raise RefusedError(422, message)
    body.check_model(model, len(texts))
    if model.pairs is not None and texts and model.pairs != (second is not None):
        fields = "text_b (or texts_b) beside text" if model.pairs else "text (or texts) alone"
        raise RefusedError(422, f"{model.name} reads {fields}")
    longest = max(map(len, (*texts, *(second or ()))), default=0)
    if longest > MAX_TEXT_CHARACTERS:
        message = f"a text has {longest:,} characters, over {MAX_TEXT_CHARACTERS:,}: divide it"
        raise RefusedError(413, message)
    served = model.served
    overlap, max_tokens = None, served.max_length
    if body.overflow == "window" and served.overlap is None:
        overlap = min(DEFAULT_OVERLAP_TOKENS, served.max_length // 4)
    elif body.overflow in ("window", None):
        overlap = served.overlap
    if overlap is not None:  # windows read all of a text
        max_tokens = MAX_TEXT_CHARACTERS
    # An estimate until texts are tokenized: two characters a token, and two markers.
    tokens = sum(min(len(text) // 2 + 2, max_tokens) for text in (*texts, *(second or ())))
    reject = body.overflow == "reject"
    return QueuedRequest(model, texts, second, overlap=overlap, reject=reject, tokens=tokens)
