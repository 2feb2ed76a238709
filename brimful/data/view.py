"""Describe a batch for a person: what the model sees token by token, what it must predict, the text's
source."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from brimful.base.console import escape_controls, pluralise
from brimful.base.terminal import output_console
from brimful.base.types import IGNORED, Values
from brimful.corpus.shards import Shard
from brimful.corpus.text.character_classes import WORD, character_classes
from brimful.corpus.text.characters import code_points
from brimful.data.config import PAIR_SPECIAL_TOKENS, SPECIAL_TOKENS
from brimful.data.pairs import NO_PAIR
from brimful.data.rows import Row, RowStream
from brimful.data.sequences import Sequences

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KINDS = ("plain", "special", "masked", "random", "kept")
"""The kinds of token. The last three are predictions: the model sees [MASK], a random token, the token."""
_PLAIN, _SPECIAL, _MASKED, _RANDOM, _KEPT = range(len(KINDS))
_PAIRS = {0: "pair 0, the second segment follows", 1: "pair 1, the second segment does not follow"}


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
            for each row `slots`, `tokens`, `filler`, `predictions` and `sequences`. A sequence has `source`,
            `epoch`, `tokens`, `predictions`, `pair`, `places` (where its segments were read) and `words`. A
            word is a list of runs of tokens of one `kind`, each with `text` and `ids`; a prediction also has
            `sees` and `sees_ids`, which the model sees. Sequences beyond `most` tokens have no `words`.
        """
        batch = self.stream.batch(parts, update)
        assert batch.mlm_positions is not None
        assert batch.mlm_labels is not None
        sees, labels = batch.tokens.numpy(), batch.mlm_labels.numpy()
        used = labels != IGNORED
        positions = batch.mlm_positions.numpy()[used]
        truth = sees.copy()
        truth[positions] = labels[used]
        kinds = np.full(len(sees), _PLAIN)
        kinds[positions] = _RANDOM
        kinds[positions[sees[positions] == truth[positions]]] = _KEPT
        kinds[positions[sees[positions] == self.stream.reader.special.mask]] = _MASKED

        groups = [[part] for part in parts]
        if self.stream.phases[0].unit == "sequences":
            groups = [list(parts)]
        slots = len(sees) // len(groups)
        rows, at = [], 0
        for group in groups:
            begin, sequences = at, []
            for part in group:
                for index in part.chosen.tolist():
                    own = slice(at, at + int(part.block.sequences.length[index]))
                    most = max(0, self.most - (at - begin))
                    sequences.append(self._sequence(part, index, truth[own], sees[own], kinds[own], most))
                    at = own.stop
            tokens, predictions = at - begin, int((kinds[begin:at] >= _MASKED).sum())
            row = {"slots": slots, "tokens": tokens, "filler": slots - tokens, "predictions": predictions}
            rows.append(row | {"sequences": sequences})
        return rows

    def _sequence(
        self, part: Row, index: int, truth: ndarray, sees: ndarray, kinds: ndarray, most: int
    ) -> Values:
        source, sequences = self.stream.sources[part.source], part.block.sequences
        starts = np.ones(len(truth), bool)
        kinds[0] = _SPECIAL  # [CLS]
        places, at = [], 1
        for number, begin, end in _list_segments(sequences, index):
            shard = source.corpus.shards[number]
            places.append(_describe_place(shard, begin, end))
            separator = at + end - begin
            starts[at + 1 : separator] = shard.word_starts(begin + 1, end)  # the first token starts a word
            kinds[separator] = _SPECIAL
            at = separator + 1
        pair = None
        if len(sequences.pair) and sequences.pair[index] != NO_PAIR:
            pair = int(sequences.pair[index])
        borders = [*np.flatnonzero(starts[:most]).tolist(), min(most, len(truth))]
        words = []
        for a, b in pairwise(borders):
            words.append(self._word(truth[a:b].tolist(), sees[a:b].tolist(), kinds[a:b].tolist()))
        return {
            "source": source.name,
            "epoch": part.epoch + 1,
            "tokens": len(truth),
            "predictions": int((kinds >= _MASKED).sum()),
            "pair": pair,
            "places": places,
            "words": words,
        }

    def _word(self, truth: list[int], sees: list[int], kinds: list[int]) -> list[Values]:
        """Describe the runs of tokens of one kind in a word."""
        word, at = [], 0
        for kind, run in groupby(kinds):
            end = at + len(list(run))
            ids, sees_ids = truth[at:end], sees[at:end]
            entry = {"text": self._text(ids, truth[:at]), "ids": ids, "kind": KINDS[kind]}
            if kind >= _MASKED:
                entry |= {"sees": [self._text([i]) for i in sees_ids], "sees_ids": sees_ids}
            word.append(entry)
            at = end
        return word

    def _text(self, ids: list[int], before: Sequence[int] = ()) -> str:
        """The text of pieces that follow others in their word; their vocabulary entries if that is nothing or
        a broken character."""
        prefix, whole = self._decode([*before]), self._decode([*before, *ids])
        text = whole.removeprefix(prefix)
        if text and whole.startswith(prefix) and "\ufffd" not in text:
            return text
        return " ".join(str(self.tokenizer.id_to_token(i)) for i in ids)

    def _decode(self, ids: list[int]) -> str:
        """The text of pieces, without the spaces that WordPiece's decoder puts between them; New York keeps
        its own."""
        text = self.tokenizer.decode(ids, skip_special_tokens=False).strip()
        letters = character_classes()[code_points(text)] == WORD
        return "".join(c for i, c in enumerate(text) if c != " " or (letters[i - 1] and letters[i + 1]))


def _list_segments(sequences: Sequences, index: int) -> list[tuple[int, int, int]]:
    """Shard, begin and end of each segment of a sequence: one, or two for a pair."""
    second = int(sequences.second_length[index]) if len(sequences.pair) else 0
    special = PAIR_SPECIAL_TOKENS if second else SPECIAL_TOKENS
    begin = int(sequences.begin[index])
    end = begin + int(sequences.length[index]) - second - special
    segments = [(int(sequences.shard[index]), begin, end)]
    if second:
        begin = int(sequences.second_begin[index])
        segments.append((int(sequences.second_shard[index]), begin, begin + second))
    return segments


def _describe_place(shard: Shard, begin: int, end: int) -> Values:
    """Describe where tokens of a shard were read."""
    document = int(np.searchsorted(shard.offsets, begin, side="right")) - 1
    first, last = (int(place) for place in shard.ends(np.array(document)))
    origin = shard.origin(document)
    return {
        "path": origin.path,
        "record": origin.record,
        "after": origin.begin,
        "shard": shard.name,
        "document": document,
        "begin": begin - first,
        "end": end - first,
        "document_tokens": last - first,
    }


def show_rows(rows: list[Values], spikes: list[Values]) -> None:
    """Print rows that `BatchView` described, spikes first."""
    show = partial(output_console().print, markup=False, emoji=False)
    for spike in spikes:
        show(
            f"update {spike['update']:,} · loss {spike['loss']:.4g}, gradient {spike['norm']:.4g}; before it"
            f" a loss of {spike['mean']:.4g}, deviation {spike['deviation']:.2g} · action: {spike['action']}"
        )
    show("‹what to predict→what the model sees›")
    for row in rows:
        sequences = row["sequences"]
        names = ", ".join(dict.fromkeys(escape_controls(sequence["source"]) for sequence in sequences))
        show(
            f"\nupdate {row['update']:,} · micro-batch {row['micro_batch']} of {row['micro_batches']}"
            f" · row {row['row']} of {row['rows']} · {names}"
        )
        show(
            f"{row['tokens']:,} of {row['slots']:,} slots full ({row['tokens'] / row['slots']:.1%}), "
            f"{row['filler']:,} filler; {pluralise(len(sequences), 'sequence')}, "
            f"{pluralise(row['predictions'], 'prediction')} ({row['predictions'] / row['tokens']:.1%})"
        )
        hidden, hidden_tokens = 0, 0
        for number, sequence in enumerate(sequences, start=1):
            if not sequence["words"]:  # it is beyond `most` tokens, like all after it
                hidden += 1
                hidden_tokens += sequence["tokens"]
                continue
            facts = [pluralise(sequence["tokens"], "token"), pluralise(sequence["predictions"], "prediction")]
            if sequence["pair"] is not None:
                facts.append(_PAIRS[sequence["pair"]])
            show(f"╭ {number}: {', '.join(facts)}")
            for place in sequence["places"]:
                show(f"│ {_format_place(sequence, place)}")
            text, count = "", 0
            for word in sequence["words"]:
                text += " "
                for run in word:
                    text += _format_run(run)
                    count += len(run["ids"])
            if count < sequence["tokens"]:
                text += " …"
            show(f"│{text}")
        if hidden:
            show(f"… and {pluralise(hidden, 'sequence')} of {pluralise(hidden_tokens, 'token')}")


def _format_place(sequence: Values, place: Values) -> str:
    after = f" after {place['after']:,}" if place["after"] else ""
    return (
        f"{escape_controls(sequence['source'])}, epoch {sequence['epoch']}: {escape_controls(place['path'])},"
        f" record {place['record']}{after}, tokens {place['begin']:,} to {place['end']:,} of"
        f" {place['document_tokens']:,} ({place['shard']}, document {place['document']})"
    )


def _format_run(run: Values) -> str:
    """Format a run of tokens for a terminal; spaces inside it are visible."""
    truth = escape_controls(run["text"]).replace(" ", "␣")
    if "sees" not in run:
        return truth
    sees = escape_controls(" ".join(run["sees"]))
    if run["kind"] == "kept":
        sees = truth
    elif run["kind"] == "masked":
        sees = escape_controls(run["sees"][0])
        if len(run["sees"]) > 1:
            sees += f"×{len(run['sees'])}"
    return f"‹{truth}→{sees}›"
