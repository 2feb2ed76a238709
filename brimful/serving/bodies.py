"""What requests ask, checked."""

import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from brimful.batching.queue import RefusedError

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Asked(NamedTuple):
    """The texts of a request; `single`: it is one, and no list."""

    texts: list[str]
    second: list[str] | None
    single: bool


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    """What all bodies have."""

    inputs: str | list[str] | None = None
    model: str | None = None
    overflow: Literal["window", "truncate", "reject"] | None = None


class ClassifyBody(Body):
    """The body of /v1/classify; `inputs` is the form of routers."""

    text: str | None = None
    texts: list[str] | None = None
    text_b: str | None = None
    texts_b: list[str] | None = None
    abstain_below: Annotated[float, Meta(ge=0, le=1)] | None = None

    def asked(self) -> Asked:
        """The texts.

        Raises:
            RefusedError: they are in none of the forms, or in several.
        """
        given = {
            name: value for name in ("text", "texts", "inputs") if (value := getattr(self, name)) is not None
        }
        if len(given) != 1:
            raise RefusedError(
                422, f"one of text, texts and inputs is needed, not {' and '.join(given) or 'none'}"
            )
        if (self.text_b is not None and self.text is None) or (
            self.texts_b is not None and self.texts is None
        ):
            raise RefusedError(422, "text_b goes with text, and texts_b with texts")
        if self.inputs is not None and self.abstain_below is not None:
            raise RefusedError(422, "abstain_below goes with text or texts")
        (texts,) = given.values()
        if isinstance(texts, str):
            return Asked([texts], None if self.text_b is None else [self.text_b], True)
        if self.texts_b is not None and len(self.texts_b) != len(texts):
            raise RefusedError(422, f"{len(texts)} texts cannot be paired with {len(self.texts_b)} texts_b")
        return Asked(texts, self.texts_b, False)


class EmbeddingsBody(Body):
    """The body of /v1/embeddings. OpenAI's clients may send `user`, which nothing reads."""

    input: str | list[str] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None

    def asked(self) -> Asked:
        """The texts.

        Raises:
            RefusedError: there are none, or they are given twice.
        """
        if (self.input is None) == (self.inputs is None):
            raise RefusedError(422, "one of input and inputs is needed")
        texts = self.inputs if self.input is None else self.input
        return Asked([texts], None, True) if isinstance(texts, str) else Asked(texts or [], None, False)


def decoded(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    """A body, checked.

    Raises:
        RefusedError: 400 if it is no JSON in UTF-8; 422 if it is not what is expected, or holds half a
            surrogate pair.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RefusedError(422, str(error).replace("`", "")) from None
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        if _SURROGATE.search(body):
            raise RefusedError(422, "the body is no JSON, or a text holds half a surrogate pair") from None
        raise RefusedError(400, f"the body is no JSON: {error}") from None
