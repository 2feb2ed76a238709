"""The verb `brimful distil`: a small student learns from teachers (TinyBERT: Jiao et al., 2020).

There are two stages. First the student imitates the embeddings, hidden states and attention scores of a
teacher's layers. Then it imitates the teachers' outputs. Both stages need texts and no labels, so unlabelled
text of the same kind is as good as the training table.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from brimful.commands.distil_recipe import run_recipe
from brimful.config import config_hash, identity, verb
from brimful.console import say
from brimful.distillation.config import STATIC, DistilConfig, finetuning_of
from brimful.distillation.encoder_student import distil_encoder
from brimful.distillation.material import files_of, learning_material
from brimful.distillation.shards import absolute_sources
from brimful.distillation.static_student import StaticDistillation, distil_static, require_static
from brimful.distillation.students import Distillation, Students, add_tfidf, latency
from brimful.distillation.trainings import StageTrainer
from brimful.distributed import World, world
from brimful.errors import BrimfulError, UsageError
from brimful.finetuning.config import FinetuneConfig
from brimful.folder_lock import FolderLock
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.judging.comparison import differences
from brimful.judging.uncertainty import over_seeds
from brimful.reports.distil_table import show_distilled
from brimful.runs.directory import (
    SUMMARY,
    absolute,
    check_inputs,
    finish_run,
    finished_run,
    open_run,
    start_run,
)
from brimful.runs.folder import RunFolder
from brimful.runs.job import finish
from brimful.runs.restart import restarted
from brimful.runs.signals import StoppedError
from brimful.storage import read_json
from brimful.tasks.output import write_rows
from brimful.train.objective import Runtime
from brimful.train.verdict import verdict_of_trainings


@verb(DistilConfig, show=show_distilled)
def distil(config: DistilConfig) -> dict[str, Any]:
    """Train a smaller student to imitate teachers: first the layers of a model, then outputs.

    Returns:
        the content of summary.json: `teacher.METRIC`, `student.METRIC`, `test.n` ...

    Raises:
        BrimfulError: a teacher, a table or the run directory is unusable; or one of them has changed since
            the run that is resumed began.
        StoppedError: a signal asked the run to stop.
    """
    dry_run = config.dry_run
    with world() as ranks, FolderLock() as lock:
        config = restarted(config, ranks)
        if (summary := finished_run(config, "distil", ranks)) is not None:
            return summary
        taught = config.teachers or config.teacher_scores or (config.recipe and config.encoder)
        if config.resume is None and not taught:
            raise UsageError("distil needs --teacher or --teacher-scores, and --out, or --resume RUN")
        config, directory, resuming = open_run(config, "distil", ("out",), ranks, lock)
        if config.encoder and not config.recipe:
            raise UsageError("--encoder is for --recipe task; the model to imitate is --teacher")
        if config.recipe:
            if dry_run:
                return run_recipe(config, directory, distil)
            config = _resolved(config)
            if not resuming:  # what would stop a later step is refused before the first one
                run_recipe(replace(config, dry_run=True), directory, distil)
            if ranks.is_main and not resuming:
                start_run(directory, config)
            ranks.barrier()
            try:
                summary = run_recipe(config, directory, distil)
            except StoppedError as stopped:
                raise stopped.resumed_by(f"--resume {directory}") from stopped
            if ranks.is_main:
                finish_run(directory, summary)
            ranks.barrier()
            return summary
        runtime = Runtime.of(ranks, config.precision)
        config = replace(config, precision=runtime.precision)
        origin = finetuning_of(Path(config.teachers[0])) if config.teachers else None
        if _without_task(config, origin):
            try:
                return distil_encoder(config, directory, resuming, runtime)
            except StoppedError as stopped:
                raise stopped.resumed_by(f"--resume {directory}") from stopped
        if config.data:
            raise BrimfulError(
                "--data is for the student of an encoder, and for --recipe task; a task's student learns from"
                " --train and --unlabelled"
            )
        if config.vectors != DistilConfig().vectors:
            raise BrimfulError("the student of a task learns no vectors: --logits sets its second stage")
        static = config.student == STATIC
        if static:  # of the teacher's tokens, and of no shape
            alone = replace(config.layers, epochs=0.0)
            distillation = learning_material(
                replace(config, student=None, layers=alone), origin, runtime, computes=not dry_run
            )
        else:
            distillation = learning_material(config, origin, runtime, computes=not dry_run)
        inputs = check_inputs(directory, files_of(distillation))
        texts = distillation.count
        if static:
            return _static(_resolved(config), distillation, directory, inputs, ranks)
        new = distillation.start.student(distillation.data, config.seeds[0]).encoder.config
        if dry_run:
            return {"dry_run": True, "texts": texts, "student_layers": new.layers}
        if ranks.is_main and not resuming:
            taught = "the scores"
            if distillation.teachers:
                old = distillation.teachers[0].model.encoder.config
                taught = f"{old.layers} layers of width {old.hidden_size}"
            say(f"distilling {taught} into {new.layers} layers of width {new.hidden_size} on {texts:,} texts")
        config = _resolved(config)
        if ranks.is_main:
            start_run(directory, config, inputs)
        ranks.barrier()
        folder = RunFolder(directory, ranks, resuming, config_hash([identity(config), inputs]))
        try:
            return _run(replace(distillation, config=config), folder, runtime)
        except StoppedError as stopped:
            raise stopped.resumed_by(f"--resume {directory}") from stopped


def _static(
    config: DistilConfig, given: Distillation, directory: Path, inputs: dict[str, int], ranks: World
) -> dict[str, Any]:
    """A static student instead of one with layers; on the main rank, since it takes seconds."""
    require_static(given.data)
    if config.dry_run:
        return {"dry_run": True, "texts": given.count, "student_layers": 0}
    encoder = given.start.encoder
    if given.start.origin is not None:
        encoder, _ = load_pretrained(given.start.origin.encoder_folder)
        encoder.pooling = given.start.pooling()
    material = StaticDistillation(
        encoder,
        given.texts,
        given.data,
        given.taught,
        given.teachers[0].model if config.single else None,
        given.count,
        config.temperature,
    )
    if ranks.is_main:
        distil_static(material, config, directory, inputs)
    ranks.barrier()
    return read_json(directory / SUMMARY)


def _without_task(config: DistilConfig, origin: FinetuneConfig | None) -> bool:
    """Whether the student is an encoder that gives vectors."""
    if config.teachers:
        return origin is None and not ModelFolder.open(config.teachers[0], "model").has_task
    return not config.test and not config.teachers


def _resolved(config: DistilConfig) -> DistilConfig:
    """The configuration with everything that it needs to mean the same elsewhere."""

    def place(path: str | None) -> str | None:
        return path and absolute(path)

    return replace(
        config,
        teacher=tuple(map(absolute, config.teachers)) or None,
        teacher_scores=tuple(map(absolute, config.teacher_scores)),
        student=STATIC if config.student == STATIC else place(config.student),
        encoder=place(config.encoder),
        train=place(config.train),
        dev=place(config.dev),
        test=place(config.test),
        unlabelled=tuple(map(absolute, config.unlabelled)),
        data=absolute_sources(config.data),
    )


def _run(distillation: Distillation, folder: RunFolder, runtime: Runtime) -> dict[str, Any]:
    """Train all students, save the one that is best on dev, else the first, and return the summary."""
    config, data, ranks = distillation.config, distillation.data, runtime.world
    task, directory, primary = data.task, folder.path, data.task.metrics[0]
    students = Students(distillation, StageTrainer(config, folder, runtime))
    trained = {"student": [students.distilled(seed) for seed in config.seeds]}
    best = max(trained["student"], key=lambda one: primary.score(one.dev))
    models = {"student": best.model}
    if config.baseline:
        trained["student_without_distillation"] = [students.undistilled(seed) for seed in config.seeds]
        if distillation.imitated is not None and distillation.start.dropped is not None:
            dropped = [students.layer_drop(seed) for seed in config.seeds]
            trained["student_layer_drop"] = dropped
            models["student_layer_drop"] = dropped[0].model
    ranks.barrier()  # every rank has read the kept weights, and leaves the processors to the main one
    if ranks.is_main:
        measured = {name: over_seeds([one.test for one in models]) for name, models in trained.items()}
        answers = {name: [one.answers for one in models] for name, models in trained.items()}
        if distillation.taught is not None:
            measured["teacher"] = task.measure(distillation.taught, data.test)
            answers["teacher"] = [distillation.taught]
        if distillation.teachers and config.single:
            models["teacher"] = distillation.teachers[0].model
        parameters = {name: model.parameters for name, model in models.items()}
        for name, count in parameters.items():
            measured[name] = {**measured.get(name, {}), "parameters": count}
        summary = {
            "kind": "distil",
            "task": task.name,
            "primary_metric": primary.name,
            **measured,
            "test": {"n": best.test["n"]},
            "texts": distillation.count,
            **task.facts,
            "parameters": parameters,
            "megabytes": {name: 4 * count / 1e6 for name, count in parameters.items()},
            "latency_ms": {name: latency(model, data.test.table) for name, model in models.items()},
            "precision": runtime.precision,
            "seconds": students.trainer.seconds,
        }
        best.model.to(runtime.device).save(directory / "model", token_types=data.train.examples.typed)
        write_rows(directory / "predictions.jsonl", task.compared_rows(best.answers, data.test))
        if config.baseline:
            add_tfidf(summary, answers, data)
        summary["comparisons"] = differences(task, answers, data.test)
        summary |= verdict_of_trainings(students.trainer.folders)
        finish(directory, summary)
    ranks.barrier()
    return read_json(directory / SUMMARY)
