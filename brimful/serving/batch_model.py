"""A model that answers texts of several requests in one batch, each as `predict` answers it."""

import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Encoding

from brimful.base.errors import BrimfulError
from brimful.base.storage import require_utf8
from brimful.base.types import Values
from brimful.corpus.text.long_texts import WHOLE_TEXT_CHARACTERS, cut_text
from brimful.corpus.text.special_ids import truncation_side
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.serving.config import ModelOptions
from brimful.serving.open_model import open_served
from brimful.serving.queue import QueuedText, QueuedWindow
from brimful.serving.served_model import ServedEncoder, ServedTask
from brimful.tasks.encoded_tables import Encoded

BATCH_SECONDS = 0.02
"""The most seconds of a batch."""
SLOW_BATCH_SECONDS = 2 * BATCH_SECONDS
"""The most seconds of a batch of `MIN_BATCH_TOKENS`; if it takes longer, more threads compute it."""
MAX_WORKERS = 8
"""The most batches of a model that are computed at the same time."""
MIN_BATCH_TOKENS, MAX_BATCH_TOKENS = 256, 1 << 16
"""The least and the most tokens of a batch, at any speed of a model."""
TRIALS = 3
"""The number of times that a batch is measured; the fastest counts."""
TRIAL_WORDS = 24
"""The number of words in a made-up text that is measured."""


class BatchModel:
    """A model that is open, under a name.

    Attributes:
        task: the name of its task; "embeddings" for an encoder.
        width: the length of an encoder's vectors; 0 for a task.
        abstains: whether its rows have a probability, below which a request can have no answer.
        labels: the labels that have scores; empty where no text has scores.
        pairs: whether it reads pairs of texts; None if that is unknown.
        workers: the most batches of it that are computed at the same time, each on its part of the cores.
        speed: tokens a second of all workers, once `measure` has found it.
        budget: the most tokens of a batch; `measure` finds it too.
    """

    def __init__(self, name: str, served: ServedTask | ServedEncoder) -> None:
        self.name, self.served, self.width = name, served, served.width
        self.task, self.abstains, self.labels = "embeddings", False, list[str]()
        self.pairs: bool | None = False
        self.budget, self.speed = MIN_BATCH_TOKENS, 1.0
        self.workers, self._threads = 1, served.threads
        if isinstance(served, ServedTask):
            task = served.task
            self.task, self.abstains = task.name, task.abstains
            self.pairs = True if task.problem_type == "question_answering" else served.pairs
            self.labels = _scored_labels(served)
        self._pad = served.encode(served.make_table(["a"], ["a"] if self.pairs else None), None).examples.pad

    def read(self, texts: list[str], second: list[str] | None, overlap: int | None) -> list[QueuedText]:
        """Tokenize texts or pairs. Windows share `overlap` tokens; with None, long texts are cut.

        Only one thread may call this at a time.
        """
        served, tokenizer, readable = self.served, self.served.tokenizer, texts
        is_right = truncation_side(tokenizer) == "right"
        # Cutting on the left drops the beginning, from which places in the text are counted.
        if is_right and overlap is None and second is None and max(map(len, texts)) > WHOLE_TEXT_CHARACTERS:
            readable = [cut_text(tokenizer, text, served.max_length, "the text") for text in texts]
        examples = served.encode(served.make_table(readable, second), overlap).examples
        tokens, segments = list(examples.tokens), list(examples.segments)
        characters = [] if examples.characters is None else list(examples.characters)
        queued = []
        firsts, counts = examples.first_of_text.tolist(), examples.count_of_text.tolist()
        for row, (first, count) in enumerate(zip(firsts, counts, strict=True)):
            windows = slice(first, first + count)
            text_b = None if second is None else second[row]
            text = QueuedText(
                texts[row], text_b, tokens[windows], segments[windows], characters[windows], overlap
            )
            if overlap is None and text.lengths[0] >= served.max_length:
                text.cut = self._find_cuts(readable[row], text_b)
            queued.append(text)
        return queued

    def _find_cuts(self, text: str, second: str | None) -> dict[str, int]:
        """Return `QueuedText.cut` of a text or pair that is read without windows."""
        tokenizer, prompt = self.served.tokenizer, self.served.prompt
        whole = tokenizer.encode(prompt + text, second)
        if len(whole) <= self.served.max_length:
            return {}
        side = truncation_side(tokenizer)
        tokenizer.enable_truncation(self.served.max_length, direction=side)
        try:
            read = tokenizer.encode(prompt + text, second)
        finally:
            tokenizer.no_truncation()
        cuts = {}
        for number, name in enumerate(("truncated_at", "truncated_at_b")):
            spans = _spans_of(read, number)
            if len(spans) == len(_spans_of(whole, number)):
                continue
            if side == "right":
                end = max((end for _, end in spans), default=0)
                cuts[name] = max(0, end - len(prompt))
                continue
            length = len(second or "") if number else len(prompt + text)
            begin = min((begin for begin, _ in spans), default=length)
            if begin > len(prompt):  # else only the prompt was cut
                cuts[name] = begin - len(prompt)
        return cuts

    def outputs(self, windows: Sequence[QueuedWindow]) -> list[np.ndarray]:
        """Return the outputs of each window, float32 (C,) or (tokens, C).

        All windows are of single texts, or all are of pairs.
        """
        with self.served.on_threads(self._threads):
            return list(self.served.outputs(self._make_examples(windows)))

    def answer(self, texts: Sequence[QueuedText]) -> None:
        """Set the `value` and `scores` of texts whose outputs are computed.

        They are all single texts or all pairs, and windows share one overlap.
        """
        second = [text.second for text in texts if text.second is not None]
        windows, outputs, characters = [], [], []
        for text in texts:
            windows += [QueuedWindow(text, place) for place in range(len(text.outputs))]
            outputs += text.outputs
            characters += text.characters
        # Without windows `Examples` needs no owners: example i is text i.
        owners = None
        if len(windows) > len(texts):
            owners = np.repeat(np.arange(len(texts)), [len(text.outputs) for text in texts])
        overlap = max((text.overlap for text in texts if text.overlap is not None), default=None)
        spans = Ragged.of(characters, np.int32, (2,))
        examples = self._make_examples(windows, texts=owners, characters=spans, overlap=overlap)
        data = Encoded(self.served.make_table([text.text for text in texts], second or None), examples)
        joined: Any
        if outputs[0].ndim == 1:
            joined = np.stack(outputs)  # (texts, C)
        else:
            joined = Ragged.of(outputs, np.float32, outputs[0].shape[1:])  # (tokens, C) of each window
        answers = self.served.answers(joined, data)
        for text, row in zip(texts, self.served.rows(answers, data), strict=True):
            text.value = row
            if isinstance(row, dict):
                row.pop("id", None)  # of a question: its number in the batch
        if isinstance(self.served, ServedTask) and self.labels:
            for text, numbers in zip(texts, self.served.task.scores(answers), strict=True):
                text.scores = numbers

    def _make_examples(self, windows: Sequence[QueuedWindow], **options: Any) -> Examples:
        return Examples(
            tokens=[text.tokens[place] for text, place in windows],
            segments=[text.segments[place] for text, place in windows],
            targets={},
            max_length=self.served.max_length,
            pad=self._pad,
            **options,
        )

    def describe(self) -> Values:
        """Return the model's entry in /v1/models."""
        served = self.served
        answers: Values = {"labels": [], "width": self.width}
        if isinstance(served, ServedTask):
            labels = getattr(served.task, "kinds", served.task.labels)  # the kind X of tags B-X and I-X
            answers = {"labels": list(labels), "pairs": self.pairs}
        return {
            "id": self.name,
            "object": "model",
            "task": self.task,
            **answers,
            "max_length": served.max_length,
            "overlap": served.overlap,
            "precision": served.precision,
            "batch_tokens": self.budget,
            "batches_at_a_time": self.workers,
            "tokens_per_second": round(self.speed),
        }

    def measure(self, call: Callable[[Callable[[], float]], float]) -> None:
        """Find `workers`, `speed` and `budget` with made-up texts.

        A worker has the fewest threads that compute `MIN_BATCH_TOKENS` in `SLOW_BATCH_SECONDS`. Then batches
        grow until one takes `BATCH_SECONDS`. `call` runs a function in a thread that computes.
        """
        generator = random.Random(0)
        words = sorted(self.served.tokenizer.get_vocab(with_added_tokens=False)) or ["a"]

        def time_batch(count: int) -> tuple[int, float]:
            """Return the tokens of a batch of `count` texts, and its seconds."""
            texts = [" ".join(generator.choices(words, k=TRIAL_WORDS)) for _ in range(count)]
            queued = self.read(texts, texts if self.pairs else None, None)
            seconds = min(call(partial(self._time, queued)) for _ in range(TRIALS))
            return sum(text.lengths[0] for text in queued), seconds

        all_threads = self.served.threads
        self._threads = -(-all_threads // MAX_WORKERS)
        count = MIN_BATCH_TOKENS // TRIAL_WORDS
        tokens, seconds = time_batch(count)
        while self._threads < all_threads and seconds * MIN_BATCH_TOKENS > SLOW_BATCH_SECONDS * tokens:
            self._threads = min(2 * self._threads, all_threads)
            tokens, seconds = time_batch(count)
        while seconds < BATCH_SECONDS and tokens < MAX_BATCH_TOKENS:
            count *= 2
            tokens, seconds = time_batch(count)
        self.workers = all_threads // self._threads
        self.speed = self.workers * tokens / seconds
        self.budget = max(MIN_BATCH_TOKENS, min(MAX_BATCH_TOKENS, int(tokens / seconds * BATCH_SECONDS)))

    def _time(self, texts: Sequence[QueuedText]) -> float:
        """Return the seconds that the answers to tokenized texts take."""
        started = time.perf_counter()
        for text, output in zip(texts, self.outputs([QueuedWindow(text, 0) for text in texts]), strict=True):
            text.outputs = [output]
        self.answer(texts)
        return time.perf_counter() - started


def _scored_labels(served: ServedTask) -> list[str]:
    task = served.task
    if task.problem_type == "regression":  # its score would be its value again
        return []
    try:
        task.scores(np.zeros((0, len(task.labels)), dtype=np.float32))
    except BrimfulError:  # the task has no scores of whole texts
        return []
    return list(task.labels)


def _spans_of(encoding: Encoding, number: int) -> list[tuple[int, int]]:
    """Return the characters of each token of the first (0) or second (1) text of a pair."""
    places = zip(encoding.offsets, encoding.sequence_ids, strict=True)
    return [span for span, sequence in places if sequence == number]


def open_models(options: Sequence[ModelOptions], call: Callable[..., Any]) -> dict[str, BatchModel]:
    """Open models under their folders' names, and measure them with `call`; refuse two of one name."""
    models = {}
    for each in options:
        # Links are not followed: a link keeps its name when it is pointed at another model.
        name = Path(os.path.abspath(each.model)).name
        require_utf8(name)
        if name in models:
            raise BrimfulError(f"two models are called {name}, as their folders are; rename one")
        models[name] = BatchModel(name, open_served(each))
    for model in models.values():  # once all are open, so that each is measured with the others in memory
        model.measure(call)
    return models
