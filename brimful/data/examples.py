"""Labelled or plain texts, encoded: what fine-tuning, distillation and inference read.

An example is one sequence. A text is one example, or several windows if it is longer than an example may be.
`example_batches` makes batches of examples, `example_stream` the micro-batches of training. Nothing here
imports torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy import ndarray
from tokenizers import Encoding, Tokenizer

from brimful.base.console import pluralise, warn
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.corpus.text.long_texts import WHOLE_TEXT_CHARACTERS, cut_text, require_tokenizable
from brimful.corpus.text.special_ids import truncation_side
from brimful.data.ragged import Ragged, list_ranges

TEXTS_AT_ONCE = 4096
"""Texts whose encodings are in memory at a time; a token takes 150 bytes there, and 5 in an example."""


@dataclass(frozen=True)
class Examples:
    """Encoded examples, special tokens included.

    Attributes:
        tokens: int32 ids of each example, each at most `max_length` long.
        segments: uint8 token types of each example.
        targets: the targets by name; empty for unlabelled text. Targets of examples are int64 or float32,
            (n,) or (n, C), or uint8 bits; targets of tokens are int64, ragged.
        max_length: the most tokens of an example.
        pad: the id of the padding token.
        texts: int64 (n,), ascending: the text of each example, where a text may have several windows.
            None: example i is text i.
        characters: int32 (tokens, 2) of each example: where each token begins and ends in its text (in the
            second text of a pair), and -1 for all other tokens. None where they are not needed.
        overlap: number of tokens that neighbouring windows of a text share; None: there are no windows.
        cut: number of texts that lost tokens: they are longer than `max_length` and not read in windows.
    """

    tokens: Sequence[ndarray] | Ragged
    segments: Sequence[ndarray] | Ragged
    targets: dict[str, ndarray | Ragged]
    max_length: int
    pad: int
    texts: ndarray | None = None
    characters: Ragged | None = None
    overlap: int | None = None
    cut: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def lengths(self) -> ndarray:
        """int64 (n,): tokens of each example."""
        if isinstance(self.tokens, Ragged):
            return self.tokens.lengths
        return np.array([len(ids) for ids in self.tokens], dtype=np.int64)

    @property
    def typed(self) -> bool:
        """Whether a token has another type than 0, as in pairs of texts."""
        # Parts may hold elements of no example. If all elements are 0, as usual, no example has another type.
        if isinstance(self.segments, Ragged) and not any(part.any() for part in self.segments.parts):
            return False
        return any(types.any() for types in self.segments)

    @cached_property
    def text_of_example(self) -> ndarray:
        """int64 (n,): the text of each example."""
        if self.texts is None:
            return np.arange(len(self))
        return self.texts

    @cached_property
    def first_of_text(self) -> ndarray:
        """int64 (texts,): the first example of each text."""
        return np.unique(self.text_of_example, return_index=True)[1]

    @cached_property
    def count_of_text(self) -> ndarray:
        """int64 (texts,): how many examples each text has."""
        return np.diff(np.append(self.first_of_text, len(self)))

    def take_texts(self, index: ndarray) -> "Examples":
        """Take all examples of the texts `index` (int64), in order; text i of the result is `index[i]`."""
        counts = self.count_of_text[index]
        chosen = list_ranges(self.first_of_text[index], counts)

        def take(values: Any) -> Any:
            if values is None:
                return None
            if isinstance(values, Ragged):
                return values.take(chosen)
            if isinstance(values, ndarray):
                return values[chosen]
            return [values[i] for i in chosen]

        texts = self.texts
        if texts is not None:
            texts = np.repeat(np.arange(len(index)), counts)  # numbered anew, in the order of `index`
        targets = {name: take(values) for name, values in self.targets.items()}
        tokens, segments, characters = take(self.tokens), take(self.segments), take(self.characters)
        return Examples(tokens, segments, targets, self.max_length, self.pad, texts, characters, self.overlap)

    @classmethod
    def chain(cls, parts: Sequence["Examples"]) -> "Examples":
        """Put the examples of all parts, which have the same targets, one after the other. Tokens stay where
        they are, also in a map of a file."""
        first, texts, begin = parts[0], list[ndarray](), 0
        for part in parts:
            texts.append(begin + part.text_of_example)
            begin += len(part.first_of_text)
        has_windows = any(part.texts is not None for part in parts)
        targets: dict[str, ndarray | Ragged] = {}
        for name, target in first.targets.items():
            values: Any = [part.targets[name] for part in parts]
            targets[name] = Ragged.chain(values) if isinstance(target, Ragged) else np.concatenate(values)
        return cls(
            tokens=Ragged.chain([Ragged.of(part.tokens, np.int32) for part in parts]),
            segments=Ragged.chain([Ragged.of(part.segments, np.uint8) for part in parts]),
            targets=targets,
            max_length=first.max_length,
            pad=first.pad,
            texts=np.concatenate(texts) if has_windows else None,
            overlap=first.overlap,
        )

    def mean_over_windows(self, outputs: ndarray) -> ndarray:
        """Average the outputs of examples (n, C) over the windows of each text: float32 (texts, C)."""
        if self.texts is None:
            return outputs
        # In float64: a sum of windows in float32 would depend on their order.
        total = np.add.reduceat(outputs, self.first_of_text, dtype=np.float64)
        return (total / self.count_of_text[:, None]).astype(np.float32)


def _shorten_long_texts(
    tokenizer: Tokenizer, texts: Sequence[str], tokens: int, whole: bool, where: Callable[[int], str]
) -> list[str]:
    """Cut very long texts to the characters that can become tokens of an example. The tokenizer truncates
    nothing yet.

    Args:
        whole: whether all tokens of a text matter: in windows, and in pairs, where the longer text is cut.
    """
    shortened = list(texts)
    for n, text in enumerate(texts):
        if isinstance(text, str) and len(text) > WHOLE_TEXT_CHARACTERS:
            if whole:
                require_tokenizable(text, where(n))
            else:
                shortened[n] = cut_text(tokenizer, text, tokens, where(n))
    return shortened


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    second: Sequence[str] | None = None,
    *,
    max_length: int,
    pad: int,
    overlap: int | None = None,
    characters: bool = False,
    targets: Mapping[str, ndarray] | None = None,
    where: Callable[[int], str] = "text {}".format,
) -> Examples:
    """Encode texts or pairs, special tokens included.

    A text without tokens (an empty text, with a tokenizer that adds no special tokens) is a single pad token.

    Args:
        overlap: None cuts texts at `max_length` tokens, on their `truncation_side`. Otherwise a longer text
            becomes windows of at most `max_length` tokens, and neighbours share `overlap` tokens of it. The
            windows of a pair divide its second text.
        characters: whether to keep the place of each token in its text.
        targets: the targets of each text, by name; every window of a text has them.
        where: returns the name of a text in messages, by its number from 0.

    Raises:
        BrimfulError: a text is not a string, holds half a surrogate pair, or has more characters than
            `long_texts.MAX_TEXT_CHARACTERS`; or windows of this length cannot overlap by so much, or a first
            text leaves its second no more room than the overlap.
    """
    room = max_length - tokenizer.num_special_tokens_to_add(second is not None)
    if overlap is not None and not 0 <= overlap < room:
        raise BrimfulError(f"overlap is {overlap}: windows of {max_length} tokens can share 0 to {room - 1}")
    truncation = tokenizer.truncation  # the caller's, to be restored
    tokenizer.no_padding()
    tokenizer.no_truncation()
    side = truncation_side(tokenizer)
    options: Values = {"direction": side}
    if overlap is not None:
        options = {"stride": overlap}
        if second is not None:
            options["strategy"] = "only_second"
    whole = overlap is not None or second is not None or (characters and side == "left")
    inputs: list[Any] = _shorten_long_texts(tokenizer, texts, max_length, whole, where)
    if second is not None:
        second = _shorten_long_texts(tokenizer, second, max_length, whole, where)
        inputs = list(zip(inputs, second, strict=True))
    # `encode_batch_fast` does not find the places of tokens in the texts.
    encode = tokenizer.encode_batch if characters else tokenizer.encode_batch_fast
    tokens, segments, places = list[Ragged](), list[Ragged](), list[Ragged]()
    counts = []  # of each text's windows
    cut = 0
    try:
        if overlap is not None and second is not None:
            _require_room(tokenizer, inputs, max_length, overlap, where)
        tokenizer.enable_truncation(max_length, **options)
        for start in range(0, max(len(inputs), 1), TEXTS_AT_ONCE):
            windows = list[Encoding]()
            for encoding in encode(inputs[start : start + TEXTS_AT_ONCE]):
                overflow = encoding.overflowing  # each access makes a new list
                windows.append(encoding)
                if overlap is not None:
                    counts.append(1 + len(overflow))
                    windows += overflow
                elif overflow:
                    cut += 1
            ids = [np.array(encoding.ids or [pad], dtype=np.int32) for encoding in windows]
            types = [np.array(encoding.type_ids or [0], dtype=np.uint8) for encoding in windows]
            tokens.append(Ragged.of(ids, np.int32))
            segments.append(Ragged.of(types, np.uint8))
            if characters:
                places.append(_locate_tokens(windows, second is not None))
    except TypeError as error:  # the tokenizer does not say which text it was
        for index, value in enumerate(inputs):
            for text in [value] if second is None else value:
                if not is_text(text):
                    raise BrimfulError(f"{where(index)} is not a Unicode string: {text!a:.60}") from error
        raise
    finally:
        tokenizer.no_truncation()
        if truncation is not None:
            tokenizer.enable_truncation(**truncation)
    targets = targets or {}
    text_of_window = None
    if sum(counts) > len(counts):
        text_of_window = np.repeat(np.arange(len(counts)), counts)
        targets = {name: values[text_of_window] for name, values in targets.items()}
    return Examples(
        tokens=Ragged.chain(tokens),
        segments=Ragged.chain(segments),
        targets=dict(targets),
        max_length=max_length,
        pad=pad,
        texts=text_of_window,
        characters=Ragged.chain(places) if characters else None,
        overlap=overlap,
        cut=cut,
    )


def _require_room(
    tokenizer: Tokenizer, pairs: Sequence[Any], max_length: int, overlap: int, where: Callable[[int], str]
) -> None:
    """Refuse a pair whose first text is so long that windows of the second would have no tokens besides the
    `overlap` that they share: `tokenizers` panics there. The tokenizer truncates nothing yet."""
    free = max_length - tokenizer.num_special_tokens_to_add(True) - overlap
    for start in range(0, len(pairs), TEXTS_AT_ONCE):
        part = pairs[start : start + TEXTS_AT_ONCE]
        firsts = tokenizer.encode_batch_fast([first for first, _ in part], add_special_tokens=False)
        for index, first in enumerate(firsts):
            # A pair that fits as a whole needs no windows.
            if len(first) >= free and len(tokenizer.encode(*part[index])) > max_length:
                raise BrimfulError(
                    f"{where(start + index)}: the first text has {len(first)} tokens, which leaves no room"
                    f" for windows of its second in {max_length}; raise max_length, or lower the overlap"
                )


def check_length(max_length: int, longest: int) -> None:
    """Refuse a length that leaves no room for a token between [CLS] and [SEP], or that is above `longest`.

    Args:
        longest: the most tokens of a sequence of the encoder.
    """
    if not 3 <= max_length <= longest:
        raise BrimfulError(f"max_length is {max_length}: it must be from 3 to the encoder's {longest}")


def warn_of_cut(cut: int, max_length: int, remedy: str) -> None:
    """Warn that texts in memory lost their ends, if any did, and say how to keep the ends.

    The warning does not count the texts: Python does not repeat equal warnings, so it appears once.
    """
    if cut:
        warn(f"texts of more than {max_length:,} tokens are cut there; {remedy}")


def warn_of_empty(texts: Sequence[str]) -> None:
    """Warn that texts in memory are empty, if any are. They are computed like all others."""
    empty = [number for number, text in enumerate(texts) if isinstance(text, str) and not text.strip()]
    if len(empty) == 1:
        warn(f"1 text (texts[{empty[0]}]) is empty")
    elif empty:
        warn(f"{pluralise(len(empty), 'text')} (texts[{empty[0]}], ...) are empty")


def _locate_tokens(encodings: Sequence[Encoding], second: bool) -> Ragged:
    """Return the place of each token in the text, or in the second text of a pair: `Examples.characters`."""
    places = []
    for encoding in encodings:
        offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
        offsets[[number != int(second) for number in encoding.sequence_ids]] = -1
        if not len(offsets):  # the single pad token of a text without tokens
            offsets = np.full((1, 2), -1, dtype=np.int32)
        places.append(offsets)
    return Ragged.of(places, np.int32, (2,))


def is_text(value: object) -> bool:
    """Whether a value is a string that can be written as UTF-8."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:  # half a surrogate pair
        return False
