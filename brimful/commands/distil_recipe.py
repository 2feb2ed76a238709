"""`brimful distil --recipe task`: fine-tune a teacher, distil in general, then for the task, and compare."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from brimful.commands.finetune import finetune
from brimful.config import to_dict
from brimful.distillation.config import STATIC, DistilConfig, finetuning_of
from brimful.errors import UsageError
from brimful.runs.directory import run_once
from brimful.tables.layouts import OWN

_OF_TEACHER = ("train", "dev", "test", "task", "columns", "layout", "precision", "max_length")
"""The options that the fine-tuning shares."""
_OF_GENERAL = (
    *("columns", "layout", "precision", "max_length", "unlabelled", "batch", "micro_batch_tokens"),
    *("student_layers", "keep_layers", "student_hidden", "initialisation", "layers"),
    *("optimizer", "schedule", "trainer"),
)
"""The options that the general step shares."""

Run = Callable[..., dict[str, Any]]


def run_recipe(config: DistilConfig, directory: Path, distil: Run) -> dict[str, Any]:
    """Run the stages, each a run of its own in `directory`; those that are finished are not repeated.

    - `teacher`: the encoder fine-tuned on the tables, unless a teacher is given.
    - `general`: the encoder that the teacher comes from, its layers distilled into the student's shape on the
      prepared data, or else on all texts, unless a student is given.
    - `student`: both stages of the task from that student, with the baselines.

    Args:
        config: its `dry_run` checks what can be checked of all steps, and does nothing.
        distil: the verb.

    Returns:
        the summary of the last one.

    Raises:
        UsageError: the encoder is not given, and the teacher does not say it.
    """
    values = to_dict(config)
    own = {"recipe", "encoder", "out", "resume"}
    values = {name: value for name, value in values.items() if name not in own and value is not None}
    data = values.pop("data")
    if data and config.student is not None:
        raise UsageError("--data is for the general step, and --student takes its place: leave one out")
    origin = finetuning_of(Path(config.teachers[0])) if config.teachers else None
    encoder = config.encoder or (origin.encoder if origin else None)
    train = config.train or (origin.train if origin else None)
    if encoder is None or train is None:
        raise UsageError("--recipe task needs a run as --teacher; or --encoder, --train and --test")
    if config.vectors != DistilConfig().vectors:
        raise UsageError("no step of --recipe task learns vectors: leave --vectors out")
    finetuning = {name: values[name] for name in _OF_TEACHER if name in values}
    finetuning |= {"encoder": encoder, "seed": config.seeds[:1]}
    general = {name: values[name] for name in _OF_GENERAL if name in values}
    if origin is not None and config.columns == OWN and config.layout is None:
        general |= {"columns": to_dict(origin.columns), "layout": origin.layout}
    general["task"] = config.task or (origin.task if origin else None)
    general |= {"teacher": encoder, "vectors": {"epochs": 0.0}, "seed": config.seeds[0], "data": data}
    general["train"] = None if data else train
    del values["dry_run"]
    if config.dry_run:
        if config.student is None:
            distil(out=str(directory / "general"), dry_run=True, **general)
            values |= {"initialisation": "random", "student_layers": config.depth, "keep_layers": None}
        if config.teachers:
            return distil(out=str(directory / "student"), dry_run=True, **values)
        checked = finetune(out=str(directory / "teacher"), dry_run=True, **finetuning)
        if config.teacher_scores or config.teachers:
            values |= _without_model(config, encoder)
            distil(out=str(directory / "student"), dry_run=True, **values)
        return checked
    if not config.teachers:
        run_once(finetune, directory / "teacher", **finetuning)
    if config.student is None:
        run_once(distil, directory / "general", **general)
        values["student"] = str(directory / "general")
    values |= dict.fromkeys(("student_layers", "keep_layers", "student_hidden"))  # the folder's own
    values |= {"initialisation": "pretrained", "baseline": True}
    if not config.teachers:
        values["teacher"] = (str(directory / "teacher"), *config.teachers)
    return run_once(distil, directory / "student", **values)


def _without_model(config: DistilConfig, encoder: str) -> dict[str, Any]:
    """The options in which a run of the other teachers alone differs from the last step: it has no layers to
    imitate. So a dry run reads their files before there is a model."""
    student = encoder if config.student in (None, STATIC) else config.student
    shape = dict.fromkeys(("student_layers", "keep_layers", "student_hidden"))
    layers = to_dict(config.layers) | {"epochs": 0.0}
    return {"student": student, **shape, "initialisation": "pretrained", "layers": layers}
