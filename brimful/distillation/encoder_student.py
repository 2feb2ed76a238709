"""Distillation of an encoder without a task: its student gives vectors like its own.

The student imitates the teacher's layers, as in TinyBERT's general distillation, and then the pooled vectors
of texts. Vectors of any other model can teach too, from a file.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brimful.config import config_hash, identity
from brimful.console import say
from brimful.data.examples import Examples, check_length
from brimful.distillation.config import DistilConfig, kept_layers, student_shape
from brimful.distillation.shards import ShardTexts, absolute_sources
from brimful.distillation.start import layers_of
from brimful.distillation.teachers import ARRAYS, rows_of_array
from brimful.distillation.trainings import StageTrainer
from brimful.distributed import World
from brimful.errors import BrimfulError, UsageError
from brimful.hf.folders import load_pretrained, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.inference import run_by_sequence, text_vectors
from brimful.model.shape import Pooling
from brimful.objectives.imitation import TEACHER, LayerDistillation, VectorDistillation
from brimful.runs.directory import absolute, check_inputs, model_files, named_files, start_run
from brimful.runs.folder import RunFolder
from brimful.runs.job import finish
from brimful.storage import crc32
from brimful.tables.layouts import find_layout
from brimful.tables.table import Table
from brimful.tables.table_files import read_file
from brimful.tasks.cache import TaskFiles, known_outputs
from brimful.tasks.classification import Classification
from brimful.tasks.encoded import Encoded, encode, warn_of_lost_ends
from brimful.tasks.registry import task_of
from brimful.text.tokenizer import tokenizer_hash
from brimful.train.objective import Runtime
from brimful.train.verdict import verdict_of_trainings


@dataclass(frozen=True)
class VectorTeacher:
    """An encoder, or a file of vectors.

    Attributes:
        encoder: None for a file.
        folder: of the encoder; None for a file.
        path: of the folder, or the file.
    """

    encoder: Encoder | None
    folder: ModelFolder | None
    path: Path

    @classmethod
    def load(cls, config: DistilConfig) -> "VectorTeacher":
        """The one teacher of an encoder.

        Raises:
            BrimfulError: there are several, or the file holds no vectors.
        """
        if len(config.teachers) + len(config.teacher_scores) > 1:
            raise BrimfulError("vectors of several teachers have no average: give one, or --train and --test")
        if config.teachers:
            folder = ModelFolder.open(config.teachers[0], "encoder")
            encoder, _ = load_pretrained(folder)
            if encoder.tokenizer is None:
                raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
            return cls(encoder, folder, folder.path)
        path = Path(config.teacher_scores[0])
        if path.suffix != ARRAYS:
            raise UsageError(
                f"{path} holds scores of a task: give its --train and --test too; vectors are a .npy file"
            )
        return cls(None, None, path)

    @property
    def pooling(self) -> Pooling:
        """How its vectors are made."""
        return (self.encoder and self.encoder.pooling) or "mean"

    def vectors(self, data: Encoded, max_length: int, same: bool, runtime: Runtime) -> np.ndarray:
        """float32 (texts, width).

        Args:
            max_length: of its own examples, where the student reads other tokens.
            same: whether the examples are its own.
        """
        assert self.encoder is not None
        assert self.folder is not None
        encoder = self.encoder
        assert encoder.tokenizer is not None
        data = data if same else encode(data.table, encoder.tokenizer, max_length)

        def compute() -> np.ndarray:
            encoder.to(runtime.device)
            return text_vectors(encoder, data.examples, precision=runtime.precision)

        files = {name: crc32(path) for name, path in model_files("teacher", self.folder).items()}
        decides = {"model": files, "precision": runtime.precision, "device": runtime.device.type}
        found = known_outputs(decides | {"pooling": self.pooling}, data, compute, runtime.world)
        assert isinstance(found, np.ndarray)
        return found


def _student(config: DistilConfig, teacher: VectorTeacher, seed: int) -> Encoder:
    """The student before training."""
    torch.manual_seed(seed)
    if config.student is not None:
        student, _ = load_pretrained(ModelFolder.open(config.student, "encoder"))
        if student.tokenizer is None:
            raise BrimfulError(f"{config.student} has no tokenizer.json; add it beside config.json")
        return _without_dropout(student)
    if teacher.encoder is None:
        raise UsageError(
            "without a model as --teacher, distil needs --student FOLDER, the encoder to start from"
        )
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
    config: DistilConfig, student: Encoder, max_length: int, ranks: World
) -> tuple[list[Encoded], list[int], Table | None]:
    """The texts to learn from, without empty ones, the rows of each file with them, and the texts to measure
    on."""
    layout = find_layout(config.layout, config.columns)
    files = TaskFiles(task_of(config.task, layout), layout, ranks, labelled=False)
    paths = [*([config.train] if config.train else []), *config.unlabelled]
    if not (paths or config.data):
        raise UsageError("distilling an encoder needs texts: --unlabelled FILE ..., or --data FOLDER ...")
    assert student.tokenizer is not None
    found, sizes = [], []
    for path in paths:
        every = files.encode(Classification([]), path, student.tokenizer, max_length, None)
        if ranks.is_main:
            warn_of_lost_ends(every.examples.cut, len(every), path, max_length, windows=False)
        sizes.append(len(every))
        found.append(every.with_text())
    test = None if config.test is None else read_file(files.kind, config.test, labelled=False, layout=layout)
    return found, sizes, test


def distil_encoder(config: DistilConfig, directory: Path, resuming: bool, runtime: Runtime) -> dict[str, Any]:
    """Train a smaller encoder to imitate another one: first its layers, then its vectors.

    Returns:
        the content of summary.json: `test.cosine` with a test table, `texts`, `parameters.*` ...

    Raises:
        BrimfulError: the teacher or a file is unusable, or the vectors are not one for each text.
    """
    ranks = runtime.world
    if len(config.seeds) > 1 or config.baseline:
        raise BrimfulError("several seeds and --baseline are for students of a task: leave them out")
    for name in ("dev", "temperature"):
        if getattr(config, name) != getattr(DistilConfig(), name):
            raise BrimfulError(f"--{name} is for the student of a task: this one learns vectors")
    if config.logits != DistilConfig().logits:
        raise BrimfulError("this student learns vectors and no logits: --vectors sets its second stage")
    seed = config.seeds[0]
    teacher = VectorTeacher.load(config)
    student = _student(config, teacher, seed)
    longest = student.config.max_length
    own = min(128, longest)
    if teacher.encoder is not None and teacher.folder is not None:
        own = teacher.folder.text_length(teacher.encoder.config)
    max_length = config.max_length or min(own, longest)
    check_length(max_length, longest)
    data, sizes, test = _read(config, student, max_length, ranks)
    same = teacher.encoder is not None and _reads_as(teacher.encoder, student, own >= max_length)
    if ranks.is_main and not (resuming or config.dry_run):
        said = f"distilling {teacher.path} into {student.config.layers} layers of width"
        say(f"{said} {student.config.hidden_size} on {sum(map(len, data)):,} texts")
        if config.layers.epochs and not same:
            why = "is a file of vectors" if teacher.encoder is None else "reads other tokens"
            say(f"the teacher {why}: its vectors alone are imitated, not its layers")
    layers = None
    if config.layers.epochs and same:
        assert teacher.encoder is not None
        layers = LayerDistillation(teacher.encoder, student, config.layers.losses)
    if config.data and layers is None:
        raise BrimfulError("--data is for the stage of the layers, which this run does not have")
    shards = _shards(config, teacher, max_length, directory, runtime, resuming=resuming)
    if config.dry_run:
        return {"dry_run": True, "texts": sum(map(len, data)), "student_layers": student.config.layers}
    inputs = check_inputs(directory, _inputs(config, teacher))
    config = replace(
        config,
        teacher=tuple(map(absolute, config.teachers)) or None,
        teacher_scores=tuple(map(absolute, config.teacher_scores)),
        student=config.student and absolute(config.student),
        train=config.train and absolute(config.train),
        test=config.test and absolute(config.test),
        unlabelled=tuple(map(absolute, config.unlabelled)),
        data=absolute_sources(config.data),
    )
    if ranks.is_main:
        start_run(directory, config, inputs)
    ranks.barrier()
    decides = [identity(config), inputs, *([] if shards is None else [shards.fingerprints])]
    trainer = StageTrainer(config, RunFolder(directory, ranks, resuming, config_hash(decides)), runtime)
    texts = Examples.chained([part.examples for part in data]) if data else None
    width = student.config.hidden_size if teacher.encoder is None else teacher.encoder.config.hidden_size
    if texts is not None and (config.vectors.epochs or teacher.encoder is None):
        vectors = _vectors(teacher, data, sizes, own, same, runtime)
        texts, width = replace(texts, targets={TEACHER: vectors}), vectors.shape[1]
    pooling = student.pooling or teacher.pooling
    objective = VectorDistillation(student, pooling, width, config.vectors.loss)
    trained = {"encoder": student, "projections": objective.projections}
    learned = shards if shards is not None else texts
    if layers is not None and learned is not None:
        trainer.train("layers", seed, config.layers, learned, student, layers, trained)
    if texts is not None:
        trainer.train("vectors", seed, config.vectors, texts, student, objective, trained)
        if config.vectors.epochs:  # else how it makes vectors is as unknown as before
            student.pooling = pooling
    measured: dict[str, Any] = {}
    if test is not None and teacher.encoder is not None:
        measured = {"test": _agreement(teacher, objective, student, test, own, max_length, same, runtime)}
    models = {"student": student} | ({} if teacher.encoder is None else {"teacher": teacher.encoder})
    parameters = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    summary = {
        "kind": "distil",
        **measured,
        "texts": sum(map(len, data)),
        "parameters": parameters,
        "megabytes": {name: 4 * count / 1e6 for name, count in parameters.items()},
        "precision": runtime.precision,
        "seconds": trainer.seconds,
    }
    ranks.barrier()  # every rank has read the kept weights
    if ranks.is_main:
        save_model(directory / "encoder", student, max_length=max_length)
        summary |= verdict_of_trainings(trainer.folders)
        finish(directory, summary, ("blocks",))
    ranks.barrier()
    return summary


def _shards(
    config: DistilConfig,
    teacher: VectorTeacher,
    max_length: int,
    directory: Path,
    runtime: Runtime,
    *,
    resuming: bool,
) -> ShardTexts | None:
    """What the layers are learned from instead of the texts, if it is given."""
    if not config.data:
        return None
    assert teacher.encoder is not None
    main = runtime.world.is_main
    shards = ShardTexts(
        config.data,
        teacher.encoder,
        max_length=max_length,
        sequences=config.batch,
        tokens=config.micro_batch_tokens,
        seed=config.seeds[0],
        directory=directory / "blocks",
        verify=main,
        ahead=main,
    )
    if main and not resuming:
        say(f"the layers are learned from about {len(shards):,} sequences an epoch of prepared data")
    return shards


def _vectors(
    teacher: VectorTeacher,
    data: list[Encoded],
    sizes: list[int],
    own: int,
    same: bool,
    runtime: Runtime,
) -> np.ndarray:
    """float32 (texts, width): what the teacher says of all texts."""
    if teacher.encoder is None:
        return np.concatenate(rows_of_array(teacher.path, [part.table for part in data], sizes))
    return np.concatenate([teacher.vectors(part, own, same, runtime) for part in data])


def _reads_as(teacher: Encoder, student: Encoder, whole: bool) -> bool:
    """Whether the student's examples are the teacher's too."""
    assert teacher.tokenizer is not None
    assert student.tokenizer is not None
    return whole and tokenizer_hash(teacher.tokenizer) == tokenizer_hash(student.tokenizer)


def _inputs(config: DistilConfig, teacher: VectorTeacher) -> dict[str, Path]:
    """The files that decide the result of a run."""
    files = named_files(unlabelled=config.unlabelled, train=config.train, test=config.test)
    if teacher.folder is None:
        files["teacher_scores[0]"] = teacher.path
    else:
        files |= model_files("teacher", teacher.folder)
    if config.student is not None:
        files |= model_files("student", ModelFolder.open(config.student, "encoder"))
    return files


def _agreement(
    teacher: VectorTeacher,
    objective: VectorDistillation,
    student: Encoder,
    test: Table,
    own: int,
    max_length: int,
    same: bool,
    runtime: Runtime,
) -> dict[str, float]:
    """The mean cosine of the vectors of student and teacher on other texts."""
    assert student.tokenizer is not None
    data = encode(test, student.tokenizer, max_length)
    theirs = torch.from_numpy(np.array(teacher.vectors(data, own, same, runtime)))
    student.to(runtime.device).eval()
    objective.projections.to(runtime.device)
    forward = lambda batch: objective.vectors(student, batch)  # noqa: E731
    ours = run_by_sequence(forward, data.examples, runtime.device, precision=runtime.precision)
    cosine = torch.cosine_similarity(torch.from_numpy(ours), theirs, dim=-1)
    return {"n": len(test), "cosine": float(cosine.mean())}
