"""Train a tokenizer: WordPiece or byte-level BPE. Equal texts give an equal tokenizer.

The WordPiece trainer of `tokenizers` numbers the `##c` continuation characters in the order of a hash map,
and every later tie depends on those numbers: three runs gave three vocabularies. Here the alphabet and the
sorted continuation characters are given to it beforehand, and the model is rebuilt from its vocabulary. Its
BPE trainer breaks ties by the pieces' ids and starts from the 256 bytes, so it is deterministic as it is.

The order of the texts matters only where a sample is thinned to keep memory bounded.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, dropwhile
from typing import TYPE_CHECKING, Any, Literal, get_args

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.corpus.text.folding import Folding, normalizer
from brimful.corpus.text.tokenizer_pipelines import (
    LONGEST_PIECE,
    LONGEST_WORD,
    SPECIAL_TOKENS,
    Han,
    bert,
    byte_level,
    drop_long_words,
    with_nfkc,
    with_special_tokens,
    without_long_words,
)
from brimful.corpus.tokenize.alphabet import Alphabet
from brimful.corpus.tokenize.pieces import train_pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Model = Literal["wordpiece", "bpe"]
MODELS = get_args(Model)
SMALLEST_VOCABULARY = 64
# Of long Han runs hardly two are equal: the trainers' memory grows with the text, by about 30 and 100 bytes a
# character.
MOST_CHARACTERS_IN_RUNS = {"wordpiece": 30_000_000, "bpe": 10_000_000}
BYTES = 256


def smallest_vocabulary(model: Model) -> int:
    """The fewest entries that a trained vocabulary may have."""
    return SMALLEST_VOCABULARY + (BYTES if model == "bpe" else 0)


def train(
    texts: Iterable[str],
    size: int,
    *,
    model: Model = "wordpiece",
    lowercase: bool = False,
    han: Han = "characters",
    nfkc: bool = False,
) -> "Tokenizer":
    """Train a tokenizer of at most `size` entries. Ids 0 to 4 are [PAD] [UNK] [CLS] [SEP] [MASK].

    Give a sample: the distinct words are held in memory, and for WordPiece the normalised texts. Words of
    more than 100 characters (bytes, for BPE) are left out. With han="pieces", WordPiece learns from at most
    30 million characters and BPE from 10 million, texts taken evenly.

    Args:
        model: WordPiece as BERT has it, or byte-level BPE as RoBERTa (no text is unknown).
        lowercase: whether case is ignored, and accents where that loses no word (`text.folding`); the texts
            are then held in memory. Cased BPE keeps every byte of the text.
        han: whether each Chinese character is set apart, as BERT has it, or pieces of up to four may form.
        nfkc: whether the tokenizer normalises its input by NFKC before all else.

    Raises:
        BrimfulError: `size` is too small, the texts hold no character, or the model is another.
    """
    if model not in MODELS:
        raise BrimfulError(
            f"a {model} tokenizer cannot be trained here; train wordpiece or bpe, or give a finished "
            "tokenizer.json (of any model, Unigram too)"
        )
    smallest = smallest_vocabulary(model)
    if size < smallest:
        raise BrimfulError(f"a {model} vocabulary of {size} is too small; ask for at least {smallest}")
    if nfkc:
        return with_nfkc(train(_nfkc(texts), size, model=model, lowercase=lowercase, han=han))
    if han == "pieces":
        texts = thinned(texts, MOST_CHARACTERS_IN_RUNS[model])
    folding = None
    if lowercase:
        texts = list(texts)
        folding = Folding.of(texts)
        say(str(folding))
    if model == "bpe":
        tokenizer = _bpe(texts, size, folding, han)
    elif han == "pieces":
        tokenizer = train_pieces(texts, size, folding, special=SPECIAL_TOKENS)
    else:
        normal = normalizer(folding, han_apart=True)
        tokenizer = bert(_wordpiece(texts, size, normal), lowercase)
        tokenizer.normalizer = normal
    return with_special_tokens(tokenizer)


def _nfkc(texts: Iterable[str]) -> Iterator[str]:
    from tokenizers import normalizers

    return map(normalizers.NFKC().normalize_str, texts)


def thinned(texts: Iterable[str], most: int) -> list[str]:
    """Every text, or every 2nd, 4th, 8th ...: at most `most` characters, but at least one text."""
    kept: list[str] = []
    size, stride = 0, 1
    for number, text in enumerate(texts):
        if number % stride:
            continue
        kept.append(text)
        size += len(text)
        while size > most and len(kept) > 1:
            kept, stride = kept[::2], 2 * stride
            size = sum(map(len, kept))
    return kept


def _batches(texts: Iterable[str], size: int = 1000) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _empty() -> BrimfulError:
    return BrimfulError("cannot train a tokenizer: the texts are empty")


def _wordpiece(texts: Iterable[str], size: int, normal: Any) -> dict[str, int]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    counter = Alphabet(normal)
    cut = pre_tokenizers.BertPreTokenizer()
    sample = [without_long_words(text, cut) for batch in _batches(texts) for text in counter.read(batch)]
    alphabet, others = counter.choose((size - len(SPECIAL_TOKENS)) * 3 // 4)
    if not alphabet:
        raise _empty()
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
    scratch.pre_tokenizer = cut
    scratch.train_from_iterator(_batches(sample), trainer)
    vocabulary = scratch.get_vocab(with_added_tokens=False)
    for piece in chain.from_iterable([other, *counter.continuations([other])] for other in others):
        if len(vocabulary) >= size:
            break
        vocabulary[piece] = len(vocabulary)
    return vocabulary


def _bpe(texts: Iterable[str], size: int, folding: Folding | None, han: Han) -> "Tokenizer":
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
    visible = dropwhile(lambda text: not text.strip(), texts)
    if (first := next(visible, None)) is None:
        raise _empty()
    scratch.train_from_iterator(_batches(chain([first], visible)), trainer)
    trained = json.loads(scratch.to_str())["model"]
    found = sorted(trained["vocab"], key=trained["vocab"].__getitem__)
    if han == "pieces":
        found = [piece for piece in found if piece.isascii() or len(piece) <= 3 * LONGEST_PIECE][:size]
    vocabulary = {piece: number for number, piece in enumerate(found)}
    merges = [(left, right) for left, right in trained["merges"] if left + right in vocabulary]
    return byte_level(models.BPE(vocabulary, merges), folding, han)
