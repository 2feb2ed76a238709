"""The work of a static student: a linear classifier of token vectors, which numpy alone serves."""

import time

import numpy as np
import torch

from brimful.base.summary import with_overview
from brimful.corpus.text.special_ids import special_ids
from brimful.data.examples import Examples
from brimful.distillation.comparison import Size, compared
from brimful.distillation.distil_summary import summarise_distillation
from brimful.distillation.static.plan import DistilStaticPlan
from brimful.distillation.static.training import token_vectors, train_static
from brimful.model.encoder import Encoder
from brimful.objectives.imitation import TEACHER
from brimful.runs.folder import RunFolder
from brimful.runs.job import Summary
from brimful.tasks.encoded import Encoded
from brimful.tasks.judging.comparison import Judged, write_predictions
from brimful.tasks.static import StaticModel
from brimful.tasks.task import MIN_PROBABILITY


def work(plan: DistilStaticPlan, folder: RunFolder) -> Summary:
    """Train a student for each seed on the main rank, since it takes seconds; save the one that is best on
    dev, else the first, and compare it."""
    config, material, data = plan.config, plan.material, plan.material.data
    texts, taught = material.taught(plan.runtime)
    if not plan.runtime.world.is_main:
        return {}
    task = data.task
    started = time.perf_counter()
    logits = torch.from_numpy(np.array(texts.targets[TEACHER]))
    chances = torch.softmax(logits / config.temperature, -1).numpy()
    vectors, labelled = token_vectors(plan.encoder), data.train.examples
    models = _students(plan, texts, chances, vectors)
    answers = {"student": [Judged(task, _answers(model, data.test)) for model in models]}
    if config.baseline != "none":
        alone = _students(plan, labelled, np.asarray(labelled.targets["label"]), vectors)
        answers["student_without_distillation"] = [Judged(task, _answers(m, data.test)) for m in alone]
    seconds = time.perf_counter() - started
    on_dev = [{} if data.dev is None else task.measure(_answers(m, data.dev), data.dev) for m in models]
    best = max(range(len(models)), key=lambda index: task.metrics[0].score(on_dev[index]))
    model = models[best]
    kept = sum(array.nbytes for array in (model.vectors, model.matrix, model.bias))
    size = Size(model.parameters, kept / 1e6, lambda table: model.predict(list(table.texts)))
    model.save(folder.path / "model")
    write_predictions(folder.path / "predictions.jsonl", *answers["student"][best], data.test)
    found = compared(material, answers, taught, {"student": size}, tfidf=config.baseline != "none")
    facts = {"kind": "distil-static", **found, "seconds": seconds}
    return with_overview(facts, summarise_distillation(facts, task.metrics, config.teachers))


def _students(
    plan: DistilStaticPlan, texts: Examples, targets: np.ndarray, vectors: np.ndarray
) -> list[StaticModel]:
    """One for each seed."""
    data, config = plan.material.data, plan.config
    ids, length = token_ids_of(texts, plan.encoder), data.train.examples.max_length
    return [
        train_static(
            plan.encoder,
            ids,
            targets,
            data.task.labels,
            config.training,
            seed=seed,
            max_length=length,
            vectors=vectors,
        )
        for seed in config.seeds
    ]


def token_ids_of(examples: Examples, encoder: Encoder) -> list[np.ndarray]:
    """The tokens of each example without special tokens, as `StaticModel` reads texts."""
    assert encoder.tokenizer is not None
    special = special_ids(encoder.tokenizer)
    return [ids[~np.isin(ids, (special.cls, special.sep, special.pad))] for ids in examples.tokens]


def _answers(model: StaticModel, part: Encoded) -> np.ndarray:
    """Logarithms of the probabilities, float32 (rows, classes)."""
    return np.log(np.maximum(model.predict(part.table.texts), MIN_PROBABILITY)).astype(np.float32)
