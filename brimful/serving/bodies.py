"""What requests ask, checked."""

import codecs
import json
import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from brimful.serving.queue import RefusedError

TOKEN_IDS = (
    "token ids are not read, since a client's are of another tokenizer: send texts, as langchain's"
    " OpenAIEmbeddings does with check_embedding_ctx_length=False"
)
WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "array": "a list",
    "object": "an object",
}
WORDS |= {"bool": "true or false", "null": "null"}
"""What clients call the kinds of JSON."""
LIMITS = {"<=": "at most", ">=": "at least"}
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
    top_k: Annotated[int, Meta(ge=1)] | None = None

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
        if self.inputs is not None and self.top_k is not None:
            raise RefusedError(422, "top_k goes with text or texts")
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
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        found = decoder.decode(body)
        if any(body.count(b'"%s"' % name.encode()) > 1 for name in found.__struct_fields__):
            json.loads(body, object_pairs_hook=_refuse_twice)
    except msgspec.ValidationError as error:
        raise RefusedError(422, in_words(str(error))) from None
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        if _SURROGATE.search(body):
            raise RefusedError(422, "the body is no JSON, or a text holds half a surrogate pair") from None
        raise RefusedError(400, f"the body is no JSON: {error}") from None
    return found


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    """Refuse a field that is there twice, of which msgspec would take the last."""
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RefusedError(422, f"{twice[0]} is there twice")


def in_words(error: str) -> str:
    """An error of msgspec as a client knows JSON: `input[0]: a text is wanted, not a number`."""
    what, _, where = error.replace("`", "").partition(" - at $")
    what = what.replace("Object contains unknown field", "no request has the field")
    if kinds := re.fullmatch(r"Expected ([\w| ]+), got (\w+)", what):
        wanted = [WORDS[kind] for kind in kinds[1].split(" | ") if kind != "null"]
        what = f"{' or '.join(wanted)} is wanted, not {WORDS[kinds[2]]}"
        if where.startswith(".input[") and kinds[2] in ("int", "array"):
            what += f"; {TOKEN_IDS}"
    elif limit := re.fullmatch(r"Expected \w+ ([<>]=) (\S+)", what):
        what = f"it must be {LIMITS[limit[1]]} {limit[2].removesuffix('.0')}"
    elif value := re.fullmatch("Invalid enum value (.*)", what):
        what = f"{value[1]} is none of its values"
    return f"{where.removeprefix('.')}: {what}" if where else what
