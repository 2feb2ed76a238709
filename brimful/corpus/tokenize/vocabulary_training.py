"""Train a tokenizer: WordPiece or byte-level BPE. Equal texts give an equal tokenizer.

The WordPiece trainer of `tokenizers` numbers the `##c` continuation characters in the order of a hash map,
and every later tie depends on those numbers: three runs gave three vocabularies. Here the trainer gets
the alphabet and the sorted continuation characters beforehand, and the model is rebuilt from its vocabulary.
The BPE trainer breaks ties by the pieces' ids and starts from the 256 bytes, so it is deterministic as it is.

The order of the texts matters only where a sample is thinned to keep memory bounded.
"""

import json
import unicodedata
from collections.abc import Iterable
from itertools import chain, dropwhile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.corpus.text.batches import batch_by_characters
from brimful.corpus.text.character_classes import SPACE, character_classes
from brimful.corpus.text.characters import BERT_HAN, code_points
from brimful.corpus.text.folding import Folding, normalizer
from brimful.corpus.text.tokenizer_pipelines import (
    LONGEST_PIECE,
    LONGEST_RUN,
    LONGEST_WORD,
    SPECIAL_TOKENS,
    Han,
    bert,
    byte_level,
    cut_han,
    drop_long_words,
    with_nfkc,
    with_special_tokens,
    without_long_words,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Model = Literal["wordpiece", "bpe"]
SMALLEST_VOCABULARY = 64
# Long Han runs rarely repeat, so memory grows with the text: by about 30 bytes a character for WordPiece and
# 100 for BPE.
MAX_CHARACTERS_IN_RUNS = {"wordpiece": 30_000_000, "bpe": 10_000_000}
BATCH_CHARACTERS = 1 << 20
BYTES = 256
# The alphabet covers this fraction of the text. Rarer characters get the entries that the trainer leaves.
ALPHABET_COVERAGE = 0.9998
ALPHABET_SHARE = 3 / 4
"""The alphabet takes at most this share of a vocabulary."""
MIN_FREQUENCY_OF_PIECES = 4
_ESCAPED = set("\\^-[]&~|")


def smallest_vocabulary(model: str) -> int:
    """Return the fewest entries that a trained vocabulary may have."""
    return SMALLEST_VOCABULARY + (BYTES if model == "bpe" else 0)


def train(
    texts: Iterable[str],
    size: int,
    *,
    model: Model | Literal["characters"] = "wordpiece",
    lowercase: bool = False,
    han: Han = "characters",
    nfkc: bool = False,
) -> "Tokenizer":
    """Train a tokenizer of at most `size` entries. Ids 0 to 4 are [PAD] [UNK] [CLS] [SEP] [MASK].

    Pass a sample: the distinct words, and for WordPiece the normalised texts, are held in memory. Words of
    more than 100 characters (bytes, for BPE) are left out. With han="pieces", WordPiece learns from at most
    30 million characters and BPE from 10 million, in evenly spaced texts.

    Args:
        size: the most entries.
        model: WordPiece as in BERT, byte-level BPE as in RoBERTa (which can encode any text), or single
            characters, the most frequent ones: for texts without words, such as proteins.
        lowercase: whether case is ignored, and accents where that loses no word (`text.folding`); the texts
            are then held in memory. Cased BPE keeps every byte of the text.
        han: whether each Chinese character is a piece, as in BERT, or pieces may have up to four.
        nfkc: whether the tokenizer normalises its input by NFKC before all else.

    Raises:
        BrimfulError: `size` is too small, or the texts hold no character.
    """
    from tokenizers import normalizers

    smallest = smallest_vocabulary(model)
    if size < smallest:
        raise BrimfulError(f"a {model} vocabulary of {size} is too small; ask for at least {smallest}")
    if nfkc:
        normalised = map(normalizers.NFKC().normalize_str, texts)
        return with_nfkc(train(normalised, size, model=model, lowercase=lowercase, han=han))
    if han == "pieces":
        texts = thin_out(texts, MAX_CHARACTERS_IN_RUNS[model])
    folding = None
    if lowercase:
        texts = list(texts)
        folding = Folding.of(texts)
        say(str(folding))
    if model == "bpe":
        tokenizer = _bpe(texts, size, folding, han)
    elif model == "characters":
        tokenizer = _characters(texts, size, folding)
    elif han == "pieces":
        tokenizer = train_pieces(texts, size, folding)
    else:
        normal = normalizer(folding, han_apart=True)
        tokenizer = bert(_wordpiece(texts, size, normal), normal)
    return with_special_tokens(tokenizer)


def thin_out(texts: Iterable[str], max_characters: int) -> list[str]:
    """Return every text, or every 2nd, 4th, 8th ...: up to `max_characters`, but at least one text."""
    sample = []
    size, stride = 0, 1
    for number, text in enumerate(texts):
        if number % stride:
            continue
        sample.append(text)
        size += len(text)
        while size > max_characters and len(sample) > 1:
            sample, stride = sample[::2], 2 * stride
            size = sum(map(len, sample))
    return sample


def _empty() -> BrimfulError:
    return BrimfulError("cannot train a tokenizer: the texts are empty")


class _Alphabet:
    """Counts the characters of texts, and notes which characters follow another within a word."""

    def __init__(self, normalizer: Any) -> None:
        self._normalizer = normalizer
        self._counts = np.zeros(0x110000, np.int64)
        self._continues = np.zeros(0x110000, bool)

    def read(self, texts: Iterable[str]) -> list[str]:
        """Normalise texts and count their characters; return the normalised texts."""
        normalised = [self._normalizer.normalize_str(text) for text in texts]
        codes = code_points("\n".join(normalised))
        if len(codes):
            self._counts += np.bincount(codes, minlength=len(self._counts))
            self._continues[codes[1:][character_classes()[codes[:-1]] != SPACE]] = True
        return normalised

    def choose(self, limit: int) -> tuple[list[str], list[str]]:
        """Return at most `limit` characters that cover the text, and the others, by falling frequency.

        Raises:
            BrimfulError: the texts hold no character.
        """
        self._counts[character_classes() == SPACE] = 0
        # By falling counts; equal counts by code point, so that equal texts give an equal tokenizer.
        order = np.argsort(-self._counts, kind="stable")[: np.count_nonzero(self._counts)]
        if not len(order):
            raise _empty()
        covered = np.cumsum(self._counts[order])
        size = min(int(np.searchsorted(covered, ALPHABET_COVERAGE * covered[-1])) + 1, limit)
        characters = list(map(chr, order.tolist()))
        return characters[:size], characters[size:]

    def continuations(self, characters: Iterable[str]) -> list[str]:
        """Return `##c` for each of the characters that can stand within a word, sorted."""
        return [f"##{c}" for c in sorted(characters) if self._continues[ord(c)] and _can_continue(c)]


def _can_continue(character: str) -> bool:
    """Whether BERT's pre-tokenizer leaves a character within a word."""
    if character.isascii():
        return character.isalnum()
    is_han = any(first <= ord(character) <= last for first, last in BERT_HAN)
    return not is_han and not unicodedata.category(character).startswith("P")


def _wordpiece(texts: Iterable[str], size: int, normal: Any) -> dict[str, int]:
    """Train a WordPiece vocabulary of BERT's kind on texts that `normal` normalises."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    counter = _Alphabet(normal)
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    sample = []
    for batch in batch_by_characters(texts, BATCH_CHARACTERS, len):
        for text in counter.read(batch):
            sample.append(without_long_words(text, pre_tokenizer))
    alphabet, others = counter.choose(int((size - len(SPECIAL_TOKENS)) * ALPHABET_SHARE))
    # The trainer gets the continuations as special tokens, so that their ids have this order.
    continuations = counter.continuations(alphabet)
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(size, len(SPECIAL_TOKENS) + len(alphabet) + len(continuations)),
        special_tokens=[*SPECIAL_TOKENS, *continuations],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        min_frequency=2,
        show_progress=False,
    )
    scratch = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD))
    scratch.pre_tokenizer = pre_tokenizer
    scratch.train_from_iterator(batch_by_characters(sample, BATCH_CHARACTERS, len), trainer)
    vocabulary = scratch.get_vocab(with_added_tokens=False)
    # Rare characters fill the vocabulary where the trainer found fewer pieces.
    for other in others:
        for piece in [other, *counter.continuations([other])]:
            if len(vocabulary) >= size:
                return vocabulary
            vocabulary[piece] = len(vocabulary)
    return vocabulary


def train_pieces(texts: Iterable[str], size: int, folding: Folding | None) -> "Tokenizer":
    """Train a WordPiece tokenizer whose pieces may hold several Chinese characters, without a post-processor.

    BERT sets every Han character apart, so a model must learn each word anew from its characters. Here runs
    of Han characters stay together and the vocabulary has their frequent pieces (不推荐, 服务态度): a text
    has fewer tokens, each with more meaning. The differences from BERT's WordPiece:

    - continuations have no `##`: a piece has one id wherever it stands, since Chinese has no spaces;
    - characters outside the alphabet are set apart, since one of them would make a whole run [UNK];
    - longer runs are cut at 32 characters, since longest match looks at every substring of a run; a piece has
      at most four characters, like nearly all Chinese words, and occurs at least four times.

    Args:
        size: the most entries; fewer where no more pieces are that frequent.
        folding: of case and accents; None keeps both.

    Raises:
        BrimfulError: the texts hold no character.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    normal = normalizer(folding, han_apart=False)
    counter = _Alphabet(normal)
    sample = counter.read(texts)
    alphabet, _ = counter.choose(int((size - len(SPECIAL_TOKENS)) * ALPHABET_SHARE))
    escaped = "".join(f"\\{c}" if c in _ESCAPED else c for c in sorted(alphabet))
    cuts = [
        pre_tokenizers.BertPreTokenizer(),
        cut_han(LONGEST_RUN),
        pre_tokenizers.Split(Regex(f"[^{escaped}]"), "isolated"),
    ]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, drop_long_words()])
    trainer = trainers.WordPieceTrainer(
        vocab_size=2 * size,  # pieces that are too long are removed afterwards
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(alphabet),
        limit_alphabet=len(alphabet),
        min_frequency=MIN_FREQUENCY_OF_PIECES,
        continuing_subword_prefix="",
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample, trainer)
    vocabulary = _select_short(tokenizer.get_vocab(with_added_tokens=False), LONGEST_PIECE, size)
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix=""))
    tokenizer.normalizer = normal
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.WordPiece(prefix="")
    return tokenizer


def _select_short(vocabulary: dict[str, int], max_length: int, size: int) -> dict[str, int]:
    """Number the first `size` pieces that are ASCII or have at most `max_length` characters."""
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    short = [piece for piece in pieces if piece.isascii() or len(piece) <= max_length]
    return {piece: number for number, piece in enumerate(short[:size])}


def _characters(texts: Iterable[str], size: int, folding: Folding | None) -> "Tokenizer":
    """Make a tokenizer whose tokens are the characters of words, without its post-processor."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    normal = normalizer(folding, han_apart=False)
    counter = _Alphabet(normal)
    for batch in batch_by_characters(texts, BATCH_CHARACTERS, len):
        counter.read(batch)
    frequent, others = counter.choose(size)
    pieces = [*SPECIAL_TOKENS, *frequent, *others][:size]
    vocabulary = dict(zip(pieces, range(len(pieces)), strict=True))
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normal
    cuts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _bpe(texts: Iterable[str], size: int, folding: Folding | None, han: Han) -> "Tokenizer":
    """Train byte-level BPE, without its post-processor."""
    from tokenizers import models, pre_tokenizers, trainers

    scratch = byte_level(models.BPE(), folding, han)
    scratch.pre_tokenizer = pre_tokenizers.Sequence([scratch.pre_tokenizer, drop_long_words()])
    trainer = trainers.BpeTrainer(
        vocab_size=size if han == "characters" else 2 * size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2,
        show_progress=False,
    )
    # Texts of only spaces would give a vocabulary of bytes without an error.
    visible = dropwhile(lambda text: not text.strip(), texts)
    first = next(visible, None)
    if first is None:
        raise _empty()
    scratch.train_from_iterator(batch_by_characters(chain([first], visible), BATCH_CHARACTERS, len), trainer)
    trained = json.loads(scratch.to_str())["model"]
    vocabulary = trained["vocab"]
    if han == "pieces":  # a Chinese character is three bytes
        vocabulary = _select_short(vocabulary, 3 * LONGEST_PIECE, size)
    merges = [tuple(sides) for sides in trained["merges"] if "".join(sides) in vocabulary]
    return byte_level(models.BPE(vocabulary, merges), folding, han)
