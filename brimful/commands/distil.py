"""Distillation as TinyBERT does it (Jiao et al., 2020), on packed rows, and the verb `brimful distil`.

Two stages. First the student imitates the teacher's insides: embeddings, hidden states and raw attention
scores of every g-th layer. Then it imitates the teacher's answers, by soft cross-entropy. Both need texts
and no labels, so unlabelled text of the task's kind is as good as the labelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from brimful.commands.distil_config import DistilConfig, StageConfig
from brimful.commands.finetune import starting_model
from brimful.commands.finetune_config import FinetuneConfig
from brimful.config import build, config_hash, identity, read_yaml, verb
from brimful.console import say
from brimful.data.examples import Examples
from brimful.distributed import world
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import save_model
from brimful.objectives.imitation import LayerDistillation, LogitDistillation
from brimful.runs.directory import (
    CONFIG,
    absolute,
    check_inputs,
    find_model,
    finished_run,
    model_files,
    open_run,
    start_run,
)
from brimful.runs.stages import Stages, finish_stages
from brimful.tasks.classification import (
    Classifier,
    Task,
    example_stream,
    judge,
    load_classifier,
    load_task,
    write_predictions,
)
from brimful.tasks.table import encode, read_texts
from brimful.train.objective import Objective, Runtime
from brimful.train.trainer import Trainer


def spread_layers(layers: Sequence[int], kept: int) -> tuple[int, ...]:
    """Which of a teacher's `layers` a student of `kept` layers starts from: every g-th, the last included."""
    every = len(layers) // kept
    return tuple(layers[every * (index + 1) - 1] for index in range(kept))


@dataclass(frozen=True)
class Lesson:
    """Who teaches whom, on what.

    Attributes:
        finetuned: the configuration of the teacher's run, whose tables are used again.
        texts: what the student learns from, without labels.
        task: what it is judged on.
    """

    finetuned: FinetuneConfig
    teacher: Classifier
    student: Classifier
    texts: Examples
    task: Task


def _starts_trained(config: DistilConfig, teacher: Classifier) -> bool:
    """Whether the student starts from layers of the encoder that the teacher was fine-tuned from."""
    width = teacher.encoder.config.hidden_size
    return config.initialisation == "pretrained" and config.student_hidden in (None, width)


def _student(config: DistilConfig, finetuned: FinetuneConfig, teacher: Classifier) -> Classifier:
    """The student before it has learned anything: as `brimful finetune --layers` would start it."""
    shape, labels = teacher.encoder.config, teacher.labels
    width = config.student_hidden or shape.hidden_size
    if config.student_layers < 1 or shape.layers % config.student_layers:
        raise BrimfulError(
            f"student_layers is {config.student_layers}: it must divide the teacher's {shape.layers} layers"
        )
    if _starts_trained(config, teacher):
        layers = spread_layers(finetuned.layers or range(shape.layers), config.student_layers)
        start = replace(
            finetuned, initialisation="pretrained", layers=layers, dropout=0.0, attention_dropout=0.0
        )
        return Classifier(*starting_model(start, config.seed, len(labels)), labels, teacher.max_length)
    torch.manual_seed(config.seed)
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    encoder = Encoder(
        replace(
            shape,
            layers=config.student_layers,
            hidden_size=width,
            intermediate_size=inner,
            dropout=0.0,
            attention_dropout=0.0,
        )
    )
    encoder.tokenizer = teacher.encoder.tokenizer
    return Classifier(encoder, SequenceHead(encoder, len(labels)), labels, teacher.max_length)


def _transfer_texts(config: DistilConfig, finetuned: FinetuneConfig, teacher: Classifier) -> Examples:
    """All texts to learn from, without labels: the teacher's training table, then the unlabelled files.

    Empty texts are left out; the training table has others, since two classes need two texts.
    """
    assert teacher.encoder.tokenizer is not None
    parts = []
    for path in (finetuned.tables[0], *config.unlabelled):
        table = read_texts(path)
        table = table.take([row for row, text in enumerate(table.texts) if text])
        parts.append(encode(table, teacher.encoder.tokenizer, teacher.max_length))
    return Examples(
        tokens=[ids for part in parts for ids in part.tokens],
        segments=[types for part in parts for types in part.segments],
        targets={},
        max_length=teacher.max_length,
        pad=parts[0].pad,
    )


def _prepare_lesson(config: DistilConfig) -> Lesson:
    assert config.teacher is not None
    run = Path(config.teacher)
    if not (run / CONFIG).is_file():
        raise BrimfulError(f"{run} is not a run of `brimful finetune`: it has no {CONFIG}")
    try:
        finetuned = build(FinetuneConfig, read_yaml(run / CONFIG))
    except BrimfulError as error:
        raise BrimfulError(f"{run} is not a run of `brimful finetune` ({error})") from error
    if not (finetuned.encoder and finetuned.train and finetuned.test):
        raise BrimfulError(f"{run} is not a run of `brimful finetune`: {CONFIG} lacks encoder, train or test")
    teacher = load_classifier(run)
    task = load_task(teacher.encoder, *finetuned.tables, max_length=teacher.max_length, split=False)
    if task.labels != teacher.labels:
        raise BrimfulError(
            f"the teacher's labels {teacher.labels} are not {finetuned.train}'s: {task.labels}"
        )
    student = _student(config, finetuned, teacher)
    return Lesson(finetuned, teacher, student, _transfer_texts(config, finetuned, teacher), task)


@verb(DistilConfig)
def distil(config: DistilConfig) -> dict[str, Any]:
    """Teach a smaller student what a fine-tuned teacher does: its layers first, then its answers.

    Returns:
        what summary.json holds: `teacher.accuracy`, `student.accuracy`, `test.n` ...

    Raises:
        BrimfulError: the teacher is no finished fine-tuning run, a table or the run directory is unusable; to
            go on, one that has changed.
        StoppedError: a signal asked for it.
    """
    dry_run = config.dry_run
    with world() as ranks:
        if (summary := finished_run(config, "distil", ranks)) is not None:
            return summary
        config, directory, resuming = open_run(config, "distil", ("teacher", "out"), ranks)
        runtime = Runtime.of(ranks, config.precision, config.trainer)
        lesson = _prepare_lesson(config)
        inputs = check_inputs(directory, _inputs(config, lesson))
        old, new = lesson.teacher.encoder.config, lesson.student.encoder.config
        if ranks.is_main and not resuming:
            say(
                f"distilling {old.layers} layers of width {old.hidden_size} into {new.layers} of width"
                f" {new.hidden_size} on {len(lesson.texts):,} texts"
            )
        if dry_run:
            return {"dry_run": True, "texts": len(lesson.texts), "student_layers": new.layers}
        config = replace(
            config,
            teacher=config.teacher and absolute(config.teacher),
            unlabelled=tuple(map(absolute, config.unlabelled)),
            precision=runtime.precision,
        )
        if ranks.is_main:
            start_run(directory, config, inputs)
        ranks.barrier()
        parts = Stages(directory, config_hash([identity(config), inputs]), ranks)
        return _distil(config, lesson, parts, runtime)


def _inputs(config: DistilConfig, lesson: Lesson) -> dict[str, Path]:
    """The files that decide what a run gives."""
    assert config.teacher is not None
    teacher = Path(config.teacher)
    files = {f"unlabelled[{i}]": Path(path) for i, path in enumerate(config.unlabelled)}
    tables = zip(("train", "dev", "test"), lesson.finetuned.tables, strict=True)
    files |= {name: Path(path) for name, path in tables if path}
    files |= {f"teacher/{CONFIG}": teacher / CONFIG} | model_files("teacher", find_model(teacher, "model"))
    if _starts_trained(config, lesson.teacher):
        files |= model_files("encoder", lesson.finetuned.encoder_folder)
    return files


def _distil(config: DistilConfig, lesson: Lesson, parts: Stages, runtime: Runtime) -> dict[str, Any]:
    teacher, student, task = lesson.teacher, lesson.student, lesson.task
    directory, ranks = parts.run, runtime.world
    learned = {"encoder": student.encoder, "head": student.head}
    seconds = 0.0

    def train(name: str, stage: StageConfig, objective: Objective) -> None:
        nonlocal seconds
        folder = directory / "stages" / name

        def trainer() -> Trainer:
            return Trainer(
                student.encoder,
                objective,
                example_stream(lesson.texts, config.batch, config.micro_batch_tokens, config.seed, runtime),
                runtime,
                folder,
                config=replace(
                    config.trainer, steps=max(1, round(stage.epochs * len(lesson.texts) / config.batch))
                ),
                optimizer=replace(config.optimizer, learning_rate=stage.learning_rate),
                schedule=config.schedule,
                seed=config.seed,
                identity=parts.identity,
            )

        result = parts.train(folder, f"distil {name}", trainer, learned)
        result.load(learned)
        seconds += result.seconds

    if config.layers.epochs:
        train("layers", config.layers, LayerDistillation(teacher.encoder, student.encoder))
    answers = LogitDistillation(teacher.encoder, teacher.head, student.head, config.temperature, task.dev)
    if config.logits.epochs:
        train("logits", config.logits, answers)
    for module in (student.encoder, student.head, teacher.encoder, teacher.head):
        module.to(runtime.device)

    logits, figures = judge(student.encoder, student.head, task.test, runtime)
    _, teacher_figures = judge(teacher.encoder, teacher.head, task.test, runtime)
    summary = {
        "kind": "distil",
        "teacher": teacher_figures | {"parameters": teacher.parameters},
        "student": figures | {"parameters": student.parameters},
        "test": {"n": figures["n"]},
        "texts": len(lesson.texts),
        "labels": student.labels,
        "precision": runtime.precision,
        "seconds": seconds,
    }
    ranks.barrier()  # all have read what was kept
    if ranks.is_main:
        save_model(
            directory / "model", student.encoder, student.head, student.labels, max_length=student.max_length
        )
        write_predictions(directory / "predictions.jsonl", logits, task)
        finish_stages(directory, summary)
    ranks.barrier()
    return summary
