"""The verb `brimful distil`: a small student learns from teachers (TinyBERT: Jiao et al., 2020).

There are two stages. First the student imitates the embeddings, hidden states and attention scores of a
teacher's layers. Then it imitates the teachers' outputs. Both stages need texts and no labels, so unlabelled
text of the same kind is as good as the training table.
"""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brimful.augmentation.tokens import augmented
from brimful.commands.distil_config import STATIC, TFIDF, DistilConfig, finetuning_of
from brimful.commands.distil_encoder import distil_encoder
from brimful.commands.distil_recipe import run_recipe
from brimful.commands.distil_shards import absolute_sources
from brimful.commands.distil_stages import StageTrainer
from brimful.commands.distil_start import Start, start_of
from brimful.commands.distil_static import StaticDistillation, distil_static, require_static
from brimful.commands.distil_students import Distillation, Students, add_tfidf, latency
from brimful.commands.distil_table import show_distilled
from brimful.commands.finetune_config import FinetuneConfig
from brimful.commands.verdict import verdict_of_trainings
from brimful.config import config_hash, identity, verb
from brimful.console import say, warn
from brimful.data.augmented import AugmentedExamples, require_augmentable
from brimful.data.examples import Examples
from brimful.distributed import World, world
from brimful.errors import BrimfulError, UsageError
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import load_pretrained
from brimful.objectives.imitation import TEACHER, LayerDistillation
from brimful.objectives.losses import CHOICE
from brimful.runs.directory import (
    CONFIG,
    absolute,
    check_inputs,
    find_model,
    finish_run,
    finished_run,
    model_files,
    open_run,
    start_run,
)
from brimful.runs.restart import restarted
from brimful.runs.signals import StoppedError
from brimful.runs.stages import Stages, finish_stages
from brimful.storage import crc32
from brimful.tasks.baselines import Tfidf, available, taught
from brimful.tasks.cache import TaskFiles
from brimful.tasks.comparison import differences
from brimful.tasks.data import TaskData, load_task_data, require_pairs, warn_of_cut
from brimful.tasks.encoded import Encoded
from brimful.tasks.layouts import OWN, find_layout
from brimful.tasks.metrics import over_seeds
from brimful.tasks.model import TaskModel, holds_task_model, load_task_model
from brimful.tasks.output import write_rows
from brimful.tasks.registry import task_of
from brimful.tasks.table import Table, with_text
from brimful.tasks.task import Outputs
from brimful.tasks.teachers import ModelTeacher, averaged, know_all, order_of_labels, read_scores
from brimful.train.objective import Runtime


def _load_teachers(config: DistilConfig) -> list[ModelTeacher]:
    """The task models, whose labels are put in the order of the data later."""
    found = []
    for path in config.models:
        model = load_task_model(path)
        files = model_files("teacher", find_model(Path(path), "model"))
        crcs = {name: crc32(file) for name, file in files.items()}
        found.append(ModelTeacher(model, list(range(len(model.task.labels))), path, crcs))
    return found


def _tables(config: DistilConfig, origin: FinetuneConfig | None) -> tuple[str, str | None, str]:
    """Paths of train, dev and test: those given, else those of the teacher's run."""
    known = origin.tables if origin else (None, None, None)
    train, test = config.train or known[0], config.test or known[2]
    dev = config.dev or (None if config.train else known[1])
    if train is None or test is None:
        if not config.models:
            raise UsageError(
                "without a model as --teacher, whose tables would be used: give --train and --test"
            )
        raise UsageError(
            f"{config.models[0]} is not a run of `brimful finetune`, whose tables would be used: give --train"
            " and --test"
        )
    return train, dev, test


def _prepare(
    config: DistilConfig, origin: FinetuneConfig | None, runtime: Runtime, *, computes: bool
) -> Distillation:
    """
    Args:
        computes: whether the teachers are asked; a dry run does not.
    """
    ranks = runtime.world
    teachers = _load_teachers(config)
    first = teachers[0] if teachers else None
    tables = _tables(config, origin)
    columns = origin.columns if origin and config.columns == OWN else config.columns
    layout = find_layout(config.layout or (origin.layout if origin else None), columns)
    start = start_of(config, origin, first)
    kind = type(first.model.task) if first else task_of(config.task, layout)
    for each in teachers:
        if type(each.model.task) is not kind or config.task not in (None, kind.name):
            raise BrimfulError(
                f"the teacher {each.name} is a model of {each.model.task.name}, not of"
                f" {config.task or kind.name}"
            )
    data = load_task_data(
        kind,
        start.encoder,
        *tables,
        max_length=start.max_length,
        overlap=start.overlap,
        windows=False,
        split=False,
        layout=layout,
        metric=origin.metric if origin else None,
        ranks=ranks,
    )
    task = data.task
    teachers = [replace(each, order=order_of_labels(each.model, task.labels, each.name)) for each in teachers]
    task.imitation(config.logits.loss, config.temperature)  # so that a wrong setting is refused now
    parts = [data.train.take(with_text(data.train.table))]
    sizes = [len(data.train)]
    unlabelled = TaskFiles(kind, find_layout(None, columns), ranks, labelled=False)
    assert start.encoder.tokenizer is not None
    for path in config.unlabelled:
        more = unlabelled.encode(task, path, start.encoder.tokenizer, start.max_length, start.overlap)
        require_pairs(more.table, data.train.table.second is not None, data.train.table.path)
        if ranks.is_main:
            warn_of_cut(more.examples.cut, len(more), path, start.max_length, windows=False)
        sizes.append(len(more))
        parts.append(more.take(with_text(more.table)))
    student = start.student(data, config.seeds[0])
    imitated = (
        teachers[0] if teachers and all(teachers[0].reads_as(student, each) for each in parts) else None
    )
    if config.layers.epochs and imitated:  # refused now, if it must be
        LayerDistillation(imitated.model.encoder, student.encoder, config.layers.losses)
    elif config.layers.epochs and ranks.is_main:
        why = "does not read the student's tokens" if teachers else "has no layers"
        say(f"the teacher {why}: its outputs alone are imitated, not its layers")
    outputs, taught_test = _outputs(
        config, data, parts, sizes, teachers, imitated, student, runtime, computes=computes
    )
    if config.augment.copies and (imitated is None or not config.single):
        raise BrimfulError("copies of texts need one model as --teacher, which reads the student's tokens")
    examples = [
        part.examples if said is None else _with_target(part, said)
        for part, said in zip(parts, outputs, strict=True)
    ]
    chained = Examples.chained(examples)
    if not config.logits.labels:
        kept = (TEACHER, CHOICE)
        chained = replace(chained, targets={k: v for k, v in chained.targets.items() if k in kept})
    texts: Examples | AugmentedExamples = chained
    if config.augment.copies:
        plain = replace(chained, targets={k: v for k, v in chained.targets.items() if k != TEACHER})
        require_augmentable(plain)  # before the candidates, which take long
        if computes:
            texts = _augmented(config, start, plain, [part.table for part in parts], ranks)
    count = len(texts) if isinstance(texts, AugmentedExamples) else sum(map(len, parts))
    return Distillation(config, start, teachers, imitated, texts, count, data, taught_test)


def _augmented(
    config: DistilConfig,
    start: Start,
    texts: Examples,
    tables: list[Table],
    ranks: World,
) -> AugmentedExamples:
    """The texts with copies, which the teacher is asked about while the student trains."""
    assert start.encoder.tokenizer is not None
    encoder = start.origin.encoder_folder if start.origin else find_model(Path(config.models[0]), "encoder")
    return augmented(config.augment, tables, texts, start.encoder.tokenizer, encoder, ranks=ranks)


def _with_target(part: Encoded, outputs: Outputs) -> Examples:
    """The examples with what the teacher says: of each example, or of a text in all of its windows."""
    examples = part.examples
    if isinstance(outputs, np.ndarray) and len(outputs) != len(examples):
        outputs = outputs[examples.text_of_example]
    return replace(examples, targets=examples.targets | {TEACHER: outputs})


def _outputs(
    config: DistilConfig,
    data: TaskData,
    parts: list[Encoded],
    sizes: list[int],
    teachers: list[ModelTeacher],
    imitated: ModelTeacher | None,
    student: TaskModel,
    runtime: Runtime,
    *,
    computes: bool,
) -> tuple[list[Any], Any]:
    """What the teachers say of each part, and their answers for test; None where they have none.

    Args:
        sizes: the rows of each part's file, with those of empty texts.
        computes: whether models are asked and TF-IDF is fitted; else all is None, and files of scores are
            read, so that wrong ones are refused.
    """
    nothing: tuple[list[Any], Any] = [None] * len(parts), None
    task, test = data.task, data.test
    by_text = isinstance(student.head, SequenceHead)
    if imitated is not None and config.single:
        whole = (imitated.model.max_length, imitated.model.overlap) == (student.max_length, student.overlap)
        if whole or not by_text:
            if not computes:
                return nothing
            return [imitated.outputs(part, runtime) for part in parts], imitated.answers(test, runtime)
    if not by_text:
        raise BrimfulError(
            f"{task.name} is imitated token by token: give one model as --teacher, and a student with its"
            " tokenizer"
        )
    tables = [*(part.table for part in parts), test.table]
    scores = [read_scores(path, task, tables, sizes) for path in config.teacher_scores]
    if TFIDF in config.teachers and (reason := available(task)):
        raise BrimfulError(f"--teacher {TFIDF}: {reason}")
    if not computes:
        return nothing
    if TFIDF in config.teachers:
        fitted = replace(data, train=parts[0], fit=parts[0])
        scores.append([task.scores(each) for each in taught(task, fitted, Tfidf(), tables[1:])])
    calibrated = not config.single  # one model is imitated as it is
    scores += [[each.scores(table, runtime, calibrated) for table in tables] for each in teachers]
    *found, of_test = (list(each) for each in zip(*scores, strict=True))
    outputs = [averaged(task, each, table) for each, table in zip(found, tables, strict=False)]
    if not know_all(of_test):
        warn("no teacher has scores of all test texts: the student's metrics stand alone")
        return outputs, None
    return outputs, averaged(task, of_test, test.table)


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
    with world() as ranks:
        config = restarted(config, ranks)
        if (summary := finished_run(config, "distil", ranks)) is not None:
            return summary
        taught = config.teachers or config.teacher_scores or (config.recipe and config.encoder)
        if config.resume is None and not taught:
            raise UsageError("distil needs --teacher or --teacher-scores, and --out, or --resume RUN")
        config, directory, resuming = open_run(config, "distil", ("out",), ranks)
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
                number = stopped.exit_code - 128
                raise StoppedError(
                    f"stopped by {signal.Signals(number).name}; continue with --resume {directory}", number
                ) from stopped
            if ranks.is_main:
                finish_run(directory, summary)
            ranks.barrier()
            return summary
        runtime = Runtime.of(ranks, config.precision, config.trainer)
        config = replace(config, precision=runtime.precision)
        origin = finetuning_of(Path(config.models[0])) if config.models else None
        if _without_task(config, origin):
            return distil_encoder(config, directory, resuming, runtime)
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
            distillation = _prepare(
                replace(config, student=None, layers=alone), origin, runtime, computes=not dry_run
            )
        else:
            distillation = _prepare(config, origin, runtime, computes=not dry_run)
        inputs = check_inputs(directory, _inputs(distillation))
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
        stages = Stages(directory, config_hash([identity(config), inputs]), ranks)
        return _run(replace(distillation, config=config), stages, runtime)


def _static(
    config: DistilConfig, given: Distillation, directory: Path, inputs: dict[str, int], ranks: World
) -> dict[str, Any]:
    """A static student instead of one with layers; on the main rank, since it takes seconds."""
    require_static(given.data)
    if config.dry_run:
        return {"dry_run": True, "texts": given.count, "student_layers": 0}
    assert isinstance(given.texts, Examples)  # copies are refused with --student static
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
    summary = distil_static(material, config, directory, inputs, main=ranks.is_main)
    ranks.barrier()
    return summary


def _without_task(config: DistilConfig, origin: FinetuneConfig | None) -> bool:
    """Whether the student is an encoder that gives vectors."""
    if config.models:
        return origin is None and not holds_task_model(find_model(Path(config.models[0]), "model"))
    return not config.test and not config.teachers


def _resolved(config: DistilConfig) -> DistilConfig:
    """The configuration with everything that it needs to mean the same elsewhere."""

    def place(path: str | None) -> str | None:
        return path and absolute(path)

    return replace(
        config,
        teacher=tuple(one if one == TFIDF else absolute(one) for one in config.teachers) or None,
        teacher_scores=tuple(map(absolute, config.teacher_scores)),
        student=STATIC if config.student == STATIC else place(config.student),
        encoder=place(config.encoder),
        train=place(config.train),
        dev=place(config.dev),
        test=place(config.test),
        unlabelled=tuple(map(absolute, config.unlabelled)),
        data=absolute_sources(config.data),
    )


def _inputs(distillation: Distillation) -> dict[str, Path]:
    """The files that decide the result of a run."""
    config, start = distillation.config, distillation.start
    files = {f"unlabelled[{i}]": Path(path) for i, path in enumerate(config.unlabelled)}
    files |= {f"teacher_scores[{i}]": Path(path) for i, path in enumerate(config.teacher_scores)}
    tables = zip(("train", "dev", "test"), _tables(config, start.origin), strict=True)
    layout = find_layout(config.layout or (start.origin.layout if start.origin else None))
    for name, path in tables:
        if path:
            files[name], *others = layout.files(Path(path))
            files |= {f"{name}/{other.name}": other for other in others}
    for index, path in enumerate(config.models):
        name = f"teacher[{index}]" if index else "teacher"
        if index == 0 and start.origin is not None:
            files[f"{name}/{CONFIG}"] = Path(path) / CONFIG
        files |= model_files(name, find_model(Path(path), "model"))
    if config.augment.copies:
        of = start.origin.encoder_folder if start.origin else find_model(Path(config.models[0]), "encoder")
        files |= config.augment.files(Path(config.augment.encoder or of))
    if config.student is not None:
        files |= model_files("student", find_model(Path(config.student), "model"))
    elif start.of_origin:
        assert start.origin is not None
        files |= model_files("encoder", start.origin.encoder_folder)
    return files


def _run(distillation: Distillation, stages: Stages, runtime: Runtime) -> dict[str, Any]:
    """Train all students, save the one that is best on dev, else the first, and return the summary."""
    config, data, ranks = distillation.config, distillation.data, runtime.world
    task, directory, primary = data.task, stages.run, data.task.metrics[0]
    students = Students(distillation, StageTrainer(config, stages, runtime))
    trained = {"student": [students.distilled(seed) for seed in config.seeds]}
    best = max(trained["student"], key=lambda one: primary.score(one.dev))
    models = {"student": best.model}
    if config.baseline:
        trained["student_without_distillation"] = [students.undistilled(seed) for seed in config.seeds]
        if distillation.imitated is not None and distillation.start.dropped is not None:
            dropped = [students.layer_drop(seed) for seed in config.seeds]
            trained["student_layer_drop"] = dropped
            models["student_layer_drop"] = dropped[0].model
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
    ranks.barrier()  # every rank has read the kept weights
    if ranks.is_main:
        best.model.to(runtime.device).save(directory / "model", token_types=data.train.examples.typed)
        write_rows(directory / "predictions.jsonl", task.compared_rows(best.answers, data.test))
        if config.baseline:
            add_tfidf(summary, answers, data)
        summary["comparisons"] = differences(task, answers, data.test)
        summary |= verdict_of_trainings(students.trainer.folders)
        finish_stages(directory, summary)
    ranks.barrier()
    return summary
