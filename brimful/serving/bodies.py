"""What requests ask, checked, and how an error answers them."""

import re
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

Overflow = Literal["window", "truncate", "reject"]
_KINDS = {
    401: "unauthorized",
    404: "not_found",
    408: "timeout",
    429: "overloaded",
    500: "internal",
    503: "draining",
    504: "timeout",
}
B = TypeVar("B", bound=Struct)


class RefusedError(Exception):
    """Why a request gets no answer, in one line."""

    def __init__(self, status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = " ".join(message.split())
        self.headers = headers

    def body(self) -> bytes:
        """The JSON that says it."""
        kind = _KINDS.get(self.status, "invalid_request")
        error = {"message": self.message, "type": kind, "code": self.status}
        return msgspec.json.encode({"error": error})


class ClassifyBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of /v1/classify; `inputs` is the form of routers."""

    text: str | None = None
    texts: list[str] | None = None
    inputs: str | list[str] | None = None
    text_b: str | None = None
    texts_b: list[str] | None = None
    model: str | None = None
    overflow: Overflow | None = None
    abstain_below: Annotated[float, Meta(ge=0, le=1)] | None = None

    def read(self) -> "Texts":
        """The texts.

        Raises:
            RefusedError: they are in none of the forms, or in several.
        """
        given = [name for name in ("text", "texts", "inputs") if getattr(self, name) is not None]
        if len(given) != 1:
            also = f", not {' and '.join(given)}" if given else ""
            raise RefusedError(422, f"the body must have one of text, texts and inputs{also}")
        texts = self.text if self.text is not None else self.texts if self.texts is not None else self.inputs
        second = self.text_b if self.text is not None else self.texts_b
        if (self.text_b is not None or self.texts_b is not None) and second is None:
            raise RefusedError(422, "text_b goes with text, and texts_b with texts")
        if self.inputs is not None and (second is not None or self.abstain_below is not None):
            raise RefusedError(422, "inputs has neither second texts nor abstain_below; send text or texts")
        assert texts is not None
        if isinstance(texts, str):
            return Texts([texts], None if second is None else [str(second)], True)
        if second is not None and len(second) != len(texts):
            raise RefusedError(422, f"{len(texts)} texts cannot be paired with {len(second)} texts_b")
        return Texts(texts, None if second is None else list(second), False)


class EmbeddingsBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of /v1/embeddings."""

    input: str | list[str] | None = None
    inputs: str | list[str] | None = None
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    overflow: Overflow | None = None
    user: str | None = None
    """OpenAI's clients may send it; nothing reads it."""

    def read(self) -> "Texts":
        """The texts.

        Raises:
            RefusedError: there are none, or they are given twice.
        """
        if (self.input is None) == (self.inputs is None):
            raise RefusedError(422, "the body must have one of input and inputs")
        texts = self.input if self.input is not None else self.inputs
        return Texts([texts], None, True) if isinstance(texts, str) else Texts(texts or [], None, False)


class Texts(NamedTuple):
    """The texts of a request; `single`: it is one, and no list."""

    texts: list[str]
    second: list[str] | None
    single: bool


_DECODERS: dict[type[Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (ClassifyBody, EmbeddingsBody)
}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def decoded(kind: type[B], body: bytes) -> B:
    """A body, checked.

    Raises:
        RefusedError: 400 if it is no JSON in UTF-8; 422 if it is not what is expected, or holds half a surrogate
            pair.
    """
    try:
        found: B = _DECODERS[kind].decode(body)
        return found
    except msgspec.ValidationError as error:
        raise RefusedError(422, str(error).replace("`", "")) from None
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        if _SURROGATE.search(body):
            raise RefusedError(422, "the body is no JSON, or a text holds half a surrogate pair") from None
        raise RefusedError(400, f"the body is no JSON: {error}") from None
