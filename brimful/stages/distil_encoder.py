"""The verb `brimful distil-encoder`: a student learns its teacher's layers, as in TinyBERT's general
distillation, and then the pooled vectors of texts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brimful.base.console import say
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.summary import with_overview
from brimful.corpus.text.tokenizer import load, tokenizer_hash
from brimful.data.config import MaskingConfig, PackingConfig, Phase, SequencesConfig
from brimful.data.examples import Examples, check_length
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.data.streams import training_sources
from brimful.hf.folders import load_pretrained, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import TextReading
from brimful.model.encoder import Encoder
from brimful.model.inference import run_by_sequence
from brimful.objectives.imitation import TEACHER, LayerDistillation, VectorDistillation
from brimful.runs.directory import model_files, named_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, RunPlan, Summary
from brimful.stages.distil_options import DistilEncoderConfig, with_absolute_paths
from brimful.stages.distil_summary import summarise_encoder_distillation
from brimful.stages.students import StudentTrainer, kept_layers, layers_of, student_shape
from brimful.stages.teachers import VectorTeacher, load_vector_teacher
from brimful.stages.training import StreamedTexts
from brimful.tables.layouts import find_layout
from brimful.tables.table import Table
from brimful.tables.table_files import read_file
from brimful.tasks.classification import Classification
from brimful.tasks.encoded import Encoded, encode, warn_of_lost_ends
from brimful.tasks.registry import task_of
from brimful.tasks.task_files import TaskFiles
from brimful.train.objective import Runtime

BLOCKS = "blocks"
"""The folder of packing plans of prepared data, kept until the run is finished."""


UNMASKED = MaskingConfig(mask_share=0.0, random_share=0.0)
"""Tokens that are drawn for prediction are shown as they are. No loss here reads the draws."""


def absolute_sources(data: Sequence[str]) -> tuple[str, ...]:
    """PATH:WEIGHT of each source, with absolute paths."""
    return tuple(f"{source.path}:{source.weight!r}" for source in parse_sources(data)) if data else ()


class ShardTexts:
    """The training documents of prepared folders, cut into other sequences in each epoch.

    Args:
        data: PATH or PATH:WEIGHT of each folder.
        encoder: whose tokenizer made them.
        max_length: the most tokens of a sequence.
        sequences: in an update, over all ranks.
        tokens: the most of a forward and backward pass.
        directory: where plans of blocks are kept while the stage runs.
        verify: whether to check every byte.
        ahead: whether to plan blocks ahead; one rank does.

    Raises:
        BrimfulError: a folder is not prepared, is damaged, or has another tokenizer.
    """

    def __init__(
        self,
        data: Sequence[str],
        encoder: Encoder,
        *,
        max_length: int,
        sequences: int,
        tokens: int,
        seed: int,
        directory: Path,
        verify: bool,
        ahead: bool,
    ) -> None:
        sources = parse_sources(data)
        corpora = open_sources(sources, verify=verify)
        self.fingerprints = {name: corpus.fingerprint for name, corpus in corpora.items()}
        self.tokenizer = load(next(iter(corpora.values())).tokenizer_path)
        assert encoder.tokenizer is not None
        if tokenizer_hash(self.tokenizer) != tokenizer_hash(encoder.tokenizer):
            raise BrimfulError(
                f"data: {sources[0].path} was made with another tokenizer than the teacher's; prepare it with"
                " --tokenizer and the teacher's tokenizer.json"
            )
        packing = PackingConfig(max_length=max_length, capacity=max(tokens, max_length))
        self.seed = seed
        self.phase = Phase(1, packing, sequences, "sequences")
        self.sources = training_sources(
            sources, corpora, [self.phase], SequencesConfig(), seed, directory, ahead=ahead
        )

    def __len__(self) -> int:
        """The sequences of an epoch, estimated from the first block of each corpus."""
        blocks = [source.blocks[self.phase.packing.max_length] for source in self.sources]
        return sum(len(each.preview()[0].length) * each.count for each in blocks)

    def stream(self, runtime: Runtime) -> RowStream:
        """Updates for this rank."""
        return RowStream(
            SequenceReader(self.tokenizer, UNMASKED),
            self.sources,
            [self.phase],
            seed=self.seed,
            rows_per_micro_batch=1,
            fixed_shapes=runtime.device.type == "cuda",
            rank=runtime.world.rank,
            world=runtime.world.size,
        )


@dataclass(frozen=True)
class Texts:
    """What the student learns from.

    Attributes:
        parts: the texts of each unlabelled file, without empty ones.
        sizes: the rows of those files.
        test: the texts to measure on.
        shards: prepared data, from which the layers are learned in place of the texts.
    """

    parts: list[Encoded]
    sizes: list[int]
    test: Table | None
    shards: ShardTexts | None

    @property
    def count(self) -> int:
        """How many texts there are, without prepared data."""
        return sum(map(len, self.parts))


@dataclass(frozen=True)
class DistilEncoderPlan(RunPlan):
    """The distillation of an encoder before it starts.

    Attributes:
        config: resolved.
        max_length: the most tokens of a text, for the student.
        same: whether the student's examples are the teacher's too.
        layers: the objective of the first stage; None where there is none.
    """

    config: DistilEncoderConfig
    teacher: VectorTeacher
    student: Encoder
    max_length: int
    texts: Texts
    same: bool
    layers: LayerDistillation | None
    runtime: Runtime

    @property
    def files(self) -> dict[str, Path]:
        """The texts, the teacher, and what the student starts from."""
        config = self.config
        files = named_files(unlabelled=config.unlabelled, test=config.test) | self.teacher.files
        if config.student is not None:
            files |= model_files("student", ModelFolder.open(config.student, "encoder"))
        return files

    @property
    def decides(self) -> list[Any]:
        """The prepared data."""
        return [] if self.texts.shards is None else [self.texts.shards.fingerprints]


class DistilEncoderJob(Job[DistilEncoderConfig, DistilEncoderPlan]):
    """Trains a smaller encoder."""

    verb = "distil-encoder"
    temporary = (BLOCKS,)

    def plan(self, config: DistilEncoderConfig, folder: RunFolder) -> DistilEncoderPlan:
        """Load the teacher and the student, and read the texts.

        Raises:
            BrimfulError: a model, a file or prepared data is unusable, or does not go with the others.
        """
        ranks = folder.ranks
        runtime = Runtime.of(ranks, config.precision)
        if not (config.unlabelled or config.data):
            raise UsageError("distilling an encoder needs texts: --unlabelled FILE ..., or --data FOLDER ...")
        teacher = load_vector_teacher(config)
        student = _student(config, teacher)
        longest = student.config.max_length
        max_length = config.max_length or min(teacher.length(student), longest)
        check_length(max_length, longest)
        parts, sizes, test = _read(config, student, max_length, ranks)
        same = teacher.reads_as(student, max_length)
        if teacher.encoder is None:  # refused now, if it must be
            teacher.of_texts(parts, sizes, student, same, runtime)
        announces = folder.announces and not config.dry_run
        if announces:
            into = f"{student.config.layers} layers of width {student.config.hidden_size}"
            say(f"distilling {teacher.path} into {into} on {sum(map(len, parts)):,} texts")
            if config.layers.epochs and not same:
                why = "is a file of vectors" if teacher.encoder is None else "reads other tokens"
                say(f"the teacher {why}: its vectors alone are imitated, not its layers")
        layers = None
        if config.layers.epochs and same:
            assert teacher.encoder is not None
            layers = LayerDistillation(teacher.encoder, student, config.layers.losses)
        shards = None
        if config.data:
            if layers is None:
                raise BrimfulError("--data is for the stage of the layers, which this run does not have")
            assert teacher.encoder is not None
            shards = _shards(config, teacher.encoder, max_length, folder)
            if announces:
                say(f"the layers are learned from about {len(shards):,} sequences an epoch of prepared data")
        texts = Texts(parts, sizes, test, shards)
        data = absolute_sources(config.data)
        config = with_absolute_paths(config, precision=runtime.precision, data=data)
        return DistilEncoderPlan(config, teacher, student, max_length, texts, same, layers, runtime)

    def outlook(self, plan: DistilEncoderPlan) -> Summary:
        """What a dry run returns."""
        return {"dry_run": True, "texts": plan.texts.count, "student_layers": plan.student.config.layers}

    def work(self, plan: DistilEncoderPlan, folder: RunFolder) -> Summary:
        """Train the student, save it, and compare its vectors with the teacher's.

        Raises:
            BrimfulError: the vectors are not one for each text.
            StoppedError: a signal asked to stop.
        """
        config, teacher, student, runtime = plan.config, plan.teacher, plan.student, plan.runtime
        trainer = StudentTrainer(config, folder, runtime)
        parts, shards = plan.texts.parts, plan.texts.shards
        texts = Examples.chained([part.examples for part in parts]) if parts else None
        width = student.config.hidden_size if teacher.encoder is None else teacher.encoder.config.hidden_size
        if texts is not None and (config.vectors.epochs or teacher.encoder is None):
            vectors = teacher.of_texts(parts, plan.texts.sizes, student, plan.same, runtime)
            texts, width = replace(texts, targets={TEACHER: vectors}), vectors.shape[1]
        reading = teacher.reading or TextReading(plan.max_length)
        pooling = student.pooling or reading.pooling
        objective = VectorDistillation(student, pooling, width)
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


def _student(config: DistilEncoderConfig, teacher: VectorTeacher) -> Encoder:
    """The student before training."""
    torch.manual_seed(config.seed)
    if config.student is not None:
        student, _ = load_pretrained(ModelFolder.open(config.student, "encoder"))
        if student.tokenizer is None:
            raise BrimfulError(f"{config.student} has no tokenizer.json; add it beside config.json")
        return _without_dropout(student)
    if teacher.encoder is None:
        raise UsageError("--teacher-vectors needs --student FOLDER, the encoder to start from")
    kept = kept_layers(config, teacher.encoder.config)
    if kept is not None:
        return _without_dropout(layers_of(config, teacher.encoder.to(torch.device("cpu")), kept))
    student = Encoder(student_shape(config, teacher.encoder.config))
    student.tokenizer, student.pooling = teacher.encoder.tokenizer, teacher.encoder.pooling
    return student


def _without_dropout(encoder: Encoder) -> Encoder:
    fresh = Encoder(replace(encoder.config, dropout=0.0, attention_dropout=0.0))
    fresh.load_state_dict(encoder.state_dict(), assign=True)
    fresh.tokenizer, fresh.pooling = encoder.tokenizer, encoder.pooling
    return fresh


def _read(
    config: DistilEncoderConfig, student: Encoder, max_length: int, ranks: World
) -> tuple[list[Encoded], list[int], Table | None]:
    """The texts to learn from, without empty ones, the rows of each file with them, and the texts to measure
    on."""
    layout = find_layout(config.layout, config.columns)
    files = TaskFiles(task_of(config.task, layout), layout, ranks, labelled=False)
    assert student.tokenizer is not None
    found, sizes = [], []
    for path in config.unlabelled:
        every = files.encode(Classification([]), path, student.tokenizer, max_length, None)
        if ranks.is_main:
            warn_of_lost_ends(every.examples.cut, len(every), path, max_length)
        sizes.append(len(every))
        found.append(every.with_text())
    test = None if config.test is None else read_file(files.kind, config.test, labelled=False, layout=layout)
    return found, sizes, test


def _shards(config: DistilEncoderConfig, teacher: Encoder, max_length: int, folder: RunFolder) -> ShardTexts:
    main = folder.ranks.is_main
    return ShardTexts(
        config.data,
        teacher,
        max_length=max_length,
        sequences=config.batch,
        tokens=config.micro_batch_tokens,
        seed=config.seed,
        directory=folder.path / BLOCKS,
        verify=main,
        ahead=main,
    )


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
