"""The work of an encoder's distillation: first its teacher's layers, then its vectors."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from brimful.base.summary import with_overview
from brimful.data.examples import Examples
from brimful.distillation.distil_summary import summarise_encoder_distillation
from brimful.distillation.encoder.plan import DistilEncoderPlan
from brimful.distillation.trainings import StageTrainer, StreamedTexts
from brimful.hf.folders import save_model
from brimful.hf.text_reading import TextReading
from brimful.model.inference import run_by_sequence
from brimful.objectives.imitation import TEACHER, VectorDistillation
from brimful.runs.folder import RunFolder
from brimful.runs.job import Summary
from brimful.tables.table import Table
from brimful.tasks.encoded import encode


def work(plan: DistilEncoderPlan, folder: RunFolder) -> Summary:
    """Train the student, save it, and compare its vectors with the teacher's.

    Raises:
        BrimfulError: the vectors are not one for each text.
        StoppedError: a signal asked to stop.
    """
    config, teacher, student, runtime = plan.config, plan.teacher, plan.student, plan.runtime
    trainer = StageTrainer(config, folder, runtime)
    parts, shards = plan.texts.parts, plan.texts.shards
    texts = Examples.chained([part.examples for part in parts]) if parts else None
    width = student.config.hidden_size if teacher.encoder is None else teacher.encoder.config.hidden_size
    if texts is not None and (config.vectors.epochs or teacher.encoder is None):
        vectors = teacher.of_texts(parts, plan.texts.sizes, student, plan.same, runtime)
        texts, width = replace(texts, targets={TEACHER: vectors}), vectors.shape[1]
    reading = teacher.reading or TextReading(plan.max_length)
    pooling = student.pooling or reading.pooling
    objective = VectorDistillation(student, pooling, width, config.vectors.loss)
    trained = {"encoder": student, "projections": objective.projections}
    modules: dict[str, Any] | None = None
    learned: Examples | StreamedTexts | None = texts if shards is None else shards
    if plan.layers is not None and learned is not None:
        trainer.train("layers", config.seed, config.layers, learned, student, plan.layers, trained)
    if texts is not None:
        trainer.train("vectors", config.seed, config.vectors, texts, student, objective, trained)
        if config.vectors.epochs:  # else how it makes vectors is as unknown as before
            reading = replace(reading, max_length=plan.max_length, prompt="", pooling=pooling)
            modules, student.pooling = reading.arguments, None if pooling == "max" else pooling
    measured: dict[str, Any] = {}
    if plan.texts.test is not None and teacher.encoder is not None:
        measured = {"test": _agreement(plan, plan.texts.test, objective)}
    if not runtime.world.is_main:
        return {}
    models = {"student": student} | ({} if teacher.encoder is None else {"teacher": teacher.encoder})
    parameters = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    save_model(folder.path / "encoder", student, max_length=plan.max_length, modules=modules)
    facts = {
        "kind": "distil-encoder",
        **measured,
        "texts": plan.texts.count,
        "parameters": parameters,
        "megabytes": {name: 4 * count / 1e6 for name, count in parameters.items()},
        "precision": runtime.precision,
        "seconds": trainer.seconds,
    }
    return with_overview(facts, summarise_encoder_distillation(facts))


def _agreement(plan: DistilEncoderPlan, test: Table, objective: VectorDistillation) -> dict[str, float]:
    """The mean cosine of the vectors of student and teacher on other texts."""
    student, runtime = plan.student, plan.runtime
    assert student.tokenizer is not None
    data = encode(test, student.tokenizer, plan.max_length)
    theirs = torch.from_numpy(np.array(plan.teacher.vectors(data, student, plan.same, runtime)))
    student.to(runtime.device).eval()
    objective.projections.to(runtime.device)
    vectors = partial(objective.vectors, student)
    ours = run_by_sequence(vectors, data.examples, runtime.device, precision=runtime.precision)
    cosine = torch.cosine_similarity(torch.from_numpy(ours), theirs, dim=-1)
    return {"n": len(test), "cosine": float(cosine.mean())}
