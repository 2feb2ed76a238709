"""The candidates of each distinct text: which of its words may be replaced, and by which words.

A word of one piece gets the K words that a masked language model finds likeliest in its place; every other
word gets its K nearest neighbours. A word without any candidate stays.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from brimful.augmentation.candidate_model import CandidateModel
from brimful.augmentation.config import AugmentTableConfig
from brimful.augmentation.neighbours import Pieces, embedding_neighbours
from brimful.augmentation.words import Words, stop_words, token_ranges
from brimful.base.console import progress, say, warn
from brimful.base.errors import BrimfulError
from brimful.corpus.text.special_ids import special_ids, unknown_id
from brimful.corpus.words.word_lists import word_list
from brimful.data.examples import AT_ONCE
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import reads_token_types
from brimful.model.encoder import Encoder

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


class _TableMaker:
    """Fills in the candidates of texts, source by source."""

    def __init__(self, texts: Sequence[str], words: Words, choices: int) -> None:
        self.texts = list(dict.fromkeys(texts))
        self.spans_of_text = [words.spans(text) for text in self.texts]
        self.offsets = np.cumsum([0, *map(len, self.spans_of_text)])
        self.spans = np.concatenate([*self.spans_of_text, np.empty((0, 2), np.int64)])
        self.words: list[str] = []
        for text, spans in zip(self.texts, self.spans_of_text, strict=True):
            self.words += [text[begin:end] for begin, end in spans.tolist()]
        self.choices = np.full((len(self.words), choices), NO_CANDIDATE, dtype=np.int32)
        self.vocabulary = dict[str, int]()
        self.is_answered = np.zeros(len(self.words), dtype=bool)

    def ask_masked_lm(self, model: CandidateModel) -> None:
        """Give the words of one piece the likeliest words in their place."""
        tokens, places, rows = self._words_of_one_piece(model.pieces)
        with progress("augment: words of one piece", len(rows)) as advance:
            best = model.best(tokens, places, self.choices.shape[1], advance)
        numbers = np.full(len(model.pieces.texts) + 1, NO_CANDIDATE, dtype=np.int32)  # the last for no piece
        for piece in np.unique(best[best >= 0]).tolist():
            numbers[piece] = self._number(model.pieces.texts[piece])
        self.choices[rows] = numbers[best]
        self.is_answered[rows] = True

    def _words_of_one_piece(self, pieces: Pieces) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        """The tokens of each text, the places of its words of one piece, and the numbers of these words."""
        tokenizer = pieces.tokenizer
        unknown = [
            piece for piece in (special_ids(tokenizer).unk, unknown_id(tokenizer)) if piece is not None
        ]
        tokens, places, rows = [], [], [np.zeros(0, np.int64)]
        for start in range(0, len(self.texts), AT_ONCE):
            part = self.texts[start : start + AT_ONCE]
            encodings = tokenizer.encode_batch(part, add_special_tokens=False)
            for index, encoding in enumerate(encodings, start):
                ids = np.array(encoding.ids, dtype=np.int32)
                characters = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
                found = token_ranges(
                    self.texts[index], characters, ids, self.spans_of_text[index], pieces.continues
                )
                single = np.flatnonzero((found[:, 0] >= 0) & (found[:, 1] - found[:, 0] == 1))
                single = single[~np.isin(ids[found[single, 0]], unknown)]
                tokens.append(ids)
                places.append(found[single, 0])
                rows.append(self.offsets[index] + single)
        return tokens, places, np.concatenate(rows)

    def ask_neighbours(self, encoder: Encoder) -> None:
        """Give every word that has no candidates yet its nearest neighbours by an encoder's embeddings."""
        assert encoder.tokenizer is not None
        rows = np.flatnonzero(~self.is_answered).tolist()
        asked = list(dict.fromkeys(self.words[row] for row in rows))
        if not asked:
            return
        frequent = [word for word, _ in Counter(self.words).most_common()]
        neighbours = embedding_neighbours(encoder.word_embeddings, Pieces(encoder.tokenizer), frequent)
        nearest = dict(zip(asked, neighbours.nearest(asked, self.choices.shape[1]), strict=True))
        for row in rows:
            found = nearest[self.words[row]]
            self.choices[row, : len(found)] = [self._number(word) for word in found]

    def _number(self, word: str) -> int:
        return self.vocabulary.setdefault(word, len(self.vocabulary))

    def table(self) -> CandidateTable:
        """What was found."""
        has_some = self.choices[:, 0] != NO_CANDIDATE
        facts = {
            "masked_lm": int((self.is_answered & has_some).sum()),
            "neighbours": int((~self.is_answered & has_some).sum()),
            "without_candidates": int((~has_some).sum()),
        }
        numbers = {text: number for number, text in enumerate(self.texts)}
        return CandidateTable(numbers, self.offsets, self.spans, self.choices, list(self.vocabulary), facts)


def candidate_table(texts: Sequence[str], config: AugmentTableConfig, device: torch.device) -> CandidateTable:
    """The candidates of texts.

    Args:
        device: where the masked LM runs.

    Raises:
        BrimfulError: a folder, the stop words or the lexicon cannot be read, or an encoder has no tokenizer
            or does not fit.
    """
    words = words_to_replace(config)
    encoder, _ = load_pretrained(ModelFolder.open(config.encoder, "encoder"))
    if encoder.tokenizer is None:
        raise BrimfulError(f"{config.encoder} has no tokenizer.json; add it beside config.json")
    model = _masked_lm(config, device)
    made = _TableMaker(texts, words, config.choices)
    if model is not None:
        made.ask_masked_lm(model)
    made.ask_neighbours(encoder)
    return made.table()


def _masked_lm(config: AugmentTableConfig, device: torch.device) -> CandidateModel | None:
    """The masked LM that proposes words; None, with a line that says so, where the encoder has no head."""
    folder = ModelFolder.open(config.candidates or config.encoder, "encoder")
    encoder, head = load_pretrained(folder)
    if head is None:
        if config.candidates:
            raise BrimfulError(
                f"--candidates {config.candidates} has no masked-LM head: give one that has it"
            )
        say(
            f"{folder} has no masked-LM head: all words get neighbours by their vectors; --candidates DIR"
            " takes those of words of one piece from a masked LM"
        )
        return None
    if encoder.tokenizer is None:
        raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
    return CandidateModel(
        encoder.to(device),
        head.to(device),
        Pieces(encoder.tokenizer),
        max_length=folder.text_length(encoder.config),
        pair=reads_token_types(folder, encoder.config),
        device=device,
    )


def require_candidate_files(config: AugmentTableConfig) -> None:
    """Refuse what `candidate_table` cannot open, before it loads a model.

    Raises:
        BrimfulError: a folder holds no model, or a list of words cannot be read.
    """
    for folder in (config.encoder, config.candidates):
        if folder is not None:
            ModelFolder.open(folder, "encoder")
    words_to_replace(config)


def words_to_replace(config: AugmentTableConfig) -> Words:
    """What finds the words that may be replaced.

    Raises:
        BrimfulError: the stop words or the lexicon cannot be read.
    """
    lexicon, notes = word_list(config.lexicon, "lexicon") if config.lexicon else (None, [])
    for note in notes:
        warn(note)
    return Words(stop_words(config.stop_words), lexicon)
