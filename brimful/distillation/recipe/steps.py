"""The steps of `brimful distil-recipe`, each a run of a verb: teacher, general, student."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from brimful.base.config import to_dict
from brimful.base.errors import UsageError
from brimful.distillation.encoder.shards import absolute_sources
from brimful.distillation.options import with_absolute_paths
from brimful.distillation.origin import finetuning_of
from brimful.distillation.recipe.config import DistilRecipeConfig
from brimful.distillation.task.config import DistilConfig
from brimful.hf.model_folder import ModelFolder
from brimful.runs.directory import model_files, named_files, run_once
from brimful.runs.folder import RunFolder
from brimful.runs.job import RunPlan, Summary
from brimful.tables.layouts import OWN

_OF_TEACHER = ("train", "dev", "test", "task", "columns", "layout", "precision", "max_length")
"""The options that the fine-tuning shares."""
_OF_GENERAL = (
    *("columns", "layout", "precision", "max_length", "batch", "micro_batch_tokens"),
    *("student_layers", "keep_layers", "student_hidden", "layers", "optimizer", "schedule", "trainer"),
)
"""The options that the general step shares."""
_SHAPE = ("student_layers", "keep_layers", "student_hidden")

Values = dict[str, Any]
Run = Callable[..., Summary]


@dataclass(frozen=True)
class RecipePlan(RunPlan):
    """A recipe before its first step.

    Attributes:
        config: resolved.
        checked: what the dry runs of the steps returned; empty for a run that is resumed.
        encoder: of the first step.
    """

    config: DistilRecipeConfig
    checked: Summary
    encoder: ModelFolder

    @property
    def files(self) -> dict[str, Path]:
        """The encoder, and the tables that are given: all steps read the same ones, also after a stop."""
        config = self.config
        tables = named_files(
            train=config.train, dev=config.dev, test=config.test, unlabelled=config.unlabelled
        )
        return tables | model_files("encoder", self.encoder)


@dataclass(frozen=True)
class Recipe:
    """The verbs that the steps run, none of which is repeated once it is finished.

    - `teacher`: the encoder fine-tuned on the tables, unless a teacher is given.
    - `general`: the encoder that the teacher comes from, its layers distilled into the student's shape on the
      prepared data, or else on all texts, unless a student is given.
    - `student`: both stages of the task from that student, with the baselines.
    """

    finetune: Run
    distil_encoder: Run
    distil: Run

    def plan(self, config: DistilRecipeConfig, folder: RunFolder) -> RecipePlan:
        """Refuse what would stop a later step before the first one.

        Raises:
            BrimfulError: it would.
            UsageError: the encoder is not given, and the teacher does not say it.
        """
        steps = _steps(config, folder.path)
        checked = {} if folder.resuming and not config.dry_run else self._check(config, steps, folder.path)
        resolved = with_absolute_paths(config, data=absolute_sources(config.data))
        return RecipePlan(resolved, checked, ModelFolder.open(steps.general["teacher"], "encoder"))

    def outlook(self, plan: RecipePlan) -> Summary:
        """What a dry run returns."""
        return plan.checked

    def work(self, plan: RecipePlan, folder: RunFolder) -> Summary:
        """Run the steps; the summary is that of the last one.

        Raises:
            StoppedError: a signal asked to stop.
        """
        config, out = plan.config, folder.path
        steps = _steps(config, out)
        if not config.teachers:
            run_once(self.finetune, out / "teacher", **steps.teacher)
        if config.student is None:
            run_once(self.distil_encoder, out / "general", **steps.general)
        return run_once(self.distil, out / "student", **steps.student) | {"kind": "distil-recipe"}

    def _check(self, config: DistilRecipeConfig, steps: "_Steps", out: Path) -> Summary:
        """The dry runs of all steps. A folder that a step will leave is not there yet: another stands for
        it."""
        student = steps.student | {"out": str(out / "student"), "dry_run": True}
        if config.student is None:
            self.distil_encoder(out=str(out / "general"), dry_run=True, **steps.general)
            student |= {"student": None, "student_hidden": config.student_hidden}
            student |= {"initialisation": "random", "student_layers": config.depth}
        if config.teachers:
            return self.distil(**student)
        checked = self.finetune(out=str(out / "teacher"), dry_run=True, **steps.teacher)
        if config.teacher_scores:  # their files are read by a run without a model, which imitates no layers
            start = {"student": config.student or steps.general["teacher"], "layers": {"epochs": 0.0}}
            shape = dict.fromkeys(_SHAPE) | {"initialisation": DistilConfig.initialisation}
            self.distil(**student | start | shape | {"teacher": None})
        return checked


@dataclass(frozen=True)
class _Steps:
    """The options of each step but `out`."""

    teacher: Values
    general: Values
    student: Values


def _steps(config: DistilRecipeConfig, out: Path) -> _Steps:
    """
    Raises:
        UsageError: the encoder is not given, and the teacher does not say it.
    """
    values = {name: value for name, value in to_dict(config).items() if value is not None}
    origin = finetuning_of(config.teachers[0]) if config.teachers else None
    encoder = config.encoder or (origin.encoder if origin else None)
    train = config.train or (origin.train if origin else None)
    if encoder is None or train is None:
        raise UsageError("distil-recipe needs a run as --teacher; or --encoder, --train and --test")
    if not (config.test or (origin and origin.test)):
        raise UsageError(
            "distil-recipe needs --test: its general step reads all texts of train, also rows that would be"
            " held out as test"
        )
    teacher = {name: values[name] for name in _OF_TEACHER if name in values}
    teacher |= {"encoder": encoder, "seed": config.seeds[:1]}
    general = {name: values[name] for name in _OF_GENERAL if name in values}
    if origin is not None and config.columns == OWN and config.layout is None:
        general |= {"columns": to_dict(origin.columns), "layout": origin.layout}
    general |= {
        "task": config.task or (origin.task if origin else None),
        "teacher": encoder,
        "data": config.data,
        "unlabelled": () if config.data else (train, *config.unlabelled),
        "initialisation": "random" if config.initialisation == "random" else "teacher",
        "vectors": {"epochs": 0.0},
        "seed": config.seeds[0],
    }
    kept = {field.name for field in fields(DistilConfig)} - {"out", "resume", "dry_run", "initialisation"}
    student = {name: value for name, value in values.items() if name in kept}
    student |= dict.fromkeys(_SHAPE)  # the folder's own
    student["baseline"] = "full"
    if config.student is None:
        student["student"] = str(out / "general")
    if not config.teachers:
        student["teacher"] = (str(out / "teacher"),)
    return _Steps(teacher, general, student)
