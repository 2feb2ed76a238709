"""How a batch is shown: what the model sees token by token, what it must predict, the text's source."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from brimful.base.console import escape_controls, pluralise
from brimful.base.terminal import output_console
from brimful.base.types import IGNORED
from brimful.corpus.text.characters import WORD, character_classes, code_points
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

    def rows(self, parts: Sequence[Row], update: int) -> list[dict[str, Any]]:
        """The rows of a micro-batch, exactly as the model sees them at this update (counted from 0).

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
        sees = batch.tokens.numpy()
        labels = batch.mlm_labels.numpy()
        positions = batch.mlm_positions.numpy()[labels != IGNORED]
        truth = sees.copy()
        truth[positions] = labels[labels != IGNORED]
        kinds = np.full(len(sees), _PLAIN)
        kinds[positions] = np.where(sees[positions] == truth[positions], _KEPT, _RANDOM)
        kinds[positions[sees[positions] == self.stream.reader.special.mask]] = _MASKED

        shared = self.stream.phases[0].counted == "sequences"
        groups = [parts] if shared else [[part] for part in parts]
        rows, at = [], 0
        for group in groups:
            begin, left, sequences = at, self.most, []
            for part in group:
                for index in part.chosen.tolist():
                    end = at + int(part.block.sequences.length[index])
                    own = slice(at, end)
                    sequences.append(self._sequence(part, index, truth[own], sees[own], kinds[own], left))
                    left = max(0, left - (end - at))
                    at = end
            slots = len(sees) // len(groups)
            rows.append(
                {
                    "slots": slots,
                    "tokens": at - begin,
                    "filler": slots - (at - begin),
                    "predictions": int((kinds[begin:at] >= _MASKED).sum()),
                    "sequences": sequences,
                }
            )
        return rows

    def _sequence(
        self, part: Row, index: int, truth: np.ndarray, sees: np.ndarray, kinds: np.ndarray, most: int
    ) -> dict[str, Any]:
        source, sequences = self.stream.sources[part.source], part.block.sequences
        shards = source.corpus.shards
        starts = np.ones(len(truth), bool)
        kinds[0] = _SPECIAL
        places, at = [], 1
        for number, begin, end in _segments(sequences, index):
            shard = shards[number]
            document = int(np.searchsorted(shard.offsets, begin, side="right")) - 1
            first, last = (int(place) for place in shard.ends(np.array(document)))
            read = shard.origin(document)
            places.append(
                {
                    "path": read.path,
                    "record": read.record,
                    "after": read.begin,
                    "shard": shard.name,
                    "document": document,
                    "begin": begin - first,
                    "end": end - first,
                    "document_tokens": last - first,
                }
            )
            segment = slice(at + 1, at + end - begin)  # its first token starts a word anyway
            starts[segment] = shard.word_starts(begin + 1, end)
            at += end - begin
            kinds[at] = _SPECIAL
            at += 1
        words = np.flatnonzero(starts[:most]).tolist()
        pair = int(sequences.pair[index]) if len(sequences.pair) else NO_PAIR
        return {
            "source": source.name,
            "epoch": part.epoch + 1,
            "tokens": len(truth),
            "predictions": int((kinds >= _MASKED).sum()),
            "pair": None if pair == NO_PAIR else pair,
            "places": places,
            "words": [
                self._word(truth[a:b].tolist(), sees[a:b].tolist(), kinds[a:b].tolist())
                for a, b in pairwise([*words, min(most, len(truth))])
            ],
        }

    def _word(self, truth: list[int], sees: list[int], kinds: list[int]) -> list[dict[str, Any]]:
        """The runs of tokens of one kind in a word."""
        word = []
        for kind, run in groupby(range(len(kinds)), kinds.__getitem__):
            places = list(run)
            ids = [truth[i] for i in places]
            shown = {"text": self._text(ids, truth[: places[0]]), "ids": ids, "kind": KINDS[kind]}
            if kind >= _MASKED:
                seen = [sees[i] for i in places]
                shown |= {"sees": [self._text([i]) for i in seen], "sees_ids": seen}
            word.append(shown)
        return word

    def _text(self, ids: list[int], after: Sequence[int] = ()) -> str:
        """What pieces say after others of their word; their vocabulary entries if that is nothing or a broken
        character."""
        before, whole = self._decode([*after]), self._decode([*after, *ids])
        text = whole.removeprefix(before)
        if text and whole.startswith(before) and "\ufffd" not in text:
            return text
        return " ".join(str(self.tokenizer.id_to_token(i)) for i in ids)

    def _decode(self, ids: list[int]) -> str:
        """What pieces say, without the spaces that WordPiece's decoder puts between them; New York keeps its
        own."""
        text = self.tokenizer.decode(ids, skip_special_tokens=False).strip()
        letters = character_classes()[code_points(text)] == WORD
        return "".join(c for i, c in enumerate(text) if c != " " or (letters[i - 1] and letters[i + 1]))


def _segments(sequences: Sequences, index: int) -> list[tuple[int, int, int]]:
    """Shard, begin and end of each segment of a sequence: one, or two for a pair."""
    second = int(sequences.second_length[index]) if len(sequences.pair) else 0
    first = int(sequences.length[index]) - (second + PAIR_SPECIAL_TOKENS if second else SPECIAL_TOKENS)
    begin = int(sequences.begin[index])
    segments = [(int(sequences.shard[index]), begin, begin + first)]
    if second:
        begin = int(sequences.second_begin[index])
        segments.append((int(sequences.second_shard[index]), begin, begin + second))
    return segments


def show_rows(rows: list[dict[str, Any]], spikes: list[dict[str, Any]]) -> None:
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
        shown = [sequence for sequence in sequences if sequence["words"]]
        for number, sequence in enumerate(shown, start=1):
            facts = [pluralise(sequence["tokens"], "token"), pluralise(sequence["predictions"], "prediction")]
            if sequence["pair"] is not None:
                facts.append(_PAIRS[sequence["pair"]])
            show(f"╭ {number}: {', '.join(facts)}")
            for place in sequence["places"]:
                show(f"│ {_place(sequence, place)}")
            words = ["".join(map(_run, word)) for word in sequence["words"]]
            count = sum(len(run["ids"]) for word in sequence["words"] for run in word)
            show(f"│ {' '.join(words)}{' …' if count < sequence['tokens'] else ''}")
        if left := sequences[len(shown) :]:
            tokens = sum(sequence["tokens"] for sequence in left)
            show(f"… and {pluralise(len(left), 'sequence')} of {pluralise(tokens, 'token')}")


def _place(sequence: dict[str, Any], place: dict[str, Any]) -> str:
    after = f" after {place['after']:,}" if place["after"] else ""
    return (
        f"{escape_controls(sequence['source'])}, epoch {sequence['epoch']}:"
        f" {escape_controls(place['path'])}, record {place['record']}{after},"
        f" tokens {place['begin']:,} to {place['end']:,} of {place['document_tokens']:,}"
        f" ({place['shard']}, document {place['document']})"
    )


def _run(run: dict[str, Any]) -> str:
    """A run of tokens on a terminal; spaces inside it are visible."""
    truth = escape_controls(run["text"]).replace(" ", "␣")
    if "sees" not in run:
        return truth
    sees = truth if run["kind"] == "kept" else escape_controls(" ".join(run["sees"]))
    if run["kind"] == "masked":
        times = len(run["sees"])
        sees = escape_controls(run["sees"][0]) + (f"×{times}" if times > 1 else "")
    return f"‹{truth}→{sees}›"
