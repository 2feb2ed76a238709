"""What requests ask, checked."""

import codecs
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from brimful.serving.queue import LeftError, RefusedError

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
