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
from brimful.base.numbers import megabytes, metric, percent, plain, short
from brimful.base.storage import crc32
from brimful.base.summary import Summary as Overview
from brimful.base.summary import make_facts_table, with_overview
from brimful.corpus.text.tokenizer import load, tokenizer_hash
from brimful.data.config import MaskingConfig, PackingConfig, Phase, SequencesConfig
from brimful.data.examples import Examples, check_length
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.data.streams import training_sources
from brimful.hf.folders import save_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import TextReading, reading_of
from brimful.model.encoder import Encoder
from brimful.model.inference import run_by_sequence, text_vectors
from brimful.objectives.imitation import TEACHER, LayerDistillation, VectorDistillation
from brimful.runs.directory import model_files, named_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, RunPlan, Summary
from brimful.stages.distil_options import DistilEncoderConfig
from brimful.stages.finetune_config import with_absolute_paths
from brimful.stages.students import (
    CPU,
    StudentTrainer,
    kept_layers,
    layers_of,
    random_encoder,
    read_encoder,
)
from brimful.stages.teachers import are_alike
from brimful.tables.layouts import find_layout
from brimful.tables.table import Table
from brimful.tables.table_files import read_file
from brimful.tasks.cache import known_outputs
from brimful.tasks.classification import Classification
from brimful.tasks.encoded import Encoded, encode, warn_of_lost_ends
from brimful.tasks.registry import task_of
from brimful.tasks.task_files import TaskFiles
from brimful.train.metrics import list_outcome
from brimful.train.objective import Runtime

BLOCKS = "blocks"
"""The folder of packing plans of prepared data, kept until the run is finished."""
UNMASKED = MaskingConfig(mask_share=0.0, random_share=0.0)
"""Tokens that are drawn for prediction are shown as they are. No loss here reads the draws."""


@dataclass(frozen=True)
class EncoderTeacher:
    """An encoder without a task.

    Attributes:
        reading: how its vectors are made.
    """

    encoder: Encoder
    folder: ModelFolder
    reading: TextReading

    @classmethod
    def load(cls, path: str) -> "EncoderTeacher":
        """The encoder in a folder.

        Raises:
            BrimfulError: it is none, or a model of a task, or makes vectors in a way that is not known.
        """
        folder = ModelFolder.open(path, "encoder")
        if folder.has_task:
            raise BrimfulError(f"{folder} is a model of a task: `brimful distil` makes its student")
        encoder = read_encoder(folder)
        remedy = "`brimful export FOLDER --format hf` writes its encoder alone"
        return cls(encoder, folder, reading_of(folder, encoder.config).pooled(None, str(folder), remedy))

    def reads_as(self, student: Encoder, max_length: int) -> bool:
        """Whether the student's examples of at most `max_length` tokens are its own too."""
        ours, theirs = student.tokenizer, self.encoder.tokenizer
        assert ours is not None
        assert theirs is not None
        return not self.reading.prompt and max_length <= self.reading.max_length and are_alike(ours, theirs)

    def vectors(self, data: Encoded, same: bool, runtime: Runtime) -> np.ndarray:
        """float32 (texts, width), out of the cache if they are known.

        Args:
            same: whether the examples are its own.
        """
        encoder, reading = self.encoder, self.reading
        assert encoder.tokenizer is not None
        if not same:
            data = encode(data.table, encoder.tokenizer, reading.max_length, prompt=reading.prompt)

        def compute() -> np.ndarray:
            encoder.to(runtime.device)
            return text_vectors(encoder, data.examples, pooling=reading.pooling, precision=runtime.precision)

        files = {name: crc32(path) for name, path in model_files("teacher", self.folder).items()}
        decides = {"model": files, "precision": runtime.precision, "device": runtime.device.type}
        found = known_outputs(decides | {"pooling": reading.pooling}, data, compute, runtime.world)
        assert isinstance(found, np.ndarray)
        return found


class ShardTexts:
    """The training documents of prepared folders, cut into other sequences in each epoch.

    Args:
        data: PATH or PATH:WEIGHT of each folder.
        encoder: whose tokenizer made them.
        max_length: the most tokens of a sequence.
        sequences: in an update, over all ranks.
        tokens: the most of a forward and backward pass.
        directory: where plans of blocks are kept while the stage runs.
        main: whether to check every byte and to plan blocks ahead, which one rank does.

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
        main: bool,
    ) -> None:
        sources = parse_sources(data)
        corpora = open_sources(sources, verify=main)
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
            sources, corpora, [self.phase], SequencesConfig(), seed, directory, ahead=main
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
class DistilEncoderPlan(RunPlan):
    """The distillation of an encoder before it starts.

    Attributes:
        config: resolved.
        max_length: the most tokens of a text, for the student.
        parts: the texts of each unlabelled file, without empty ones.
        test: the texts to measure on.
        shards: prepared data, from which the layers are learned in place of the texts.
        same: whether the student's examples are the teacher's too.
        layers: the objective of the first stage; None where there is none.
    """

    config: DistilEncoderConfig
    teacher: EncoderTeacher
    student: Encoder
    max_length: int
    parts: list[Encoded]
    test: Table | None
    shards: ShardTexts | None
    same: bool
    layers: LayerDistillation | None
    runtime: Runtime

    @property
    def count(self) -> int:
        """How many texts there are, without prepared data."""
        return sum(map(len, self.parts))

    @property
    def files(self) -> dict[str, Path]:
        """The texts, the teacher, and what the student starts from."""
        config = self.config
        files = named_files(unlabelled=config.unlabelled, test=config.test)
        files |= model_files("teacher", self.teacher.folder)
        if config.student is not None:
            files |= model_files("student", ModelFolder.open(config.student, "encoder"))
        return files

    @property
    def decides(self) -> list[Any]:
        """The prepared data."""
        return [] if self.shards is None else [self.shards.fingerprints]


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
        assert config.teacher is not None
        teacher = EncoderTeacher.load(config.teacher)
        student = _student(config, teacher.encoder)
        longest = student.config.max_length
        max_length = config.max_length or min(teacher.reading.max_length, longest)
        check_length(max_length, longest)
        parts, test = _read(config, student, max_length, ranks)
        same = teacher.reads_as(student, max_length)
        announces = folder.announces and not config.dry_run
        if announces:
            into = f"{student.config.layers} layers of width {student.config.hidden_size}"
            say(f"distilling {teacher.folder} into {into} on {sum(map(len, parts)):,} texts")
            if config.layers.epochs and not same:
                say("the teacher reads other tokens: its vectors alone are imitated, not its layers")
        layers, shards = None, None
        if config.layers.epochs and same:
            layers = LayerDistillation(teacher.encoder, student, config.layers.losses)
        if config.data:
            if layers is None:
                raise BrimfulError("--data is for the stage of the layers, which this run does not have")
            shards = ShardTexts(
                config.data,
                teacher.encoder,
                max_length=max_length,
                sequences=config.batch,
                tokens=config.micro_batch_tokens,
                seed=config.seed,
                directory=folder.path / BLOCKS,
                main=ranks.is_main,
            )
            if announces:
                say(f"the layers are learned from about {len(shards):,} sequences an epoch of prepared data")
        sources = parse_sources(config.data) if config.data else ()
        data = tuple(f"{source.path}:{source.weight!r}" for source in sources)
        config = with_absolute_paths(config, precision=runtime.precision, data=data)
        return DistilEncoderPlan(
            config, teacher, student, max_length, parts, test, shards, same, layers, runtime
        )

    def outlook(self, plan: DistilEncoderPlan) -> Summary:
        """What a dry run returns."""
        return {"dry_run": True, "texts": plan.count, "student_layers": plan.student.config.layers}

    def work(self, plan: DistilEncoderPlan, folder: RunFolder) -> Summary:
        """Train the student, save it, and compare its vectors with the teacher's.

        Raises:
            StoppedError: a signal asked to stop.
        """
        config, teacher, student, runtime = plan.config, plan.teacher, plan.student, plan.runtime
        trainer = StudentTrainer(config, folder, runtime)
        texts = Examples.chained([part.examples for part in plan.parts]) if plan.parts else None
        reading, pooling = teacher.reading, student.pooling or teacher.reading.pooling
        objective = VectorDistillation(student, pooling, teacher.encoder.config.hidden_size)
        trained = {"encoder": student, "projections": objective.projections}
        learned = texts if plan.shards is None else plan.shards
        if plan.layers is not None and learned is not None:
            trainer.train("layers", config.seed, config.layers, learned, student, plan.layers, trained)
        modules: dict[str, Any] | None = None
        if texts is not None and config.vectors.epochs:  # else how it makes vectors is as unknown as before
            vectors = np.concatenate([teacher.vectors(part, plan.same, runtime) for part in plan.parts])
            texts = replace(texts, targets={TEACHER: vectors})
            trainer.train("vectors", config.seed, config.vectors, texts, student, objective, trained)
            reading = replace(reading, max_length=plan.max_length, prompt="", pooling=pooling)
            modules, student.pooling = reading.arguments, None if pooling == "max" else pooling
        measured = {} if plan.test is None else {"test": _agreement(plan, plan.test, objective)}
        if not runtime.world.is_main:
            return {}
        models = {"student": student, "teacher": teacher.encoder}
        parameters = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
        save_model(folder.path / "encoder", student, max_length=plan.max_length, modules=modules)
        facts = {
            "kind": "distil-encoder",
            **measured,
            "texts": plan.count,
            "parameters": parameters,
            "megabytes": {name: 4 * count / 1e6 for name, count in parameters.items()},
            "precision": runtime.precision,
            "seconds": trainer.seconds,
        }
        return with_overview(facts, summarise_encoder_distillation(facts))


def _student(config: DistilEncoderConfig, teacher: Encoder) -> Encoder:
    """The student before training."""
    torch.manual_seed(config.seed)
    if config.student is not None:
        return _without_dropout(read_encoder(ModelFolder.open(config.student, "encoder")))
    kept = kept_layers(config, teacher.config)
    if kept is None:
        return random_encoder(config, teacher)
    return _without_dropout(layers_of(config, teacher.to(CPU), kept))


def _without_dropout(encoder: Encoder) -> Encoder:
    fresh = Encoder(replace(encoder.config, dropout=0.0, attention_dropout=0.0))
    fresh.load_state_dict(encoder.state_dict(), assign=True)
    fresh.tokenizer, fresh.pooling = encoder.tokenizer, encoder.pooling
    return fresh


def _read(
    config: DistilEncoderConfig, student: Encoder, max_length: int, ranks: World
) -> tuple[list[Encoded], Table | None]:
    """The texts to learn from, without empty ones, and the texts to measure on."""
    layout = find_layout(config)
    files = TaskFiles(task_of(config.task, layout), layout, ranks, labelled=False)
    assert student.tokenizer is not None
    found = []
    for path in config.unlabelled:
        every = files.encode(Classification([]), path, student.tokenizer, max_length, None)
        if ranks.is_main:
            warn_of_lost_ends(every.examples.cut, len(every), path, max_length)
        found.append(every.with_text())
    test = None if config.test is None else read_file(files.kind, config.test, labelled=False, layout=layout)
    return found, test


def _agreement(plan: DistilEncoderPlan, test: Table, objective: VectorDistillation) -> dict[str, float]:
    """The mean cosine of the vectors of student and teacher on other texts."""
    student, runtime = plan.student, plan.runtime
    assert student.tokenizer is not None
    data = encode(test, student.tokenizer, plan.max_length)
    theirs = torch.from_numpy(np.array(plan.teacher.vectors(data, plan.same, runtime)))
    student.to(runtime.device).eval()
    objective.projections.to(runtime.device)
    vectors = partial(objective.vectors, student)
    ours = run_by_sequence(vectors, data.examples, runtime.device, precision=runtime.precision)
    cosine = torch.cosine_similarity(torch.from_numpy(ours), theirs, dim=-1)
    return {"n": len(test), "cosine": float(cosine.mean())}


def summarise_encoder_distillation(facts: Summary) -> Overview:
    """What came out of the distillation of an encoder.

    Args:
        facts: what summary.json holds.
    """
    small, large = metric(facts, "parameters.student"), metric(facts, "parameters.teacher")
    cosine, n = metric(facts, "test.cosine"), metric(facts, "test.n")
    verdict = f"The student has {short(small or 0)} parameters"
    if small and large:
        verdict += f", {percent(small / large)} of its teacher's"
    if cosine is not None:
        verdict += f"; the mean cosine of their vectors is {cosine:.3f} on {n:,.0f} test texts"
    size = metric(facts, "megabytes.student")
    result = {
        "Texts learned from": plain(facts.get("texts")),
        "Size": None if size is None else megabytes(size),
        **list_outcome(facts, None),
    }
    return Overview("Student encoder", f"{verdict}.", make_facts_table("Result", result))
