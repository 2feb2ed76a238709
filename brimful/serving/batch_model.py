"""A model that answers texts of several requests in one batch, each as `predict` answers it."""

import os
import random
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.base.storage import require_utf8
from brimful.corpus.text.beginnings import LONG, beginning
from brimful.corpus.text.special_ids import named_as, truncation_side
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.serving.config import Opening
from brimful.serving.opened import ServedEncoder, ServedTask
from brimful.serving.opening import open_served
from brimful.tables.table import Table
from brimful.tasks.encoded import Encoded

SECONDS = 0.02
"""What a batch may take."""
SLOW = 2 * SECONDS
"""What a batch of `SMALLEST` tokens may take before more threads compute it."""
MOST_WORKERS = 8
"""Batches of a model that are computed at the same time."""
LEARNED = 10_000
"""Characters after which what is expected of a text no longer depends on earlier ones."""
SMALLEST, LARGEST = 256, 1 << 16
"""Tokens of a batch, whatever a model's speed."""
_TRIALS, _TRIAL_WORDS = 3, 24


@dataclass(frozen=True, eq=False, slots=True)
class TokenizedText:
    """A text or pair that is tokenized.

    Attributes:
        tokens, segments, characters: of each of its windows, as in `data.examples.Examples`.
        overlap: tokens that they share.
        lengths: tokens of each window.
        cut: `truncated_at`, and of the second text `truncated_at_b`: where reading stopped, in code points,
            or where it began if the model cuts on the left; empty if all was read.
    """

    text: str
    second: str | None
    tokens: list[np.ndarray]
    segments: list[np.ndarray]
    characters: list[np.ndarray] | None
    overlap: int | None
    lengths: list[int]
    cut: dict[str, int]


class TextAnswer(NamedTuple):
    """What a model says of a text: the row of `predict`, or of an encoder the vector, float32 (width,); with
    the tokens and windows that were read of it, `TokenizedText.cut`, and where the model is `scored`, a
    number for each label, float32 (labels,)."""

    value: Any
    tokens: int
    windows: int
    cut: dict[str, int]
    scores: np.ndarray | None


class BatchModel:
    """A model that is open, under a name.

    Attributes:
        task: its name; of an encoder, "embeddings", and `width` that of its vectors, else 0.
        abstains, scored: whether rows have a probability, and whether they have one for each of `labels`,
            which are empty otherwise.
        pairs: whether it reads pairs of texts, if known.
        workers: the most batches of it that are computed at the same time, each on its part of the cores.
        speed: tokens a second of all, and `budget` the most tokens of a batch, once `measure` has found them.
        pace: the speed of late, beside whatever else the cores do.
    """

    def __init__(self, name: str, served: ServedTask | ServedEncoder) -> None:
        self.name, self.served = name, served
        self.task, self.width = "embeddings", getattr(served, "width", 0)
        self.abstains, self.scored, self.labels = False, False, list[str]()
        self.pairs: bool | None = False
        self.budget, self.speed, self.pace = SMALLEST, 1.0, 1.0
        self._density = 0.5
        self.workers, self._threads = 1, served.threads
        if isinstance(served, ServedTask):
            task = served.task
            self.task, self.abstains = task.name, task.abstains
            self.pairs = True if task.problem_type == "question_answering" else served.pairs
            try:
                task.scores(np.zeros((0, len(task.labels)), dtype=np.float32))
                self.scored = task.problem_type != "regression"  # whose value is its score
                self.labels = list(task.labels) if self.scored else []
            except BrimfulError:  # it has none
                pass
        probe = self._table(["a"], ["a"] if self.pairs else None)
        self._pad = served.encode(probe, None, served.tokenizer).examples.pad
        self._tokenizers = served.tokenizer, named_as(deepcopy(served.tokenizer), served.tokenizer)

    def read(
        self, texts: list[str], second: list[str] | None, overlap: int | None, *, long: bool = False
    ) -> list[TokenizedText]:
        """Tokenize texts or pairs.

        Args:
            overlap: tokens that windows of a long text share; None: it is cut.
            long: whether to do so beside another call, without it: a tokenizer cannot do both at a time.

        Raises:
            BrimfulError: as the task's `encode`.
        """
        served, given, tokenizer = self.served, texts, self._tokenizers[long]
        right = truncation_side(tokenizer) == "right"  # else places would count from where a part begins
        if right and overlap is None and second is None and max(map(len, texts)) > LONG:
            texts = [beginning(tokenizer, text, served.max_length, "the text") for text in texts]
        examples = served.encode(self._table(texts, second), overlap, tokenizer).examples
        tokens, segments = list(examples.tokens), list(examples.segments)
        places = None if examples.characters is None else list(examples.characters)
        found = []
        bounds = zip(examples.first_of_text.tolist(), examples.count_of_text.tolist(), strict=True)
        for row, (first, count) in enumerate(bounds):
            part = slice(first, first + count)
            lengths, beside = list(map(len, tokens[part])), None if second is None else second[row]
            is_full = overlap is None and lengths[0] >= served.max_length
            cut = self._cut(texts[row], beside, tokenizer) if is_full else {}
            windows = tokens[part], segments[part], places and places[part]
            found.append(TokenizedText(given[row], beside, *windows, overlap, lengths, cut))
        return found

    def expected(self, characters: int, most: int) -> int:
        """Tokens, at most `most`, of a text that is not tokenized yet, by those that were."""
        return min(int(self._density * characters) + 2, most)

    def learn(self, readings: Sequence[TokenizedText]) -> None:
        """Let `expected` know what was read of texts."""
        whole = [each for each in readings if not each.cut]
        characters = sum(len(each.text) + len(each.second or "") for each in whole)
        if characters:
            tokens = sum(sum(each.lengths) for each in whole)
            self._density += min(1.0, characters / LEARNED) * (tokens / characters - self._density)

    def timed(self, tokens: int, seconds: float) -> None:
        """Let `pace` know how long a batch took: the latest second of computing says it."""
        self.pace += min(1.0, seconds) * (self.workers * tokens / seconds - self.pace)

    def _cut(self, text: str, second: str | None, tokenizer: Tokenizer) -> dict[str, int]:
        prompt = getattr(self.served, "prompt", "")
        cuts = places_of_cuts(tokenizer, prompt + text, second, self.served.max_length)
        places = zip(("truncated_at", "truncated_at_b"), cuts, strict=True)
        found = {name: max(0, place - len(prompt)) for name, place in places if place is not None}
        left = truncation_side(tokenizer) == "left"
        return {name: place for name, place in found.items() if place or not left}  # else the prompt was cut

    def _table(self, texts: list[str], second: list[str] | None) -> Table:
        if isinstance(self.served, ServedTask):
            return self.served.task.from_texts(texts, second)
        return Table(Path("texts"), texts, second, None)

    def outputs(self, parts: Sequence[tuple[TokenizedText, int, int]]) -> list[np.ndarray]:
        """What the model computes of windows, float32 (C,) or (tokens, C) of each.

        Args:
            parts: windows of texts, from the first to before the end; all of single texts or all of pairs.

        Raises:
            BrimfulError: outputs are NaN or infinite.
        """
        with self.served.on_threads(self._threads):
            return list(self.served.outputs(self._examples(parts)))

    def answers(
        self, readings: Sequence[TokenizedText], outputs: Sequence[Sequence[np.ndarray]]
    ) -> list[TextAnswer]:
        """What the model says of each text. All are single texts or all pairs, and those that are read in
        windows share one overlap.

        Args:
            outputs: of the windows of each.
        """
        second = [each.second for each in readings if each.second is not None] or None
        examples = self._examples([(each, 0, len(each.lengths)) for each in readings])
        data = Encoded(self._table([each.text for each in readings], second), examples)
        given = [each for windows in outputs for each in windows]
        by_token = given[0].ndim == 2
        joined: Any = Ragged.of(given, np.float32, given[0].shape[1:]) if by_token else np.stack(given)
        found = self.served.answers(joined, data)
        scores: Any = repeat(None, len(readings))
        if isinstance(self.served, ServedEncoder):
            values: list[Any] = list(found)
        else:
            values = self.served.task.rows(found, data)
            scores = self.served.task.scores(found) if self.scored else scores
            for value in values:
                value.pop("id", None)  # of a question: its number in the batch
        counts = ((sum(text.lengths), len(text.lengths), text.cut) for text in readings)
        return [
            TextAnswer(value, *count, row) for value, count, row in zip(values, counts, scores, strict=True)
        ]

    def _examples(self, parts: Sequence[tuple[TokenizedText, int, int]]) -> Examples:
        places = [part for text, first, end in parts for part in (text.characters or [])[first:end]]
        counts = [end - first for _, first, end in parts]
        return Examples(
            tokens=[part for text, first, end in parts for part in text.tokens[first:end]],
            segments=[part for text, first, end in parts for part in text.segments[first:end]],
            targets={},
            max_length=self.served.max_length,
            pad=self._pad,
            texts=np.repeat(np.arange(len(parts)), counts) if max(counts) > 1 else None,
            characters=Ragged.of(places, np.int32, (2,)) if places else None,
            overlap=max((text.overlap for text, *_ in parts if text.overlap is not None), default=None),
        )

    def card(self) -> dict[str, Any]:
        """What there is to know of it, as JSON."""
        served, task = self.served, getattr(self.served, "task", None)
        about: dict[str, Any] = {"id": self.name, "object": "model", "task": self.task}
        if task is None:
            about |= {"labels": [], "width": self.width}
        else:
            about |= {"labels": list(getattr(task, "kinds", task.labels)), "pairs": self.pairs}
        about |= {"max_length": served.max_length, "overlap": served.overlap, "precision": served.precision}
        about |= {"batch_tokens": self.budget, "batches_at_a_time": self.workers}
        return about | {"tokens_per_second": round(self.speed)}

    def measure(self, call: Callable[[Callable[[], float]], float]) -> None:
        """Find `workers`, `speed` and `budget`. A worker has as few threads as compute `SMALLEST` tokens in
        about `SECONDS`; batches of made-up texts grow until one takes `SECONDS`.

        Args:
            call: runs a function in a thread that computes.
        """
        rng = random.Random(0)
        words = sorted(self.served.tokenizer.get_vocab(with_added_tokens=False)) or ["a"]

        def trial(count: int) -> tuple[int, float]:
            texts = [" ".join(rng.choices(words, k=_TRIAL_WORDS)) for _ in range(count)]
            readings = self.read(texts, texts if self.pairs else None, None)
            took = min(call(partial(self._seconds, readings)) for _ in range(_TRIALS))
            return sum(sum(each.lengths) for each in readings), took

        most, self._threads = self.served.threads, -(-self.served.threads // MOST_WORKERS)
        tokens, took = trial(SMALLEST // _TRIAL_WORDS)
        while self._threads < most and took * SMALLEST > SLOW * tokens:
            self._threads = min(2 * self._threads, most)
            tokens, took = trial(SMALLEST // _TRIAL_WORDS)
        self.workers, count = most // self._threads, 1
        tokens, took = 0, 0.0
        while (took < SECONDS or tokens < SMALLEST) and tokens < LARGEST:
            tokens, took = trial(count)
            count *= 2
        self.speed = self.pace = self.workers * tokens / took
        self.budget = max(SMALLEST, min(LARGEST, int(tokens / took * SECONDS)))

    def _seconds(self, readings: Sequence[TokenizedText]) -> float:
        started = time.perf_counter()
        self.answers(readings, [[each] for each in self.outputs([(text, 0, 1) for text in readings])])
        return time.perf_counter() - started


def open_models(
    openings: Sequence[Opening], call: Callable[[Callable[[], Any]], Any]
) -> dict[str, BatchModel]:
    """Models by name, measured. A model has its folder's name.

    Args:
        call: as of `BatchModel.measure`.

    Raises:
        BrimfulError: one cannot be opened, or two have the same name.
    """
    found: dict[str, BatchModel] = {}
    for opening in openings:
        name = Path(os.path.abspath(opening.model)).name  # of a link, not of what it leads to today
        require_utf8(name)
        if name in found:
            raise BrimfulError(f"two models are called {name}, as their folders are; rename one")
        found[name] = BatchModel(name, open_served(opening))
    for model in found.values():
        model.measure(call)
    return found


def places_of_cuts(
    tokenizer: Tokenizer, text: str, second: str | None, max_length: int
) -> tuple[int | None, int | None]:
    """Where a text or pair is cut that `encode_texts` reads without windows: the end of what is read of each,
    or its beginning if the tokenizer cuts on the left; None of one that is read whole.

    Args:
        tokenizer: without truncation.
    """
    whole = tokenizer.encode(text, second)
    if len(whole) <= max_length:
        return None, None
    left = truncation_side(tokenizer) == "left"
    tokenizer.enable_truncation(max_length, direction=truncation_side(tokenizer))
    try:
        read = tokenizer.encode(text, second)
    finally:
        tokenizer.no_truncation()
    found: list[int | None] = []
    for sequence in (0, 1):
        have, had = (
            [span for span, which in zip(each.offsets, each.sequence_ids, strict=True) if which == sequence]
            for each in (read, whole)
        )
        nowhere = len((second or "") if sequence else text) if left else 0
        place = (min if left else max)((span[not left] for span in have), default=nowhere)
        found.append(place if len(have) < len(had) else None)
    return found[0], found[1]
