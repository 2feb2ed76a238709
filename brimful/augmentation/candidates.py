"""Find the candidates of each distinct text: which of its words may be replaced, and by which words.

A word of one piece gets the K words that a masked language model finds likeliest in its place; every other
word gets its K nearest neighbours. A word without any candidate stays.

TinyBERT's code runs one forward pass for each word, scores the vocabulary at every position, and sorts it.
Here the copies of many texts, each with one masked word, are packed together; the head reads only the masked
positions, and the K best are selected without a sort. The candidates are the same.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy import ndarray

from brimful.augmentation.config import AugmentTableConfig
from brimful.augmentation.neighbours import Neighbours, Pieces
from brimful.augmentation.words import Words, find_token_ranges
from brimful.base.console import say, show_progress
from brimful.base.errors import BrimfulError
from brimful.base.types import Advance
from brimful.corpus.text.special_ids import mask_id, special_ids, unknown_id
from brimful.data.batch import PackedBatch, pack
from brimful.data.example_batches import TOKEN_GRAIN
from brimful.data.examples import TEXTS_AT_ONCE
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import open_fast_context
from brimful.model.heads import MaskedLMHead

NO_CANDIDATE = -1


class Replaceable(NamedTuple):
    """A word that may be replaced: characters `begin` to `end`, and its candidates, the best first."""

    begin: int
    end: int
    candidates: list[str]


@dataclass(frozen=True)
class CandidateTable:
    """The words of distinct texts, W in all, and their candidates. It takes about 60 bytes a word at K = 15.

    Attributes:
        numbers: the number of each distinct text.
        offsets: int64 (distinct + 1,), where the words of each text begin in `spans` and `choices`.
        spans: int64 (W, 2), the characters of each word.
        choices: int32 (W, K), indices in `vocabulary` of its candidates, the best first; then `NO_CANDIDATE`.
        vocabulary: all candidates.
        facts: numbers of words by the source of their candidates.
    """

    numbers: dict[str, int]
    offsets: ndarray
    spans: ndarray
    choices: ndarray
    vocabulary: Sequence[str]
    facts: dict[str, int]

    def replaceable(self, text: str) -> list[Replaceable]:
        """Return the words of a text that have candidates, in its order."""
        number = self.numbers[text]
        words = []
        for word in range(self.offsets[number], self.offsets[number + 1]):
            choices = self.choices[word][self.choices[word] != NO_CANDIDATE]
            if len(choices):
                begin, end = self.spans[word].tolist()
                words.append(Replaceable(begin, end, [self.vocabulary[index] for index in choices]))
        return words


def find_candidates(texts: Sequence[str], config: AugmentTableConfig, device: torch.device) -> CandidateTable:
    """Find the candidates of the words of texts.

    Args:
        device: where the masked LM runs.

    Raises:
        BrimfulError: the folder, the stop words or the lexicon cannot be read, or the encoder has no
            tokenizer.
    """
    words = Words.read(config.stop_words, config.lexicon)
    folder = ModelFolder.open(config.encoder, "encoder")
    encoder, head = load_pretrained(folder)
    if encoder.tokenizer is None:
        raise BrimfulError(f"{config.encoder} has no tokenizer.json; add it beside config.json")
    pieces = Pieces(encoder.tokenizer)
    texts = list(dict.fromkeys(texts))
    spans_of_texts = [words.spans(text) for text in texts]
    words_of_texts = []
    for text, spans in zip(texts, spans_of_texts, strict=True):
        words_of_texts += [text[begin:end] for begin, end in spans.tolist()]
    choices = np.full((len(words_of_texts), config.choices), NO_CANDIDATE, dtype=np.int32)
    vocabulary: dict[str, int] = {}

    def number_candidate(word: str) -> int:
        return vocabulary.setdefault(word, len(vocabulary))

    from_model = np.zeros(len(words_of_texts), dtype=bool)  # the words that the masked LM proposes for
    if head is None:
        say(f"{folder} has no masked-LM head: all words get neighbours by their vectors")
    else:
        tokens, places, rows = _find_words_of_one_piece(texts, spans_of_texts, pieces)
        length = folder.text_length(encoder.config)
        model = CandidateModel(encoder.to(device), head.to(device), pieces, length, device)
        with show_progress("augment: words of one piece", len(rows)) as advance:
            best = model.best(tokens, places, config.choices, advance)  # (rows, choices), -1 for no piece
        numbers = np.full(len(pieces.texts) + 1, NO_CANDIDATE, dtype=np.int32)  # its last entry is for -1
        for piece in np.unique(best[best >= 0]).tolist():
            numbers[piece] = number_candidate(pieces.texts[piece])
        choices[rows] = numbers[best]
        from_model[rows] = True
    others = np.flatnonzero(~from_model).tolist()
    if others:
        frequent = [word for word, _ in Counter(words_of_texts).most_common()]
        neighbours = Neighbours(encoder.word_embeddings, pieces, frequent)
        nearest = neighbours.nearest([words_of_texts[row] for row in others], config.choices)
        for row, words_near in zip(others, nearest, strict=True):
            choices[row, : len(words_near)] = list(map(number_candidate, words_near))
    has_candidates = choices[:, 0] != NO_CANDIDATE
    return CandidateTable(
        numbers={text: number for number, text in enumerate(texts)},
        offsets=np.cumsum([0, *map(len, spans_of_texts)]),
        spans=np.concatenate([*spans_of_texts, np.empty((0, 2), np.int64)]),
        choices=choices,
        vocabulary=list(vocabulary),
        facts={
            "masked_lm": int((from_model & has_candidates).sum()),
            "neighbours": int((~from_model & has_candidates).sum()),
            "without_candidates": int((~has_candidates).sum()),
        },
    )


def _find_words_of_one_piece(
    texts: Sequence[str], spans_of_texts: Sequence[ndarray], pieces: Pieces
) -> tuple[list[ndarray], list[ndarray], ndarray]:
    """Return the tokens of each text, the places of its words of one piece, and the rows of these words."""
    tokenizer = pieces.tokenizer
    # A tokenizer with bytes for everything may still have an unknown token by name.
    unknown = [unknown_id(tokenizer)]
    if (unk := special_ids(tokenizer).unk) is not None:
        unknown.append(unk)
    tokens, places, rows = [], [], [np.zeros(0, np.int64)]
    first_row = 0
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        encodings = tokenizer.encode_batch(texts[start : start + TEXTS_AT_ONCE], add_special_tokens=False)
        for index, encoding in enumerate(encodings, start):
            ids = np.array(encoding.ids, dtype=np.int32)
            characters = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            spans = spans_of_texts[index]
            ranges = find_token_ranges(texts[index], characters, ids, spans, pieces.continues)
            single = np.flatnonzero((ranges[:, 0] >= 0) & (ranges[:, 1] - ranges[:, 0] == 1))
            single = single[~np.isin(ids[ranges[single, 0]], unknown)]
            tokens.append(ids)
            places.append(ranges[single, 0])
            rows.append(first_row + single)
            first_row += len(spans)
    return tokens, places, np.concatenate(rows)


TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Tokens in a forward pass, by the type of the device."""


class CandidateModel:
    """A masked language model that proposes words.

    Args:
        pieces: the pieces of the encoder's tokenizer.
        max_length: the longest sequence; the model sees the part of a longer text around the word.
        device: where encoder and head are. They compute in their own format: in a shorter one, candidates
            that are nearly alike may swap.
    """

    def __init__(
        self, encoder: Encoder, head: MaskedLMHead, pieces: Pieces, max_length: int, device: torch.device
    ) -> None:
        self.encoder, self.head = encoder.eval(), head.eval()
        self.pieces, self.max_length, self.device = pieces, max_length, device
        self.mask = mask_id(pieces.tokenizer)
        ids = special_ids(pieces.tokenizer)
        self.begin, self.end = np.array([[ids.cls], [ids.sep]], dtype=np.int32)
        # A word behind a space (row 1) is replaced by one with that space, any other by one without it.
        words = np.stack([pieces.words & ~pieces.spaced, pieces.words & pieces.spaced])
        shape = 2, encoder.config.vocabulary_size
        self._barred = torch.full(shape, -torch.inf, dtype=encoder.embedding.weight.dtype)
        self._barred[:, : len(pieces.texts)][torch.from_numpy(words)] = 0
        self._barred = self._barred.to(device)

    def sequence(self, text: ndarray, place: int) -> tuple[ndarray, int]:
        """Return the ids of a text whose token `place` is masked, and where the mask is."""
        room = self.max_length - 2  # for the begin and end tokens
        start = min(max(0, place - room // 2), max(0, len(text) - room))
        masked = text[start : start + room].copy()
        masked[place - start] = self.mask
        return np.concatenate([self.begin, masked, self.end]), 1 + place - start

    def best(
        self, texts: Sequence[ndarray], places: Sequence[ndarray], choices: int, advance: Advance
    ) -> ndarray:
        """Find the likeliest pieces that are words, the best first.

        Args:
            texts: int32 ids of each text, without special tokens.
            places: the tokens of each text to mask, one at a time.
            choices: how many pieces to find.
            advance: called after each word.

        Returns:
            int32 (words, choices), in the order of texts and places; -1 where there are fewer words.
        """
        pieces = np.full((sum(map(len, places)), choices), -1, dtype=np.int32)
        # Each text is read once for each of its masked tokens.
        total = sum(len(text) * len(masks) for text, masks in zip(texts, places, strict=True))
        products, done = open_fast_context("products", self.device, total, "fp32"), 0
        with torch.inference_mode():
            for batch, kinds in self._batches(texts, places):
                with products:
                    on_device = batch.to(self.device)
                    logits = self.head(self.encoder(on_device, output_slots=on_device.mlm_positions))
                barred = self._barred[torch.from_numpy(kinds).to(self.device)]  # (masks, vocabulary)
                best = (logits + barred).topk(min(choices, logits.shape[1]), dim=1)
                ids = torch.where(best.values > -torch.inf, best.indices, -1).int().cpu().numpy()
                pieces[done : done + len(ids), : ids.shape[1]] = ids
                done += len(ids)
                advance(len(ids))
        return pieces

    def _batches(
        self, texts: Sequence[ndarray], places: Sequence[ndarray]
    ) -> Iterator[tuple[PackedBatch, ndarray]]:
        """Yield packed copies with one mask each, and which masked pieces begin with a space, int64."""
        max_tokens = max(TOKENS.get(self.device.type, TOKENS["cpu"]), self.max_length)
        waiting: list[tuple[ndarray, int, int]] = []
        tokens = 0
        for text, places_of_text in zip(texts, places, strict=True):
            for place in places_of_text.tolist():
                ids, mask_place = self.sequence(text, place)
                if tokens + len(ids) > max_tokens:
                    yield self._packed(waiting)
                    waiting, tokens = [], 0
                waiting.append((ids, mask_place, int(self.pieces.spaced[text[place]])))
                tokens += len(ids)
        if waiting:
            yield self._packed(waiting)

    def _packed(self, copies: list[tuple[ndarray, int, int]]) -> tuple[PackedBatch, ndarray]:
        ids, masks, kinds = zip(*copies, strict=True)
        starts = np.cumsum([0, *map(len, ids)])
        grain = 1 if self.device.type == "cpu" else TOKEN_GRAIN
        slots = -(-int(starts[-1]) // grain) * grain
        batch = pack(ids, max_length=self.max_length, pad=self.encoder.config.pad_id, slots=slots)
        positions = torch.from_numpy(starts[:-1] + np.array(masks))
        return replace(batch, mlm_positions=positions), np.array(kinds)
