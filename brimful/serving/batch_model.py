"""A model that answers texts of several requests in one batch, each as `predict` answers it."""

import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.base.storage import require_utf8
from brimful.corpus.text.long_texts import WHOLE_TEXT_CHARACTERS, cut_text
from brimful.corpus.text.special_ids import truncation_side
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.serving.config import Opening
from brimful.serving.opened import ServedEncoder, ServedTask
from brimful.serving.opening import open_served
from brimful.serving.queue import QueuedText, QueuedWindow
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded

SECONDS = 0.02
"""What a batch may take."""
SLOW = 2 * SECONDS
"""What a batch of `SMALLEST` tokens may take before more threads compute it."""
MOST_WORKERS = 8
"""Batches of a model that are computed at the same time."""
SMALLEST, LARGEST = 256, 1 << 16
"""Tokens of a batch, whatever a model's speed."""
_TRIALS, _TRIAL_WORDS = 3, 24


class BatchModel:
    """A model that is open, under a name.

    Attributes:
        task: its name; of an encoder, "embeddings", and `width` that of its vectors, else 0.
        abstains, scored: whether rows have a probability, and whether they have one for each of `labels`,
            which are empty otherwise.
        pairs: whether it reads pairs of texts, if known.
        workers: the most batches of it that are computed at the same time, each on its part of the cores.
        speed: tokens a second of all, and `budget` the most tokens of a batch, once `measure` has found them.
    """

    def __init__(self, name: str, served: ServedTask | ServedEncoder) -> None:
        self.name, self.served = name, served
        self.task, self.width = "embeddings", getattr(served, "width", 0)
        self.abstains, self.scored, self.labels = False, False, list[str]()
        self.pairs: bool | None = False
        self.budget, self.speed = SMALLEST, 1.0
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

    def read(self, texts: list[str], second: list[str] | None, overlap: int | None) -> list[QueuedText]:
        """Tokenize texts or pairs. Not for use by several threads at once.

        Args:
            overlap: tokens that windows of a long text share; None: it is cut.

        Raises:
            BrimfulError: as the task's `encode`.
        """
        served, given, tokenizer = self.served, texts, self.served.tokenizer
        right = truncation_side(tokenizer) == "right"  # else places would count from where a part begins
        if right and overlap is None and second is None and max(map(len, texts)) > WHOLE_TEXT_CHARACTERS:
            texts = [cut_text(tokenizer, text, served.max_length, "the text") for text in texts]
        examples = served.encode(self._table(texts, second), overlap, tokenizer).examples
        tokens, segments = list(examples.tokens), list(examples.segments)
        characters = [] if examples.characters is None else list(examples.characters)
        found = []
        bounds = zip(examples.first_of_text.tolist(), examples.count_of_text.tolist(), strict=True)
        for row, (first, count) in enumerate(bounds):
            part = slice(first, first + count)
            beside = None if second is None else second[row]
            text = QueuedText(given[row], beside, tokens[part], segments[part], characters[part], overlap)
            if overlap is None and text.lengths[0] >= served.max_length:
                text.cut = self._cut(texts[row], beside, tokenizer)
            found.append(text)
        return found

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

    def outputs(self, windows: Sequence[QueuedWindow]) -> list[np.ndarray]:
        """What the model computes of windows, float32 (C,) or (tokens, C) of each.

        Args:
            windows: all of single texts or all of pairs.

        Raises:
            BrimfulError: outputs are NaN or infinite.
        """
        with self.served.on_threads(self._threads):
            return list(self.served.outputs(self._examples(windows)))

    def answer(self, texts: Sequence[QueuedText]) -> None:
        """Give texts whose outputs are computed their `value` and `scores`.

        Args:
            texts: all single texts or all pairs; those that are read in windows share one overlap.
        """
        second = [text.second for text in texts if text.second is not None] or None
        counts = [len(text.lengths) for text in texts]
        examples = self._examples(
            [QueuedWindow(text, place) for text in texts for place in range(len(text.lengths))],
            texts=np.repeat(np.arange(len(texts)), counts) if max(counts) > 1 else None,
            characters=Ragged.of([each for text in texts for each in text.characters], np.int32, (2,)),
            overlap=max((text.overlap for text in texts if text.overlap is not None), default=None),
        )
        data = Encoded(self._table([text.text for text in texts], second), examples)
        given = [output for text in texts for output in text.outputs]
        by_token = given[0].ndim == 2
        joined: Any = Ragged.of(given, np.float32, given[0].shape[1:]) if by_token else np.stack(given)
        found = self.served.answers(joined, data)
        task = getattr(self.served, "task", None)
        rows = list(found) if task is None else task.rows(found, data)
        scores = task.scores(found) if task is not None and self.scored else [None] * len(texts)
        for text, row, numbers in zip(texts, rows, scores, strict=True):
            text.value, text.scores = row, numbers
            if task is not None:
                row.pop("id", None)  # of a question: its number in the batch

    def _examples(self, windows: Sequence[QueuedWindow], **more: Any) -> Examples:
        return Examples(
            tokens=[text.tokens[place] for text, place in windows],
            segments=[text.segments[place] for text, place in windows],
            targets={},
            max_length=self.served.max_length,
            pad=self._pad,
            **more,
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
            given = [" ".join(rng.choices(words, k=_TRIAL_WORDS)) for _ in range(count)]
            texts = self.read(given, given if self.pairs else None, None)
            took = min(call(partial(self._seconds, texts)) for _ in range(_TRIALS))
            return sum(text.lengths[0] for text in texts), took

        most, self._threads = self.served.threads, -(-self.served.threads // MOST_WORKERS)
        count = SMALLEST // _TRIAL_WORDS
        tokens, took = trial(count)
        while self._threads < most and took * SMALLEST > SLOW * tokens:
            self._threads = min(2 * self._threads, most)
            tokens, took = trial(count)
        while took < SECONDS and tokens < LARGEST:
            count *= 2
            tokens, took = trial(count)
        self.workers = most // self._threads
        self.speed = self.workers * tokens / took
        self.budget = max(SMALLEST, min(LARGEST, int(tokens / took * SECONDS)))

    def _seconds(self, texts: Sequence[QueuedText]) -> float:
        started = time.perf_counter()
        outputs = self.outputs([QueuedWindow(text, 0) for text in texts])
        for text, output in zip(texts, outputs, strict=True):
            text.outputs = [output]
        self.answer(texts)
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
