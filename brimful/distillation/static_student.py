"""`brimful distil --student static`: a linear classifier of token vectors, which numpy alone serves."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brimful.console import say
from brimful.data.examples import Examples
from brimful.distillation.config import STATIC
from brimful.distillation.static_training import StaticConfig, token_vectors, train_static
from brimful.distillation.students import add_tfidf, latency
from brimful.errors import BrimfulError
from brimful.judging.baselines import TIMED, median_ms
from brimful.judging.comparison import differences
from brimful.judging.uncertainty import over_seeds
from brimful.model.encoder import Encoder
from brimful.objectives.imitation import TEACHER
from brimful.runs.directory import start_run
from brimful.runs.job import finish
from brimful.tasks.classification import Classification
from brimful.tasks.data import TaskData
from brimful.tasks.model import TaskModel
from brimful.tasks.output import write_rows
from brimful.tasks.static import StaticModel
from brimful.tasks.task import LEAST
from brimful.text.special_ids import special_ids


@dataclass(frozen=True)
class StaticDistillation:
    """What a static student learns from.

    Attributes:
        encoder: whose token vectors it starts from, with its tokenizer.
        texts: examples of the encoder's tokens with the target `TEACHER`.
        taught: the teachers' answers for test; None where they have none.
        teacher: the one model that teaches; None where there is another teacher.
        count: of the texts.
    """

    encoder: Encoder
    texts: Examples
    data: TaskData
    taught: Any
    teacher: TaskModel | None
    count: int
    temperature: float


def require_static(data: TaskData) -> Classification:
    """The task, if a static student can have it.

    Raises:
        BrimfulError: it is not classification of single texts.
    """
    if not isinstance(data.task, Classification) or data.train.table.second is not None:
        raise BrimfulError(f"--student {STATIC} is for classes of single texts; this is {data.task.name}")
    return data.task


def ids_of(examples: Examples, encoder: Encoder) -> list[np.ndarray]:
    """The tokens of each example without special tokens, as `StaticModel` reads texts."""
    assert encoder.tokenizer is not None
    special = special_ids(encoder.tokenizer)
    return [ids[~np.isin(ids, (special.cls, special.sep, special.pad))] for ids in examples.tokens]


def distil_static(given: StaticDistillation, config: Any, directory: Path, inputs: dict[str, int]) -> None:
    """Train static students, one for each seed; save the one that is best on dev, else the first, and write
    summary.json.

    Args:
        config: a DistilConfig, resolved.
    """
    data, encoder = given.data, given.encoder
    task = require_static(data)
    start_run(directory, config, inputs)
    say(f"static students of {encoder.config.hidden_size} numbers a token on {given.count:,} texts")
    started = time.perf_counter()
    logits = torch.from_numpy(np.array(given.texts.targets[TEACHER]))
    chances = torch.softmax(logits / given.temperature, -1).numpy()
    vectors, labelled = token_vectors(encoder), data.train.examples

    def trained(texts: Examples, targets: np.ndarray) -> list[StaticModel]:
        ids, length = ids_of(texts, encoder), labelled.max_length
        settings = [StaticConfig(seed=seed) for seed in config.seeds]
        return [
            train_static(encoder, ids, targets, task.labels, each, max_length=length, vectors=vectors)
            for each in settings
        ]

    def answers_of(model: StaticModel, part: Any) -> np.ndarray:
        return np.log(np.maximum(model.predict(part.table.texts), LEAST)).astype(np.float32)

    models = trained(given.texts, chances)
    answers = {"student": [answers_of(model, data.test) for model in models]}
    if config.baseline:
        alone = trained(labelled, np.asarray(labelled.targets["label"]))
        answers["student_without_distillation"] = [answers_of(model, data.test) for model in alone]
    seconds = time.perf_counter() - started
    on_dev = [{} if data.dev is None else task.measure(answers_of(m, data.dev), data.dev) for m in models]
    best = max(range(len(models)), key=lambda index: task.metrics[0].score(on_dev[index]))
    model, shown = models[best], answers["student"][best]
    singles = [[text] for text in list(data.test.table.texts)[:TIMED]]
    size = sum(array.nbytes for array in (model.vectors, model.matrix, model.bias))
    measured = {
        name: over_seeds([task.measure(each, data.test) for each in its]) for name, its in answers.items()
    }
    if given.taught is not None:
        measured["teacher"], answers["teacher"] = task.measure(given.taught, data.test), [given.taught]
    parameters = {"student": model.parameters}
    megabytes = {"student": size / 1e6}
    milliseconds = {"student": median_ms(model.predict, singles, 3)}
    if given.teacher is not None:
        parameters["teacher"] = given.teacher.parameters
        megabytes["teacher"] = 4 * given.teacher.parameters / 1e6
        milliseconds["teacher"] = latency(given.teacher, data.test.table)
    for name, count in parameters.items():
        measured[name] = measured.get(name, {}) | {"parameters": count}
    summary: dict[str, Any] = {
        "kind": "distil",
        "task": task.name,
        "primary_metric": task.metrics[0].name,
        **measured,
        "test": {"n": len(data.test)},
        "texts": given.count,
        **task.facts,
        "parameters": parameters,
        "megabytes": megabytes,
        "latency_ms": milliseconds,
        "seconds": seconds,
    }
    model.save(directory / "model")
    write_rows(directory / "predictions.jsonl", task.compared_rows(shown, data.test))
    if config.baseline:
        add_tfidf(summary, answers, data)
    summary["comparisons"] = differences(task, answers, data.test)
    finish(directory, summary)
