"""The candidates of each distinct text: which of its words may be replaced, and by which words.

A word of one piece gets the K words that a masked language model finds likeliest in its place; every other
word gets its K nearest neighbours. A word without any candidate stays.

TinyBERT's code runs one forward pass for each word, scores the vocabulary at every position, and sorts it.
Here the copies of a text, each with one masked word, are packed with those of other texts; the head reads the
masked positions alone, and the K best are selected without a sort. The candidates are the same.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from brimful.augmentation.config import AugmentTableConfig
from brimful.augmentation.neighbours import Neighbours, Pieces
from brimful.augmentation.words import Words, token_ranges
from brimful.base.console import say, show_progress
from brimful.base.errors import BrimfulError
from brimful.base.types import Advance
from brimful.corpus.text.special_ids import mask_id, special_ids, unknown_id
from brimful.data.batch import PackedBatch, pack
from brimful.data.example_batches import TOKEN_GRAIN
from brimful.data.examples import AT_ONCE
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import open_fast_context
from brimful.model.heads import MaskedLMHead

NO_CANDIDATE = -1


class Replaceable(NamedTuple):
    """A word that may be replaced: its characters, begin and end, and its candidates, the best first."""

    begin: int
    end: int
    candidates: list[str]


@dataclass(frozen=True)
class CandidateTable:
    """The words of distinct texts, W in all, and their candidates. It takes about 60 bytes a word at K = 15.

    Attributes:
        numbers: the number of each distinct text.
        offsets: int64 (distinct + 1,), the words of each text, in its order.
        spans: int64 (W, 2), the characters of each word.
        choices: int32 (W, K), numbers of its candidates, the best first; then `NO_CANDIDATE`.
        vocabulary: the words that candidates are.
        facts: how many words got their candidates from where.
    """

    numbers: dict[str, int]
    offsets: np.ndarray
    spans: np.ndarray
    choices: np.ndarray
    vocabulary: Sequence[str]
    facts: dict[str, int]

    def replaceable(self, text: str) -> list[Replaceable]:
        """The words of a text that have candidates, in its order."""
        number = self.numbers[text]
        found = []
        for word in range(self.offsets[number], self.offsets[number + 1]):
            numbers = self.choices[word][self.choices[word] != NO_CANDIDATE]
            if len(numbers):
                begin, end = self.spans[word].tolist()
                found.append(Replaceable(begin, end, [self.vocabulary[index] for index in numbers]))
        return found


def find_candidates(texts: Sequence[str], config: AugmentTableConfig, device: torch.device) -> CandidateTable:
    """The candidates of texts.

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
    spans_of_text = [words.spans(text) for text in texts]
    offsets = np.cumsum([0, *map(len, spans_of_text)])
    spans = np.concatenate([*spans_of_text, np.empty((0, 2), np.int64)])
    found: list[str] = []
    for text, its in zip(texts, spans_of_text, strict=True):
        found += [text[begin:end] for begin, end in its.tolist()]
    choices = np.full((len(found), config.choices), NO_CANDIDATE, dtype=np.int32)
    vocabulary: dict[str, int] = {}

    def number(word: str) -> int:
        return vocabulary.setdefault(word, len(vocabulary))

    asked = np.zeros(len(found), dtype=bool)  # of the masked LM
    if head is None:
        say(f"{folder} has no masked-LM head: all words get neighbours by their vectors")
    else:
        tokens, places, rows = _words_of_one_piece(texts, spans_of_text, pieces)
        length = folder.text_length(encoder.config)
        model = CandidateModel(encoder.to(device), head.to(device), pieces, length, device)
        with show_progress("augment: words of one piece", len(rows)) as advance:
            best = model.best(tokens, places, config.choices, advance)
        numbers = np.full(len(pieces.texts) + 1, NO_CANDIDATE, dtype=np.int32)  # the last for no piece
        for piece in np.unique(best[best >= 0]).tolist():
            numbers[piece] = number(pieces.texts[piece])
        choices[rows] = numbers[best]
        asked[rows] = True
    others = np.flatnonzero(~asked).tolist()
    if others:
        distinct = list(dict.fromkeys(found[row] for row in others))
        frequent = [word for word, _ in Counter(found).most_common()]
        neighbours = Neighbours(encoder.word_embeddings, pieces, frequent)
        nearest = dict(zip(distinct, neighbours.nearest(distinct, config.choices), strict=True))
        for row in others:
            its_words = nearest[found[row]]
            choices[row, : len(its_words)] = [number(word) for word in its_words]
    has_some = choices[:, 0] != NO_CANDIDATE
    facts = {
        "masked_lm": int((asked & has_some).sum()),
        "neighbours": int((~asked & has_some).sum()),
        "without_candidates": int((~has_some).sum()),
    }
    numbers_of_texts = {text: place for place, text in enumerate(texts)}
    return CandidateTable(numbers_of_texts, offsets, spans, choices, list(vocabulary), facts)


def _words_of_one_piece(
    texts: Sequence[str], spans_of_text: Sequence[np.ndarray], pieces: Pieces
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """The tokens of each text, the places of its words of one piece, and the numbers of these words."""
    tokenizer = pieces.tokenizer
    unknown = [piece for piece in (special_ids(tokenizer).unk, unknown_id(tokenizer)) if piece is not None]
    tokens, places, rows, before = [], [], [np.zeros(0, np.int64)], 0
    for start in range(0, len(texts), AT_ONCE):
        encodings = tokenizer.encode_batch(texts[start : start + AT_ONCE], add_special_tokens=False)
        for index, encoding in enumerate(encodings, start):
            ids = np.array(encoding.ids, dtype=np.int32)
            characters = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            spans = spans_of_text[index]
            found = token_ranges(texts[index], characters, ids, spans, pieces.continues)
            single = np.flatnonzero((found[:, 0] >= 0) & (found[:, 1] - found[:, 0] == 1))
            single = single[~np.isin(ids[found[single, 0]], unknown)]
            tokens.append(ids)
            places.append(found[single, 0])
            rows.append(before + single)
            before += len(spans)
    return tokens, places, np.concatenate(rows)


TOKENS = {"cpu": 2048, "cuda": 16_384}
"""Tokens in a forward pass, by the type of the device."""


class CandidateModel:
    """A masked language model that proposes words.

    Args:
        pieces: of the encoder's tokenizer.
        max_length: the longest sequence; of a longer text the model sees what is around the word.
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
        self.begin, self.end = np.array([ids.cls], np.int32), np.array([ids.sep], np.int32)
        size = encoder.config.vocabulary_size
        words = np.zeros((2, size), dtype=bool)  # a word behind a space is replaced by one with that space
        words[0, : len(pieces.texts)] = pieces.words & ~pieces.spaced
        words[1, : len(pieces.texts)] = pieces.words & pieces.spaced
        self._barred = torch.zeros(2, size, dtype=encoder.embedding.weight.dtype, device=device)
        self._barred[torch.from_numpy(~words).to(device)] = -torch.inf

    def sequence(self, text: np.ndarray, place: int) -> tuple[np.ndarray, int]:
        """The ids of a text whose token `place` is masked, and where the mask is."""
        room = self.max_length - 2
        start = min(max(0, place - room // 2), max(0, len(text) - room))
        masked = text[start : start + room].copy()
        masked[place - start] = self.mask
        return np.concatenate([self.begin, masked, self.end]), 1 + place - start

    def best(
        self,
        texts: Sequence[np.ndarray],
        places: Sequence[np.ndarray],
        choices: int,
        advance: Advance | None = None,
    ) -> np.ndarray:
        """The likeliest pieces that are words, the best first.

        Args:
            texts: int32 ids of each text, without special tokens.
            places: of each text, the tokens to mask, one at a time.
            choices: how many pieces to find.
            advance: called after each word.

        Returns:
            int32 (words, choices), in the order of texts and places; -1 where there are fewer words.
        """
        found = np.full((sum(map(len, places)), choices), -1, dtype=np.int32)
        total = sum(len(text) * len(its) for text, its in zip(texts, places, strict=True))
        products, done = open_fast_context("products", self.device, total, "fp32"), 0
        with torch.inference_mode():
            for batch, kinds in self._batches(texts, places):
                with products:
                    on_device = batch.to(self.device)
                    logits = self.head(self.encoder(on_device, output_slots=on_device.mlm_positions))
                barred = self._barred[torch.from_numpy(kinds).to(self.device)]
                best = (logits + barred).topk(min(choices, logits.shape[1]), dim=1)
                ids = torch.where(best.values > -torch.inf, best.indices, -1).int().cpu().numpy()
                found[done : done + len(ids), : ids.shape[1]] = ids
                done += len(ids)
                if advance is not None:
                    advance(len(ids))
        return found

    def _batches(
        self, texts: Sequence[np.ndarray], places: Sequence[np.ndarray]
    ) -> Iterator[tuple[PackedBatch, np.ndarray]]:
        """Packed copies with one mask each, and which masked pieces begin with a space, int64."""
        most = max(TOKENS.get(self.device.type, TOKENS["cpu"]), self.max_length)
        waiting: list[tuple[np.ndarray, int]] = []
        kinds: list[int] = []
        tokens = 0
        for text, its in zip(texts, places, strict=True):
            for place in its.tolist():
                ids, at = self.sequence(text, place)
                if tokens + len(ids) > most:
                    yield self._packed(waiting), np.array(kinds)
                    waiting, kinds, tokens = [], [], 0
                waiting.append((ids, at))
                kinds.append(int(self.pieces.spaced[text[place]]))
                tokens += len(ids)
        if waiting:
            yield self._packed(waiting), np.array(kinds)

    def _packed(self, sequences: list[tuple[np.ndarray, int]]) -> PackedBatch:
        ids, masks = zip(*sequences, strict=True)
        starts = np.cumsum([0, *map(len, ids)])
        grain = 1 if self.device.type == "cpu" else TOKEN_GRAIN
        slots = -(-int(starts[-1]) // grain) * grain
        batch = pack(ids, max_length=self.max_length, pad=self.encoder.config.pad_id, slots=slots)
        return replace(batch, mlm_positions=torch.from_numpy(starts[:-1] + np.array(masks)))
