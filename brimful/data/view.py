"""Describe a batch for a person: what the model sees token by token, what it must predict, and where the text
is from."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from brimful.base.console import escape_controls, pluralise
from brimful.base.terminal import output_console
from brimful.base.types import Values
from brimful.corpus.shards import Shard
from brimful.data.reader import list_segments
from brimful.data.rows import Row, RowStream

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_Token = tuple[int, int, str]
"""The id of a token, the id that the model sees in its place, and the kind: plain, special, masked (the model
sees [MASK]), random (it sees a random token) or kept (it sees the token that it must predict)."""
_PREDICTED_KINDS = ("masked", "random", "kept")
_DECODER_SPACES = re.compile(r"(?<=[\u2e80-\uffff]) | (?=[\u2e80-\uffff])")
"""WordPiece's decoder puts spaces around each Chinese character."""

_SPIKE = (
    "update {update:,} · loss {loss:.4g}, gradient {norm:.4g}; before it a loss of {mean:.4g}, deviation"
    " {deviation:.2g} · action: {action}"
)
_ROW = (
    "update {update:,} · micro-batch {micro_batch} of {micro_batches} · row {row} of {rows} ·"
    " {tokens:,} of {slots:,} slots full"
)
_SEQUENCE = "╭ {tokens:,} tokens, {predictions:,} to predict"
_PAIRS = {0: ", pair 0, the second segment follows", 1: ", pair 1, the second segment does not follow"}
_PLACE = (
    "│ {source}, epoch {epoch}: {path}, record {record}{after}, tokens {begin:,} to {end:,} ({shard},"
    " document {document})"
)


@dataclass(frozen=True)
class BatchView:
    """Describes micro-batches of a stream in plain values.

    Attributes:
        most: how many tokens of a row to show at most.
    """

    stream: RowStream
    tokenizer: "Tokenizer"
    most: int

    def rows(self, parts: Sequence[Row], update: int) -> list[Values]:
        """Describe the rows of a micro-batch, exactly as the model sees them at this update (counted from 0).

        If updates are counted in sequences, the rows of a micro-batch are described as one.

        Returns:
            for each row `slots`, `tokens` and `sequences`. A sequence has `source`, `epoch`, `tokens`,
            `predictions`, `pair`, `places` (where its segments were read) and `words`. A word is a list of
            runs of tokens of one `kind`, each with `text` and `ids`; a prediction also has `sees` and
            `sees_ids`, which the model sees. Sequences beyond `most` tokens have no `words`.
        """
        batch, special = self.stream.batch(parts, update), self.stream.reader.special
        assert batch.mlm_positions is not None
        assert batch.mlm_labels is not None
        positions = batch.mlm_positions.numpy()[: batch.predictions]
        labels = batch.mlm_labels.numpy()[: batch.predictions]
        sees = batch.tokens.numpy()
        truth = sees.copy()
        truth[positions] = labels
        kinds = np.where(np.isin(truth, [special.cls, special.sep]), "special", "plain")
        kinds[positions] = np.where(sees[positions] == labels, "kept", "random")
        kinds[sees == special.mask] = "masked"
        tokens = zip(truth.tolist(), sees.tolist(), kinds.tolist(), strict=True)

        groups = [[part] for part in parts]
        if self.stream.phases[0].unit == "sequences":
            groups = [list(parts)]
        rows = []
        for group in groups:
            used, sequences = 0, []
            for part in group:
                for index in part.chosen:
                    own = list(islice(tokens, part.block.sequences.length[index]))
                    sequences.append(self._sequence(part, index, own, max(0, self.most - used)))
                    used += len(own)
            rows.append({"slots": len(sees) // len(groups), "tokens": used, "sequences": sequences})
        return rows

    def _sequence(self, part: Row, index: int, tokens: Sequence[_Token], most: int) -> Values:
        source, places = self.stream.sources[part.source], []
        starts = np.ones(len(tokens), bool)  # also special tokens, and the first token of each segment
        length = np.array([len(tokens)])
        segments = list_segments(part.block.sequences, np.array([index]), length, length)
        for number, (begin, size, at, _) in zip(*segments, strict=True):
            shard = source.corpus.shards[number]
            places.append(_describe_place(shard, begin, begin + size))
            starts[at + 1 : at + size] = shard.word_starts(begin + 1, begin + size)
        borders = [*np.flatnonzero(starts[:most]).tolist(), min(most, len(tokens))]
        return {
            "source": source.name,
            "epoch": part.epoch + 1,
            "tokens": len(tokens),
            "predictions": [kind in _PREDICTED_KINDS for _, _, kind in tokens].count(True),
            "pair": int(part.block.sequences.pair[index]) if len(places) == 2 else None,
            "places": places,
            "words": [self._word(tokens[begin:end]) for begin, end in pairwise(borders)],
        }

    def _word(self, tokens: Sequence[_Token]) -> list[Values]:
        """Describe the runs of tokens of one kind in a word."""
        word = []
        for kind, run in groupby(tokens, itemgetter(2)):
            ids, sees_ids, _ = zip(*run, strict=True)
            entry = {"text": self._text(ids), "ids": ids, "kind": kind}
            if kind in _PREDICTED_KINDS:
                sees = self._text(sees_ids)
                if kind == "masked" and len(ids) > 1:
                    sees = f"{self._text(sees_ids[:1])}×{len(ids)}"
                entry |= {"sees": sees, "sees_ids": sees_ids}
            word.append(entry)
        return word

    def _text(self, ids: Sequence[int]) -> str:
        """The text of neighbouring pieces; their vocabulary entries if that is nothing or a broken
        character."""
        text = self.tokenizer.decode(ids, skip_special_tokens=False).strip().removeprefix("##")
        if not text or "\ufffd" in text:
            return " ".join(str(self.tokenizer.id_to_token(i)) for i in ids)
        return _DECODER_SPACES.sub("", text)


def _describe_place(shard: Shard, begin: int, end: int) -> Values:
    """Describe where tokens of a shard were read."""
    document = int(np.searchsorted(shard.offsets, begin, side="right")) - 1
    first = int(shard.offsets[document])
    origin = shard.origin(document)
    return {
        "path": origin.path,
        "record": origin.record,
        "after": origin.begin,
        "shard": shard.name,
        "document": document,
        "begin": int(begin) - first,
        "end": int(end) - first,
    }


def show_rows(rows: list[Values], spikes: list[Values]) -> None:
    """Print rows that `BatchView` described, spikes first."""
    for spike in spikes:
        _show(_SPIKE.format_map(spike))
    _show("‹what to predict→what the model sees›")
    for row in rows:
        _show("")
        _show(_ROW.format_map(row))
        shown = 0
        for sequence in row["sequences"]:
            if not sequence["words"]:  # it is beyond `most` tokens, like all after it
                break
            _show(_SEQUENCE.format_map(sequence) + _PAIRS.get(sequence["pair"], ""))
            for place in sequence["places"]:
                after = f" after {place['after']:,}" if place["after"] else ""
                _show(_PLACE.format_map({**sequence, **place, "after": after}))
            text = "│"
            for word in sequence["words"]:
                text += " "
                for run in word:
                    text += _format_run(run)
                    shown += len(run["ids"])
            _show(text)
        if shown < row["tokens"]:
            _show(f"… and {pluralise(row['tokens'] - shown, 'token')}")


def _show(line: str) -> None:
    output_console().print(escape_controls(line), markup=False, emoji=False)


def _format_run(run: Values) -> str:
    """Format a run of tokens for a terminal; spaces inside it are visible."""
    text = run["text"].replace(" ", "␣")
    if "sees" in run:
        return f"‹{text}→{run['sees']}›"
    return text
