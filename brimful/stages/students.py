"""Students: their shape, what they start from (layers of a teacher, a folder, or random weights), and the
stages in which they are trained."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from brimful.base.errors import BrimfulError, UsageError
from brimful.data.examples import Examples
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig
from brimful.objectives.layer_losses import spread_layers
from brimful.runs.folder import Result, RunFolder
from brimful.stages.distil_options import DistilConfig, LayeredOptions, StageConfig
from brimful.stages.finetune_config import FinetuneConfig
from brimful.stages.task_start import TaskStart, starting_model
from brimful.stages.teachers import ModelTeacher
from brimful.stages.teaching_material import encoder_before
from brimful.stages.training import Stage, StreamedTexts, train_stage
from brimful.start.narrowing import narrow
from brimful.tasks.data import TaskData
from brimful.tasks.model import TaskModel
from brimful.tasks.task import Task
from brimful.train.objective import Objective, Runtime


def kept_layers(config: LayeredOptions, shape: EncoderConfig) -> tuple[int, ...] | None:
    """The layers of the teacher that the student starts from, as wide as they are or narrower; None where it
    starts from random weights.

    Raises:
        BrimfulError: the teacher has no such layers, or not as many.
    """
    kept = config.keep_layers
    if kept is not None and not (kept and all(0 <= layer < shape.layers for layer in kept)):
        raise BrimfulError(f"keep_layers is {list(kept)}: the teacher has layers 0 to {shape.layers - 1}")
    if config.initialisation == "random" or (config.student_hidden or 0) > shape.hidden_size:
        if kept is not None:
            raise BrimfulError(
                "a student that is wider than its teacher, or has --initialisation random, starts from no"
                " layers: give --student-layers in place of --keep-layers"
            )
        return None
    if config.depth > shape.layers:
        raise BrimfulError(f"student_layers is {config.depth}: the teacher has {shape.layers} layers")
    return kept or spread_layers(shape.layers, config.depth)


def student_shape(config: LayeredOptions, shape: EncoderConfig) -> EncoderConfig:
    """The shape of a student: the teacher's, with its own depth and width."""
    width = config.student_hidden or shape.hidden_size
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    if width < shape.hidden_size:
        inner = min(inner, shape.intermediate_size)  # its neurons are the teacher's
    return replace(
        shape,
        layers=config.depth,
        hidden_size=width,
        intermediate_size=inner,
        dropout=0.0,
        attention_dropout=0.0,
    )


def layers_of(config: LayeredOptions, encoder: Encoder, layers: tuple[int, ...]) -> Encoder:
    """Copies of layers of an encoder, narrower if the student is.

    Raises:
        BrimfulError: the width does not fit the heads.
    """
    kept = encoder.keep_layers(layers)
    shape = student_shape(config, encoder.config)
    return kept if shape.hidden_size == encoder.config.hidden_size else narrow(kept, shape)


CPU = torch.device("cpu")


@dataclass(frozen=True)
class StudentStart:
    """What students start from.

    Attributes:
        encoder: whose tokenizer and length the student has.
        max_length, overlap: as in `TaskModel`.
        layers: of the teacher that are kept; None: the student has its own shape or random weights.
    """

    config: DistilConfig
    origin: FinetuneConfig | None
    teacher: ModelTeacher | None
    encoder: Encoder
    max_length: int
    overlap: int | None
    layers: tuple[int, ...] | None

    @property
    def folder(self) -> ModelFolder | None:
        """The student's own; None where it starts from layers of the teacher or from random weights."""
        return None if self.config.student is None else ModelFolder.open(self.config.student, "model")

    @property
    def of_origin(self) -> bool:
        """Whether students start from the encoder that the teacher was fine-tuned from."""
        return (
            self.layers is not None and self.origin is not None and self.config.initialisation == "pretrained"
        )

    @property
    def of_teacher(self) -> bool:
        """Whether students start from layers of the teacher itself, with its head."""
        return self.layers is not None and not self.of_origin

    @property
    def dropped(self) -> tuple[int, ...] | None:
        """The layers of the teacher that make a student of the same shape; None if there are none."""
        if self.layers is not None or self.teacher is None:
            return self.layers
        shape, ours = self.teacher.model.encoder.config, self.encoder.config
        fits = self.config.student is not None and ours.hidden_size == shape.hidden_size
        return spread_layers(shape.layers, ours.layers) if fits and ours.layers <= shape.layers else None

    def student(self, data: TaskData, seed: int, *, of_teacher: bool = False) -> TaskModel:
        """The student before training.

        Args:
            of_teacher: from the teacher's own layers, whatever `initialisation` says.
        """
        task, config = data.task, self.config
        options = FinetuneConfig(dropout=0.0)
        if config.student is not None and not of_teacher:
            start = TaskStart.of(ModelFolder.open(config.student, "model"))
            if start.model is None and self.teacher is not None and start.encoder.pooling is None:
                options = replace(options, pooling=self.teacher.pooling)
            model = starting_model(options, seed, task, start)
        elif self.layers is None and not of_teacher:
            model = self._random(task, seed)
        else:
            assert self.teacher is not None
            theirs = self.teacher.model
            layers = self.dropped if of_teacher else self.layers
            assert layers is not None
            start = TaskStart(theirs.encoder.to(CPU), {}, theirs)
            if self.of_origin and not of_teacher:
                assert self.origin is not None
                among = self.origin.layers or range(theirs.encoder.config.layers)
                layers = tuple(among[layer] for layer in layers)
                start = TaskStart.of(self.origin_folder)
            options = replace(options, pooling=self.teacher.pooling)
            start = replace(start, encoder=layers_of(config, start.encoder, layers))
            model = starting_model(options, seed, task, start)
        pairs = data.train.table.second is not None
        return TaskModel(task, *model, self.max_length, self.overlap, pairs=pairs)

    @property
    def origin_folder(self) -> ModelFolder:
        """Of the encoder that the teacher was fine-tuned from.

        Raises:
            BrimfulError: it is there no more.
        """
        assert self.origin is not None
        return encoder_before(self.origin, "give --student FOLDER or --initialisation teacher")

    def _random(self, task: Task, seed: int) -> tuple[Encoder, Any]:
        assert self.teacher is not None
        torch.manual_seed(seed)
        encoder = Encoder(student_shape(self.config, self.teacher.model.encoder.config))
        encoder.tokenizer, encoder.pooling = self.encoder.tokenizer, self.teacher.pooling
        return encoder, task.new_head(encoder)


def start_of(
    config: DistilConfig, origin: FinetuneConfig | None, teacher: ModelTeacher | None
) -> StudentStart:
    """What students start from.

    Raises:
        BrimfulError: the shape does not fit the teacher, or there is none.
    """
    if config.student is not None:
        encoder, _ = load_pretrained(ModelFolder.open(config.student, "model"))
        if encoder.tokenizer is None:
            raise BrimfulError(f"{config.student} has no tokenizer.json; add it beside config.json")
        longest, overlap = encoder.config.max_length, None
        wanted = config.max_length
        if teacher is not None:
            wanted, overlap = wanted or min(teacher.model.max_length, longest), teacher.model.overlap
        return StudentStart(config, origin, teacher, encoder, wanted or min(128, longest), overlap, None)
    if teacher is None:
        raise UsageError(
            "without a model as --teacher, distil needs --student FOLDER, the encoder to start from"
        )
    kept = kept_layers(config, teacher.model.encoder.config)
    length = config.max_length or teacher.model.max_length
    return StudentStart(config, origin, teacher, teacher.model.encoder, length, teacher.model.overlap, kept)


class StudentTrainer:
    """Trains the students of a distillation, stage by stage.

    Attributes:
        results: of all stages so far.
    """

    def __init__(self, options: LayeredOptions, run: RunFolder, runtime: Runtime) -> None:
        self.options, self.run, self.runtime = options, run, runtime
        self.results: list[Result] = []

    @property
    def seconds(self) -> float:
        """The seconds of training, in all."""
        return sum(result.seconds for result in self.results)

    def train(
        self,
        name: str,
        seed: int,
        stage: StageConfig,
        texts: Examples | StreamedTexts,
        encoder: Encoder,
        objective: Objective,
        trained: Mapping[str, nn.Module],
    ) -> None:
        """Train one stage to its end; not at all if it has no epochs. Its weights are in `trained` then.

        Args:
            name: of the stage, which names its folder with the seed.
        """
        if not stage.epochs:
            return
        folder = self.run.path / "stages" / f"seed-{seed}" / name
        title = f"distil {name}, seed {seed}"
        rate = stage.learning_rate
        result = train_stage(
            Stage(title, folder, seed, encoder, objective, texts, stage.epochs, rate, trained),
            self.options,
            self.run,
            self.runtime,
        )
        result.load(trained)
        self.results.append(result)
