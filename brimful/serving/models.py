"""A model that is served: texts in, tokenized rows, and the JSON values that answer them.

Answers are those of `brimful predict`: the same examples, the same computation, the same rows.
"""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from brimful.data.examples import Examples, ends_of_reading
from brimful.data.ragged import Ragged
from brimful.errors import BrimfulError
from brimful.prediction.config import Opening
from brimful.prediction.served import ServedEncoder, ServedTask, open_served
from brimful.serving.bodies import Overflow, RefusedError, Texts
from brimful.serving.config import ServeConfig
from brimful.serving.queue import Job, Row
from brimful.tables.table import Table
from brimful.tasks.encoded import Encoded
from brimful.tasks.form import predicted_rows
from brimful.text.beginnings import beginning

SECONDS = 0.02
"""What a batch may take."""
SMALLEST, LARGEST = 256, 1 << 16
"""Tokens of a batch, whatever a model's speed."""
LONG = 1 << 17
"""Characters of a text of which, if it is cut, no more is tokenized than has a chance to be read."""
OVERLAP = 32
"""Tokens that windows share where the model was trained without windows."""
_TRIAL_WORDS, _TRIALS = 24, 3


class Result(NamedTuple):
    """What a model says of a text.

    Attributes:
        value: the row of `predict`; of an encoder, the vector, float32 (width,).
        tokens, windows: that were read of it.
        cut: `truncated_at`, and of a pair `truncated_at_b`: where reading stopped, in code points; without
            them, all was read.
    """

    value: Any
    tokens: int
    windows: int
    cut: dict[str, int]


class Model:
    """A model under a name.

    Attributes:
        served: what computes it.
        task: its name; of an encoder, "embeddings".
        encoder: whether it gives vectors, and `width` their width.
        abstains, scored: whether its rows have a probability, and whether it has one for each label.
        pairs: whether it reads pairs of texts, if known.
        budget: the most tokens of a batch, and `speed` its tokens a second, once they are measured.
    """

    def __init__(self, name: str, served: ServedTask | ServedEncoder, config: ServeConfig) -> None:
        self.name, self.served, self.config = name, served, config
        self.encoder = isinstance(served, ServedEncoder)
        self.task, self.width, self.abstains = "embeddings", getattr(served, "width", 0), False
        self.budget, self.speed = SMALLEST, 1.0
        self._density = 1.0  # tokens for each character, of the texts so far
        self.pairs: bool | None = False
        self.scored = False
        if isinstance(served, ServedTask):
            task = served.task
            self.task, self.abstains = task.name, task.abstains
            self.pairs = True if task.problem_type == "question_answering" else served.pairs
            try:
                task.scores(np.zeros((0, len(task.labels)), dtype=np.float32))
                self.scored = task.problem_type != "regression"  # whose value is its score
            except BrimfulError:  # it has none
                pass
        word = ["a"]
        self._pad = served.encode(self._table(word, word if self.pairs else None), None).examples.pad

    @classmethod
    def open(cls, path: str, config: ServeConfig) -> "Model":
        """The model in a folder, under the folder's name.

        Raises:
            BrimfulError: as `open_served`.
        """
        opening = Opening(model=path, precision=config.precision, device=config.device, stays=True)
        return cls(name_of(path), open_served(opening), config)

    def card(self) -> dict[str, Any]:
        """What /v1/models says of it."""
        served = self.served
        card: dict[str, Any] = {"id": self.name, "object": "model", "task": self.task, "labels": []}
        if isinstance(served, ServedTask):
            card |= {"labels": list(getattr(served.task, "kinds", served.task.labels)), "pairs": self.pairs}
        else:
            card["width"] = self.width
        return card | {
            "max_length": served.max_length,
            "overlap": served.overlap,
            "precision": served.precision,
            "budget": self.budget,
        }

    def job(self, asked: Texts, overflow: Overflow | None, **given: Any) -> Job:
        """A request's texts on their way to this model.

        Raises:
            RefusedError: the model cannot read them so.
        """
        served, texts, second = self.served, asked.texts, asked.second
        if len(texts) > self.config.texts:
            raise RefusedError(
                422, f"{len(texts):,} texts are more than the {self.config.texts:,} of a request"
            )
        if self.pairs is not None and (second is not None) != self.pairs:
            need = "text_b (or texts_b) beside each text" if self.pairs else "texts alone, without text_b"
            raise RefusedError(422, f"{self.name} reads {need}")
        windows = isinstance(served, ServedEncoder) or served.windows
        overlap = served.overlap if overflow is None else None
        if overflow == "window":
            if not windows:
                raise RefusedError(422, f"{self.name} reads no windows; send overflow truncate or reject")
            overlap = served.overlap
            overlap = min(OVERLAP, served.max_length // 4) if overlap is None else overlap
        if overlap is not None or second is not None:
            for text in (*texts, *(second or ())):
                if len(text) > (most := self.config.characters):
                    whole = "a text of a pair" if overlap is None else "a text that is read in windows"
                    raise RefusedError(
                        422,
                        f"{whole} has {len(text):,} characters, more than {most:,}; divide it, or send"
                        " a single text with overflow truncate",
                    )
        tokens = 0
        for text in (*texts, *(second or ())):
            expected = int(len(text) * self._density) + 2
            tokens += min(expected, served.max_length) if overlap is None else expected
        return Job(self, texts, second, overlap=overlap, reject=overflow == "reject", tokens=tokens, **given)

    def rows(self, jobs: Sequence[Job]) -> tuple[list[Row], list[tuple[Job, RefusedError]]]:
        """The tokenized texts of jobs with the same overlap, and the jobs that are refused for theirs."""
        try:
            return self._rows(jobs)
        except BrimfulError as error:
            if len(jobs) == 1:
                return [], [(jobs[0], RefusedError(422, str(error)))]
        rows, refused = list[Row](), list[tuple[Job, RefusedError]]()
        for job in jobs:
            some, bad = self.rows([job])
            rows, refused = rows + some, refused + bad
        return rows, refused

    def _rows(self, jobs: Sequence[Job]) -> tuple[list[Row], list[tuple[Job, RefusedError]]]:
        served, overlap = self.served, jobs[0].overlap
        places = [(job, index) for job in jobs for index in range(len(job.texts))]
        texts = [text for job in jobs for text in job.texts]
        second = [text for job in jobs for text in job.second or ()] or None
        if overlap is None and second is None:
            texts = [
                text
                if len(text) <= LONG
                else beginning(served.tokenizer, text, served.max_length, "a text", longest=LONG)
                for text in texts
            ]
        examples = served.encode(self._table(texts, second), overlap).examples
        tokens, segments = list(examples.tokens), list(examples.segments)
        characters = None if examples.characters is None else list(examples.characters)
        firsts, counts = examples.first_of_text.tolist(), examples.count_of_text.tolist()
        rows, refused = [], dict[int, tuple[Job, RefusedError]]()
        for number, ((job, index), first, count) in enumerate(zip(places, firsts, counts, strict=True)):
            part = slice(first, first + count)
            row = Row(job, index, tokens[part], segments[part], characters and characters[part])
            if overlap is None and row.length >= served.max_length:
                row.cut = self._cut(texts[number], second and second[number])
                if job.reject and row.cut != (None, None):
                    name = f"text {index}" if len(job.texts) > 1 else "the text"
                    message = f"{name} has more tokens than the {served.max_length:,} that {self.name} reads"
                    refused[id(job)] = job, RefusedError(422, message)
            rows.append(row)
        letters = sum(map(len, texts)) + sum(map(len, second or ()))
        if letters > LONG // 64:  # a steady estimate, from no single text
            self._density = 0.8 * self._density + 0.2 * min(1.0, sum(row.length for row in rows) / letters)
        return [row for row in rows if id(row.job) not in refused], list(refused.values())

    def _cut(self, text: str, second: str | None) -> tuple[int | None, int | None]:
        served = self.served
        markers = isinstance(served, ServedEncoder) or served.markers
        return ends_of_reading(served.tokenizer, text, second, served.max_length, markers=markers)

    def _table(self, texts: list[str], second: list[str] | None) -> Table:
        if isinstance(self.served, ServedTask):
            return self.served.task.from_texts(texts, second)
        return Table(Path("texts"), texts, second, None)

    def answers(self, rows: Sequence[Row]) -> list[Result]:
        """What the model says of each text.

        Raises:
            BrimfulError: outputs are NaN or infinite.
        """
        texts = [row.job.texts[row.index] for row in rows]
        second = [row.job.second[row.index] for row in rows if row.job.second is not None] or None
        counts = [len(row.tokens) for row in rows]
        spans = None
        if rows[0].characters is not None:
            spans = Ragged.of([each for row in rows for each in row.characters or ()], np.int32, (2,))
        examples = Examples(
            tokens=[each for row in rows for each in row.tokens],
            segments=[each for row in rows for each in row.segments],
            targets={},
            max_length=self.served.max_length,
            pad=self._pad,
            texts=np.repeat(np.arange(len(rows)), counts) if max(counts) > 1 else None,
            characters=spans,
        )
        data = Encoded(self._table(texts, second), examples)
        if isinstance(self.served, ServedEncoder):
            values: list[Any] = list(self.served.vectors(data))
        else:
            answers = self.served.answers(data)
            values = predicted_rows(self.served.task, answers, data, scores=self.scored)
            for value in values:
                value.pop("id", None)  # of questions: their number in the batch
        each = zip(values, rows, strict=True)
        return [Result(value, row.length, len(row.tokens), _said(row.cut)) for value, row in each]

    def measure(self, call: Callable[[Callable[[], Any]], Any]) -> None:
        """Find `speed` and `budget`: batches of made-up texts grow until one takes `SECONDS`.

        Args:
            call: runs a function in the thread that computes, between two batches.
        """
        rng = random.Random(0)
        words = sorted(self.served.tokenizer.get_vocab(with_added_tokens=False)) or ["a"]
        count = 1
        while True:
            texts = [" ".join(rng.choices(words, k=_TRIAL_WORDS)) for _ in range(count)]
            rows, _ = self.rows([Job(self, texts, texts if self.pairs else None)])
            tokens = sum(row.length for row in rows)
            seconds = min(call(partial(self._seconds, rows)) for _ in range(_TRIALS))
            if seconds >= SECONDS or tokens >= LARGEST:
                break
            count *= 2
        self.speed = tokens / seconds
        self.budget = max(SMALLEST, min(LARGEST, int(self.speed * SECONDS)))

    def _seconds(self, rows: Sequence[Row]) -> float:
        started = time.perf_counter()
        self.answers(rows)
        return time.perf_counter() - started


def _said(cut: tuple[int | None, int | None]) -> dict[str, int]:
    named = zip(("truncated_at", "truncated_at_b"), cut, strict=True)
    return {name: place for name, place in named if place is not None}


def name_of(path: str) -> str:
    """The name of a folder's model: its last part; of the model in a run, the run's."""
    return Path(path).resolve().name


def open_models(config: ServeConfig, call: Callable[[Callable[[], Any]], Any]) -> dict[str, Model]:
    """The models of all folders by name, measured.

    Args:
        call: as in `Model.measure`.

    Raises:
        BrimfulError: one cannot be opened, or two have the same name.
    """
    found: dict[str, Model] = {}
    for path in config.models:
        name = name_of(path)
        if name in found:
            raise BrimfulError(f"two models are called {name}; a model has its folder's name: rename one")
        found[name] = Model.open(path, config)
    for model in found.values():
        model.measure(call)
    return found
