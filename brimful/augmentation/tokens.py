"""Candidates as tokens: what `data.augmented` draws copies of encoded examples from."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from brimful.augmentation.cache import kept
from brimful.augmentation.config import AugmentConfig
from brimful.augmentation.pieces import Pieces
from brimful.augmentation.table import CandidateTable, candidate_table
from brimful.augmentation.words import token_ranges
from brimful.compiled import compiled
from brimful.console import say, warn
from brimful.data.augmented import GLUED, PLACES, SPACED, START, AugmentedExamples, Replacements
from brimful.data.examples import AT_ONCE, Examples
from brimful.data.ragged import Ragged
from brimful.distributed import ALONE, World
from brimful.errors import BrimfulError
from brimful.tasks.entries import Entry
from brimful.tasks.table import Table
from brimful.text.tokenizer import tokenizer_hash


def augmented(
    config: AugmentConfig,
    tables: Sequence[Table],
    examples: Examples,
    tokenizer: Tokenizer,
    encoder: str | Path,
    *,
    ranks: World = ALONE,
) -> AugmentedExamples:
    """Examples with copies that are drawn anew in each epoch.

    Args:
        tables: the texts of the examples, in their order.
        examples: of all tables, encoded by `tokenizer` with one `max_length` and `overlap`. Their targets, if
            any, are those of copies too.
        encoder: where candidates come from, if the configuration names no other one.

    Raises:
        BrimfulError: as `candidate_table`; or the examples have labels of tokens.
    """
    texts = [text for part in tables for text in part.texts]
    second = [text for part in tables for text in part.second or [""] * len(part)]
    everything = texts + (second if any(part.second is not None for part in tables) else [])
    table = candidate_table(everything, config, config.encoder or encoder, ranks=ranks)
    key = {
        "table": table.name,
        "tables": [[len(part), part.second is not None] for part in tables],
        "tokenizer": tokenizer_hash(tokenizer),
        "lengths": [examples.max_length, examples.overlap, len(examples)],
    }
    entry = kept(key, lambda: _build(tables, everything, table, examples, tokenizer), ranks)
    arrays = dict(entry.arrays)
    tokens = Ragged(*(arrays.pop(f"tokens.{part}") for part in ("values", "starts", "lengths")))
    replacements = Replacements(choices=table.choices, counts=table.counts, tokens=tokens, **arrays)
    made = AugmentedExamples(examples, replacements, copies=config.copies, rate=config.rate)
    if ranks.is_main:
        words, spelled = len(table.counts), len(replacements.rows)
        say(
            f"augmenting {len(examples):,} texts: an epoch has {len(made):,}; candidates of"
            f" {table.facts['masked_lm']:,} words by a masked LM, of {table.facts['neighbours']:,} by vectors"
            + (f"; {spelled:,} places of words in all windows" if spelled > words else "")
        )
        if cut := made.cut():
            warn(
                f"of the {len(made):,} texts of an epoch, about {cut:,} copies get longer than"
                f" {examples.max_length:,} tokens and are cut there; raise --max-length"
            )
    return made


def _build(
    tables: Sequence[Table],
    everything: list[str],
    table: CandidateTable,
    examples: Examples,
    tokenizer: Tokenizer,
) -> Entry:
    """The arrays of `Replacements` that are not in the table, and its tokens."""
    pieces = Pieces(tokenizer)
    spans = [table.spans[table.rows(text)].astype(np.int64) for text in range(len(table.numbers))]
    total = sum(map(len, tables))
    own = np.zeros(len(table.spans), dtype=np.int64)
    codes = {word: code for code, word in enumerate(table.candidates)}
    for text, content in enumerate(everything):
        for row, (begin, end) in enumerate(spans[text].tolist(), table.rows(text).start):
            own[row] = codes.setdefault(content[begin:end], len(codes))
    tokens = _tokens(pieces, list(codes))
    found: dict[str, list[np.ndarray]] = {
        name: [] for name in ("begins", "lengths", "fields", "numbers", "rows", "places")
    }
    owners, counts, ranges = list[int](), list[int](), list[np.ndarray]()
    for number, (text, encoding) in enumerate(_encodings(tables, examples, tokenizer)):
        ids = np.array(encoding.ids or [examples.pad], dtype=np.int32)
        if number >= len(examples) or not np.array_equal(ids, examples.tokens[number]):
            raise BrimfulError("the texts are not those of the examples, so they cannot be augmented")
        of_text = np.array([-1 if which is None else which for which in encoding.sequence_ids])
        characters = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        parts = np.zeros((2, 2), dtype=np.int32)
        count = 0
        for field in range(2):
            its = np.flatnonzero(of_text == field)
            if not len(its):
                continue
            parts[field] = its[0], its[-1] + 1
            source = text + field * total
            places = token_ranges(
                everything[source], characters[its], ids[its], spans[source], pieces.continues
            )
            words = np.flatnonzero(places[:, 0] >= 0)
            found["begins"].append(its[0] + places[words, 0])
            found["lengths"].append(places[words, 1] - places[words, 0])
            found["fields"].append(np.full(len(words), field))
            found["numbers"].append(words)
            found["rows"].append(table.rows(source).start + words)
            found["places"].append(_places(everything[source], spans[source][words, 0]))
            count += len(words)
        counts.append(count)
        owners.append(text)
        ranges.append(parts)
    if len(counts) != len(examples):
        raise BrimfulError("the texts are not those of the examples, so they cannot be augmented")
    flat = {name: np.concatenate([*values, np.zeros(0, np.int64)]) for name, values in found.items()}
    example = np.repeat(np.arange(len(counts)), counts)
    whole = examples.tokens if isinstance(examples.tokens, Ragged) else Ragged.of(examples.tokens, np.int32)
    spelled = _spelled_alike(
        whole.starts[example] + flat["begins"], flat["lengths"], PLACES * own[flat["rows"]] + flat["places"],
        whole.values, tokens.values, tokens.starts, tokens.lengths,
    )  # fmt: skip
    kinds = {
        "begins": np.int32,
        "lengths": np.int32,
        "fields": np.uint8,
        "numbers": np.int32,
        "rows": np.int64,
        "places": np.uint8,
    }
    arrays = {name: values[spelled].astype(kinds[name]) for name, values in flat.items()}
    arrays["offsets"] = np.concatenate(
        [[0], np.cumsum(np.bincount(example[spelled], minlength=len(counts)))]
    ).astype(np.int64)
    arrays["ranges"] = np.array(ranges, dtype=np.int32).reshape(-1, 2, 2)
    arrays["texts"] = np.array(owners, dtype=np.int64)
    arrays |= {f"tokens.{field.name}": getattr(tokens, field.name) for field in fields(tokens)}
    return Entry(arrays, {})


def _encodings(
    tables: Sequence[Table], examples: Examples, tokenizer: Tokenizer
) -> Iterator[tuple[int, Encoding]]:
    """The text and the encoding of each example, as `data.examples.encode_texts` makes them."""
    first = 0
    for table in tables:
        windows: dict[str, Any] = {} if examples.overlap is None else {"stride": examples.overlap}
        if windows and table.second is not None:
            windows["strategy"] = "only_second"
        inputs = (
            list(table.texts) if table.second is None else list(zip(table.texts, table.second, strict=True))
        )
        tokenizer.enable_truncation(examples.max_length, **windows)
        try:
            for start in range(0, len(inputs), AT_ONCE):
                for text, encoding in enumerate(
                    tokenizer.encode_batch(inputs[start : start + AT_ONCE]), start
                ):
                    more = encoding.overflowing if windows else []
                    yield from ((first + text, one) for one in (encoding, *more))
        finally:
            tokenizer.no_truncation()
        first += len(inputs)


def _tokens(pieces: Pieces, words: list[str]) -> Ragged:
    """int32: the tokens of word c at place p are array `PLACES * c + p`."""
    start, glued, spaced = (pieces.tokens(words, place) for place in (START, GLUED, SPACED))
    each = zip(start, glued, spaced, strict=True)
    return Ragged.of(
        (its if len(its) else places[0] for places in each for its in places),  # at worst as at the start
        np.int32,
    )


def _places(text: str, begins: np.ndarray) -> np.ndarray:
    """Where words that begin at these characters stand, int64."""
    found = [
        START if begin == 0 else SPACED if text[begin - 1].isspace() else GLUED for begin in begins.tolist()
    ]
    return np.array(found, dtype=np.int64)


@compiled
def _spelled_alike(
    starts: np.ndarray,
    lengths: np.ndarray,
    words: np.ndarray,
    tokens: np.ndarray,
    word_tokens: np.ndarray,
    word_starts: np.ndarray,
    word_lengths: np.ndarray,
) -> np.ndarray:
    """Which words have, in their text, the tokens that they have behind a bracket, bool (words,): what stands
    beside them does not matter then, and a candidate may take their place."""
    alike = np.empty(len(starts), np.bool_)
    for n in range(len(starts)):
        first = word_starts[words[n]]
        alike[n] = word_lengths[words[n]] == lengths[n]
        for k in range(min(lengths[n], word_lengths[words[n]])):
            alike[n] &= tokens[starts[n] + k] == word_tokens[first + k]
    return alike
