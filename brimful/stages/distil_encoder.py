"""The verb `brimful distil-encoder`: TinyBERT's general distillation, of the layers, on prepared data."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.numbers import find_number, format_megabytes, format_percent, format_short, format_value
from brimful.base.summary import Summary, make_facts_table, with_overview
from brimful.base.types import Values
from brimful.corpus.text.tokenizer import load, tokenizer_hash
from brimful.data.config import MaskingConfig, PackingConfig
from brimful.data.examples import check_length
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.hf.folders import count_parameters, require_tokenizer, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.objectives.imitation import LayerDistillation
from brimful.runs.folder import RunFolder
from brimful.runs.inputs import RunFiles, model_files
from brimful.runs.job import Job, RunPlan
from brimful.stages.distil_encoder_config import DistilEncoderConfig
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import make_sources, make_stream
from brimful.stages.students import CPU, choose_layers, copy_layers, random_encoder, read_encoder
from brimful.stages.task_options import with_absolute_paths
from brimful.stages.task_trainings import Stage, train_stage
from brimful.train.metrics import list_outcome
from brimful.train.objective import Runtime

BLOCKS = "blocks"
"""The folder of packing plans, which stays until the run is finished."""
UNMASKED = MaskingConfig(mask_share=0.0, random_share=0.0)
"""Masking that leaves all tokens as they are: the loss here predicts none."""


class ShardTexts:
    """The training documents of prepared folders, as pretraining reads them: each epoch cuts them into other
    sequences.

    Args:
        encoder: an encoder with the tokenizer that made them.
        max_length: the most tokens of a sequence.
        directory: a folder for plans of blocks while the stage runs.
        main: whether to check every byte and to plan blocks ahead, which one rank does.

    Raises:
        BrimfulError: a folder is not prepared, is damaged, or has another tokenizer.
    """

    def __init__(
        self, config: DistilEncoderConfig, encoder: Encoder, max_length: int, directory: Path, *, main: bool
    ) -> None:
        capacity = max(config.micro_batch_tokens, max_length)
        self.config = PretrainConfig(
            data=config.data,
            seed=config.seed,
            masking=UNMASKED,
            packing=PackingConfig(max_length=max_length, capacity=capacity),
            sequences_per_update=config.batch,
        )
        folders = parse_sources(config.data)
        corpora = open_sources(folders, verify=main)
        self.fingerprints = {name: corpus.fingerprint for name, corpus in corpora.items()}
        self.tokenizer = load(next(iter(corpora.values())).tokenizer_path)
        if tokenizer_hash(self.tokenizer) != tokenizer_hash(require_tokenizer(encoder, "the teacher")):
            raise BrimfulError(
                f"data: {folders[0].path} was made with another tokenizer than the teacher's; prepare it with"
                " --tokenizer and the teacher's tokenizer.json"
            )
        self.sources = make_sources(self.config, corpora, directory, ahead=main)

    def __len__(self) -> int:
        """The sequences of an epoch, estimated from the first block of each corpus."""
        sequences = 0
        for source in self.sources:
            blocks = source.blocks[self.config.packing.max_length]
            first_block, _ = blocks.preview()
            sequences += len(first_block.length) * blocks.count
        return sequences

    def stream(self, runtime: Runtime) -> RowStream:
        """Open the stream of this rank's updates."""
        return make_stream(
            self.config,
            self.sources,
            SequenceReader(self.tokenizer, UNMASKED),
            fixed_shapes=runtime.device.type == "cuda",
            rank=runtime.world.rank,
            world=runtime.world.size,
        )


@dataclass(frozen=True)
class DistilEncoderPlan(RunPlan):
    """The distillation of an encoder before it starts.

    Attributes:
        folder: the teacher's folder.
        max_length: the most tokens of a sequence.
        layers: the objective.
    """

    config: DistilEncoderConfig
    folder: ModelFolder
    teacher: Encoder
    student: Encoder
    max_length: int
    shards: ShardTexts
    layers: LayerDistillation
    runtime: Runtime

    @property
    def files(self) -> RunFiles:
        """The teacher, and the folder that the student starts from."""
        files = model_files("teacher", self.folder)
        if self.config.student is not None:
            files |= model_files("student", ModelFolder.open(self.config.student, "encoder"))
        return files

    @property
    def decides(self) -> list[Any]:
        """The prepared data."""
        return [self.shards.fingerprints]


class DistilEncoderJob(Job[DistilEncoderConfig, DistilEncoderPlan]):
    """Trains a smaller encoder."""

    verb = "distil-encoder"
    temporary = (BLOCKS,)

    def plan(self, config: DistilEncoderConfig, folder: RunFolder) -> DistilEncoderPlan:
        """Load the teacher and the student, and open the data."""
        runtime = Runtime.of(folder.ranks, config.precision)
        assert config.teacher is not None
        teacher_folder = ModelFolder.open(config.teacher, "encoder")
        if teacher_folder.has_task:
            raise BrimfulError(f"{teacher_folder} is a model of a task: `brimful distil` makes its student")
        teacher = read_encoder(teacher_folder)
        student = _make_student(config, teacher)
        tokenizers = [require_tokenizer(student, "the student"), require_tokenizer(teacher, "the teacher")]
        if len(set(map(tokenizer_hash, tokenizers))) > 1:
            raise BrimfulError(
                f"--student {config.student} has another tokenizer than the teacher, whose layers it cannot"
                " learn then: leave --student out, or give a folder with the teacher's tokenizer.json"
            )
        max_length = config.max_length
        if not max_length:
            max_length = min(teacher_folder.text_length(teacher.config), student.config.max_length)
        check_length(max_length, student.config.max_length)
        shards = ShardTexts(config, teacher, max_length, folder.path / BLOCKS, main=folder.ranks.is_main)
        if folder.announces and not config.dry_run:
            into = f"{student.config.layers} layers of width {student.config.hidden_size}"
            say(f"distilling {teacher_folder} into {into} on about {len(shards):,} sequences an epoch")
        layers = LayerDistillation(teacher, student, config.layers.losses)  # refuses losses that do not fit
        # The weight in any case: it decides the result, and a path may hold a colon.
        data = tuple(f"{source.path}:{source.weight!r}" for source in parse_sources(config.data))
        config = with_absolute_paths(config, precision=runtime.precision, data=data)
        return DistilEncoderPlan(
            config, teacher_folder, teacher, student, max_length, shards, layers, runtime
        )

    def describe_plan(self, plan: DistilEncoderPlan) -> Values:
        layers = plan.student.config.layers
        return {"dry_run": True, "sequences": len(plan.shards), "student_layers": layers}

    def work(self, plan: DistilEncoderPlan, folder: RunFolder) -> Values:
        """Train the student, and save it."""
        config, student, runtime = plan.config, plan.student, plan.runtime
        stage = Stage(
            title=f"distil layers, seed {config.seed}",
            folder=folder.path / "stages" / f"seed-{config.seed}" / "layers",
            seed=config.seed,
            encoder=student,
            objective=plan.layers,
            texts=plan.shards,
            epochs=config.layers.epochs,
            rate=config.layers.learning_rate,
            trained={"encoder": student},
        )
        result = train_stage(stage, config, folder, runtime)
        result.load(stage.trained)
        if not runtime.world.is_main:
            return {}
        parameters = {
            "student": count_parameters(student),
            "teacher": count_parameters(plan.teacher),
        }
        save_model(folder.path / "encoder", student, max_length=plan.max_length)
        facts = {
            "kind": "distil-encoder",
            "sequences": len(plan.shards),
            "parameters": parameters,
            "megabytes": {name: 4 * count / 1e6 for name, count in parameters.items()},
            "precision": runtime.precision,
            "seconds": result.seconds,
        }
        return with_overview(facts, summarise_encoder_distillation(facts))


def _make_student(config: DistilEncoderConfig, teacher: Encoder) -> Encoder:
    """Make the student before training."""
    torch.manual_seed(config.seed)  # for a student of random weights
    if config.student is not None:
        return _without_dropout(read_encoder(ModelFolder.open(config.student, "encoder")))
    layers = choose_layers(config, teacher.config)
    if layers is None:
        return random_encoder(config, teacher)
    return _without_dropout(copy_layers(config, teacher.to(CPU), layers))


def _without_dropout(encoder: Encoder) -> Encoder:
    # Dropout is part of the modules: another value needs another encoder, which takes the same weights.
    fresh = Encoder(replace(encoder.config, dropout=0.0, attention_dropout=0.0))
    fresh.load_state_dict(encoder.state_dict(), assign=True)
    fresh.tokenizer, fresh.pooling = encoder.tokenizer, encoder.pooling
    return fresh


def summarise_encoder_distillation(facts: Values) -> Summary:
    """Summarise the distillation of an encoder from the facts of summary.json."""
    small, large = find_number(facts, "parameters.student"), find_number(facts, "parameters.teacher")
    verdict = f"The student has {format_short(small or 0)} parameters"
    if small and large:
        verdict += f", {format_percent(small / large)} of its teacher's"
    size = find_number(facts, "megabytes.student")
    result = {
        "Sequences of an epoch, about": format_value(facts.get("sequences")),
        "Size": None if size is None else format_megabytes(size),
        **list_outcome(facts, None),
    }
    return Summary("Student encoder", f"{verdict}.", make_facts_table("Result", result))
