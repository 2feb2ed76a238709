"""A tokenizer that extends another: every old piece keeps its id, new ones come after the last.

`extend` finds new pieces by continuing byte-pair encoding (Sennrich et al., 2016): texts are sequences of
old pieces, and the most frequent neighbours within a word are merged, repeatedly. The trainer of
`tokenizers` does it on texts in which each old piece is written as one character. For BPE the new merges
come after the old ones, so a text is first spelled as before; WordPiece takes the longest match, as
always. A word without a new piece keeps its tokens.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from brimful.base.errors import BrimfulError
from brimful.corpus.text.characters import IDEOGRAPHS, one_of
from brimful.corpus.text.special_ids import named_as, unknown_id
from brimful.corpus.text.tokenizer_pipelines import LONGEST_PIECE
from brimful.corpus.tokenize.vocabulary_training import thinned

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_CHARACTERS = 10_000_000
LEAST_FREQUENCY = 4
_FIRST = 0x10000
"""The character of piece 0; from here on no character is whitespace."""
_HAN = re.compile(one_of(IDEOGRAPHS))


def require_extensible(tokenizer: "Tokenizer") -> None:
    """Refuse a kind of tokenizer that `extend` does not know.

    Raises:
        BrimfulError: the tokenizer is neither WordPiece nor BPE.
    """
    if (kind := _state(tokenizer)["model"]["type"]) not in ("WordPiece", "BPE"):
        raise BrimfulError(f"a {kind} tokenizer cannot be extended, only WordPiece and BPE: leave out extend")


def extend(tokenizer: "Tokenizer", texts: Iterable[str], count: int) -> "Tokenizer":
    """A copy with up to `count` new pieces that are frequent in the texts; equal texts give an equal one.

    Reads 10 million characters at most, texts taken evenly. A new piece has at most four Han characters and
    occurs at least four times, and contains no text that the tokenizer cannot spell (its unknown token).

    Raises:
        BrimfulError: the tokenizer is neither WordPiece nor BPE.
    """
    from tokenizers import Tokenizer

    require_extensible(tokenizer)
    state = _state(tokenizer)
    model, vocabulary = state["model"], tokenizer.get_vocab()
    names = {index: piece for piece, index in vocabulary.items()}
    prefix = model.get("continuing_subword_prefix") or ""
    known, merges = dict(vocabulary), []
    for left, right in _merges(_as_characters(tokenizer, thinned(texts, MOST_CHARACTERS)), 2 * count):
        pair = [_join([names[index] for index in parts], prefix) for parts in (left, right)]
        name = _join(pair, prefix)
        if name not in known:
            if len(_HAN.findall(tokenizer.decode(left + right))) > LONGEST_PIECE:
                continue
            if len(known) == len(vocabulary) + count:
                break
            known[name] = max(names) + 1 + len(known) - len(vocabulary)
        if known.keys() >= set(pair):
            merges.append(pair)
    model["vocab"] = known  # with the added tokens, or there would be a gap before the new pieces
    if model["type"] == "BPE":
        model["merges"] += merges
    return named_as(Tokenizer.from_str(json.dumps(state)), tokenizer)


def spellings(old: "Tokenizer", new: "Tokenizer", where: str) -> dict[int, list[int]]:
    """The id of each piece that only `new` has, ascending, and the ids of the old pieces that spell it.

    The ids are empty where the old tokenizer cannot spell the piece.

    Args:
        where: what `old` belongs to, for messages.

    Raises:
        BrimfulError: a piece of `old` has another id in `new`, or none.
    """
    known, wanted = old.get_vocab(), new.get_vocab()
    lost = sum(wanted.get(piece) != index for piece, index in known.items())
    if lost:
        raise BrimfulError(
            f"the data was tokenised with another vocabulary than that of {where} ({lost:,} of its"
            f" {len(known):,} pieces have another id or none): prepare it with --tokenizer {where}"
        )
    unknown, of_model = unknown_id(old), new.get_vocab(with_added_tokens=False)
    spell = _speller(old)
    found = {}
    for piece in sorted(wanted.keys() - known.keys(), key=wanted.__getitem__):
        ids = spell(piece) if piece in of_model else old.encode(piece, add_special_tokens=False).ids
        found[wanted[piece]] = [index for index in ids if index != unknown]
    return found


def other_parts(old: "Tokenizer", new: "Tokenizer") -> list[str]:
    """Which parts of two tokenizers differ, vocabularies and special tokens aside."""
    one, other = _state(old), _state(new)
    for state in (one, other):
        state["model"] = {k: v for k, v in state["model"].items() if k not in ("vocab", "merges")}
    return [part for part in ("normalizer", "pre_tokenizer", "model") if one[part] != other[part]]


def _state(tokenizer: "Tokenizer") -> dict[str, Any]:
    return json.loads(tokenizer.to_str())


def _as_characters(tokenizer: "Tokenizer", texts: list[str]) -> list[str]:
    """The texts with each piece as one character, spaces between words and for unknown ones."""
    unknown = unknown_id(tokenizer)
    written = []
    for begin in range(0, len(texts), 1000):
        for encoding in tokenizer.encode_batch(texts[begin : begin + 1000], add_special_tokens=False):
            characters = []
            last = None
            for index, word in zip(encoding.ids, encoding.word_ids, strict=True):
                if word != last or word is None:
                    characters.append(" ")
                characters.append(" " if index == unknown else chr(_FIRST + index))
                last = word
            written.append("".join(characters))
    return written


def _merges(texts: list[str], most: int) -> Iterator[list[list[int]]]:
    """The pairs that byte-pair encoding merges, in its order, each side as the pieces it is made of."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    scratch = Tokenizer(models.BPE())
    scratch.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    alphabet = set().union(*texts) - {" "}
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + most,
        initial_alphabet=sorted(alphabet),
        min_frequency=LEAST_FREQUENCY,
        show_progress=False,
    )
    scratch.train_from_iterator(texts, trainer)
    for pair in _state(scratch)["model"]["merges"]:
        yield [[ord(character) - _FIRST for character in side] for side in pair]


def _join(pieces: list[str], prefix: str) -> str:
    """The piece that others make: play + ##ing -> playing."""
    first, *others = pieces
    return first + "".join(piece.removeprefix(prefix) for piece in others)


def _speller(tokenizer: "Tokenizer") -> Callable[[str], list[int]]:
    """A function that spells a vocabulary entry, which is normalised and marked with its place in a word."""
    from tokenizers import models

    model, vocabulary = _state(tokenizer)["model"], tokenizer.get_vocab(with_added_tokens=False)
    prefix: str = model["continuing_subword_prefix"] if model["type"] == "WordPiece" else ""
    within = tokenizer.model
    if prefix:
        inner = {piece.removeprefix(prefix): i for piece, i in vocabulary.items() if piece.startswith(prefix)}
        unknown = model["unk_token"]
        inner[unknown] = vocabulary[unknown]
        within = models.WordPiece(inner, unk_token=unknown, continuing_subword_prefix="")

    def spell(piece: str) -> list[int]:
        continues = bool(prefix) and piece.startswith(prefix)
        tokens = (within if continues else tokenizer.model).tokenize(piece.removeprefix(prefix))
        return [token.id for token in tokens]

    return spell
