"""The candidates of each distinct text: which of its words may be replaced, and by which words.

A word of one piece gets the K words that a masked language model finds likeliest in its place; every other
word gets the K nearest by vectors. Words without any candidate are left out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from brimful.augmentation.cache import file_hashes, kept, text_hash
from brimful.augmentation.candidate_model import CandidateModel
from brimful.augmentation.config import CandidateConfig
from brimful.augmentation.neighbours import Neighbours, embedding_neighbours, read_vectors
from brimful.augmentation.pieces import Pieces
from brimful.augmentation.stop_words import stop_words
from brimful.augmentation.words import Words, token_ranges
from brimful.base.console import progress, say, warn
from brimful.base.errors import BrimfulError
from brimful.corpus.text.special_ids import special_ids, unknown_id
from brimful.corpus.words.word_lists import word_list
from brimful.data.examples import AT_ONCE
from brimful.data.ragged import Ragged
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.hf.reading import reads_token_types
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.runs.directory import model_files, named_files
from brimful.tables.columns import Column
from brimful.tasks.entries import Facts, Rows


@dataclass(frozen=True)
class CandidateTable:
    """R words of distinct texts that may be replaced.

    Attributes:
        numbers: int64 (texts,), the distinct text that each given text is.
        offsets: int64 (distinct + 1,), the words of each distinct text, in its order.
        spans: int32 (R, 2), the characters of each word.
        choices: int32 (R, K), numbers of its candidates, the best first; -1 where there are fewer.
        counts: int32 (R,), how many it has: at least one.
        candidates: the words that candidates are.
        facts: how many words got their candidates from where.
    """

    numbers: np.ndarray
    offsets: np.ndarray
    spans: np.ndarray
    choices: np.ndarray
    counts: np.ndarray
    candidates: Sequence[str]
    facts: dict[str, int]

    def rows(self, text: int) -> slice:
        """The words of a given text."""
        number = self.numbers[text]
        return slice(int(self.offsets[number]), int(self.offsets[number + 1]))

    def candidates_of(self, row: int) -> list[str]:
        """The candidates of a word, the best first."""
        return [self.candidates[code] for code in self.choices[row, : self.counts[row]]]


def candidate_table(
    texts: Sequence[str],
    config: CandidateConfig,
    encoder: str | Path,
    device: torch.device,
) -> CandidateTable:
    """The candidates of texts, made once (`tasks.cache`).

    Args:
        encoder: a run of pretraining, or a folder.
        device: where the masked LM runs.

    Raises:
        BrimfulError: a folder, the vectors, the stop words or the lexicon cannot be read, or an encoder has
            no tokenizer or does not fit.
    """
    folder = ModelFolder.open(encoder, "encoder")
    files = file_hashes(candidate_files(config, folder))
    key = {"candidates": text_hash(texts), "files": files, **config.settings}

    def build() -> tuple[Rows, Facts]:
        return _build(texts, config, folder, device)

    entry = kept(key, build)
    for line in entry.facts["lines"]:
        say(line)
    arrays = {name: values[0] for name, values in entry.columns.items()}
    return CandidateTable(
        **{name: arrays[name] for name in ("numbers", "offsets", "spans", "choices", "counts")},
        candidates=msgspec.json.decode(arrays["words"], type=list[str]),
        facts=dict(entry.facts["words"]),
    )


@dataclass(frozen=True)
class _Sources:
    """Where candidates come from, and lines that say so."""

    words: Words
    masked_lm: CandidateModel | None
    encoder: Encoder
    vectors: Neighbours | None
    lines: list[str]


def _sources(config: CandidateConfig, folder: ModelFolder, device: torch.device) -> _Sources:
    """
    Raises:
        BrimfulError: as `candidate_table`.
    """
    lexicon, notes = word_list(config.lexicon, "lexicon") if config.lexicon else (None, [])
    for note in notes:
        warn(note)
    words = Words(stop_words(config.stop_words), lexicon)
    vectors = read_vectors(config.vectors) if config.vectors else None
    encoder, head = load_pretrained(folder)
    if encoder.tokenizer is None:
        raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
    lines = []
    teller, its = folder, encoder
    if config.candidates:
        teller = ModelFolder.open(config.candidates, "encoder")
        its, head = load_pretrained(teller)
        if head is None:
            raise BrimfulError(
                f"--candidates {config.candidates} has no masked-LM head: give one that has it"
            )
    elif head is None:
        lines.append(
            f"{folder} has no masked-LM head: all words get neighbours by their vectors; --candidates DIR"
            " takes those of words of one piece from a masked LM"
        )
    model = None if head is None else _masked_lm(teller, its, head, device)
    return _Sources(words, model, encoder, vectors, lines)


def _masked_lm(
    folder: ModelFolder, encoder: Encoder, head: MaskedLMHead, device: torch.device
) -> CandidateModel:
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


def _build(
    texts: Sequence[str], config: CandidateConfig, folder: ModelFolder, device: torch.device
) -> tuple[Rows, Facts]:
    """The table as arrays."""
    sources = _sources(config, folder, device)
    known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    distinct = list(known)
    spans = [sources.words.spans(text) for text in distinct]
    offsets = np.cumsum([0, *map(len, spans)])
    flat = np.concatenate([*spans, np.empty((0, 2), np.int64)])
    own = [text[a:b] for text, its in zip(distinct, spans, strict=True) for a, b in its.tolist()]
    choices = np.full((len(own), config.choices), -1, dtype=np.int32)
    vocabulary = dict[str, int]()
    answered = np.zeros(len(own), dtype=bool)
    if sources.masked_lm is not None:
        answered = _ask_masked_lm(sources.masked_lm, distinct, spans, offsets, choices, vocabulary)
    asked = dict.fromkeys(own[row] for row in np.flatnonzero(~answered).tolist())
    if asked:
        neighbours = sources.vectors
        if neighbours is None:
            assert sources.encoder.tokenizer is not None
            frequent = [word for word, _ in Counter(own).most_common()]
            pieces = Pieces(sources.encoder.tokenizer)
            neighbours = embedding_neighbours(sources.encoder.word_embeddings, pieces, frequent)
        nearest = dict(zip(asked, neighbours.nearest(list(asked), config.choices), strict=True))
        for row in np.flatnonzero(~answered).tolist():
            found = nearest[own[row]]
            choices[row, : len(found)] = [vocabulary.setdefault(word, len(vocabulary)) for word in found]
    counts = (choices >= 0).sum(1).astype(np.int32)
    some = counts > 0
    before = np.concatenate([[0], np.cumsum(some)])
    arrays = {
        "numbers": np.array([known[text] for text in texts], dtype=np.int64),
        "offsets": before[offsets].astype(np.int64),
        "spans": flat[some].astype(np.int32),
        "choices": choices[some],
        "counts": counts[some],
    }
    words = {
        "masked_lm": int((answered & some).sum()),
        "neighbours": int((~answered & some).sum()),
        "without_candidates": int((~some).sum()),
    }
    # Columns of different lengths: each is the only row of its own.
    rows: dict[str, Any] = {
        name: Ragged.of([array], array.dtype, array.shape[1:]) for name, array in arrays.items()
    }
    rows["words"] = Column.of([list(vocabulary)], list[str])
    return rows, {"lines": sources.lines, "words": words}


def _ask_masked_lm(
    model: CandidateModel,
    texts: list[str],
    spans: list[np.ndarray],
    offsets: np.ndarray,
    choices: np.ndarray,
    vocabulary: dict[str, int],
) -> np.ndarray:
    """Fill in the candidates of words of one piece; which words those are, bool (words,).

    Args:
        offsets: the words of each text.
        choices: (words, K), filled in with numbers of `vocabulary`, which grows.
    """
    tokenizer, pieces = model.pieces.tokenizer, model.pieces
    special = {index for index in (special_ids(tokenizer).unk, unknown_id(tokenizer)) if index is not None}
    tokens, places, rows = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for start in range(0, len(texts), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        encodings = tokenizer.encode_batch(texts[part], add_special_tokens=False)
        for index, encoding in enumerate(encodings, start):
            ids = np.array(encoding.ids, dtype=np.int32)
            characters = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
            found = token_ranges(texts[index], characters, ids, spans[index], pieces.continues)
            single = np.flatnonzero((found[:, 0] >= 0) & (found[:, 1] - found[:, 0] == 1))
            single = single[~np.isin(ids[found[single, 0]], list(special))]
            tokens.append(ids)
            places.append(found[single, 0])
            rows.append(offsets[index] + single)
    row = np.concatenate([*rows, np.zeros(0, np.int64)])
    with progress("augment: words of one piece", len(row)) as advance:
        best = model.best(tokens, places, choices.shape[1], advance)
    codes = np.full(len(pieces.texts) + 1, -1, dtype=np.int32)  # the last stands for -1, no piece
    for piece in np.unique(best[best >= 0]).tolist():
        codes[piece] = vocabulary.setdefault(pieces.texts[piece], len(vocabulary))
    choices[row] = codes[best]
    answered = np.zeros(len(choices), dtype=bool)
    answered[row] = True
    return answered


def candidate_files(config: CandidateConfig, encoder: ModelFolder | Path) -> dict[str, Path]:
    """The files that decide the candidates, by name.

    Args:
        encoder: a run of pretraining, or the folder of an encoder.

    Raises:
        BrimfulError: a folder holds no model.
    """
    found = model_files("augment/encoder", ModelFolder.open(encoder, "encoder"))
    if config.candidates:
        found |= model_files("augment/candidates", ModelFolder.open(config.candidates, "encoder"))
    files = named_files(vectors=config.vectors, stop_words=config.stop_words, lexicon=config.lexicon)
    return found | {f"augment/{name}": path for name, path in files.items()}
