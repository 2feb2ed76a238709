"""The teacher of an encoder: an encoder, or a file of vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.storage import crc32
from brimful.corpus.text.special_ids import truncation_side
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.distillation.encoder.config import DistilEncoderConfig
from brimful.distillation.teachers import rows_of_array
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import TextReading, reading_of
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.runs.directory import model_files
from brimful.tasks.cache import known_outputs
from brimful.tasks.encoded import Encoded, encode
from brimful.train.objective import Runtime

_REMEDY = "give its vectors of your texts with --teacher-vectors"


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

    @cached_property
    def reading(self) -> TextReading | None:
        """How its vectors are made; None of a file.

        Raises:
            BrimfulError: they cannot be.
        """
        if self.encoder is None or self.folder is None:
            return None
        return reading_of(self.folder, self.encoder.config).pooled(None, str(self.folder), _REMEDY)

    @property
    def files(self) -> dict[str, Path]:
        """Those that decide what it says."""
        if self.folder is None:
            return {"teacher_vectors": self.path}
        return model_files("teacher", self.folder)

    def length(self, student: Encoder) -> int:
        """The most tokens that it reads of a text; for a file, what suits the student."""
        return min(128, student.config.max_length) if self.reading is None else self.reading.max_length

    def reads_as(self, student: Encoder, max_length: int) -> bool:
        """Whether the student's examples of at most `max_length` tokens are its own too."""
        if self.encoder is None or self.reading is None or self.reading.prompt:
            return False
        ours, theirs = student.tokenizer, self.encoder.tokenizer
        assert ours is not None
        assert theirs is not None
        alike = tokenizer_hash(ours), truncation_side(ours)
        return max_length <= self.reading.max_length and alike == (
            tokenizer_hash(theirs),
            truncation_side(theirs),
        )

    def of_texts(
        self, parts: Sequence[Encoded], sizes: Sequence[int], student: Encoder, same: bool, runtime: Runtime
    ) -> np.ndarray:
        """float32 (texts, width): what it says of the texts of all files.

        Args:
            sizes: the rows of those files, of which the parts lack those without a text.
            same: whether the examples are its own.
        """
        if self.encoder is None:
            return np.concatenate(rows_of_array(self.path, [part.table for part in parts], sizes))
        return np.concatenate([self.vectors(part, student, same, runtime) for part in parts])

    def vectors(self, data: Encoded, student: Encoder, same: bool, runtime: Runtime) -> np.ndarray:
        """float32 (texts, width), of an encoder."""
        assert self.encoder is not None
        encoder, reading = self.encoder, self.reading
        assert reading is not None
        assert encoder.tokenizer is not None
        if not same:
            data = encode(data.table, encoder.tokenizer, reading.max_length, prompt=reading.prompt)

        def compute() -> np.ndarray:
            encoder.to(runtime.device)
            return text_vectors(encoder, data.examples, pooling=reading.pooling, precision=runtime.precision)

        files = {name: crc32(path) for name, path in self.files.items()}
        decides = {"model": files, "precision": runtime.precision, "device": runtime.device.type}
        found = known_outputs(decides | {"pooling": reading.pooling}, data, compute, runtime.world)
        assert isinstance(found, np.ndarray)
        return found


def load_vector_teacher(config: DistilEncoderConfig) -> VectorTeacher:
    """The teacher that the options name.

    Raises:
        BrimfulError: it is no encoder, or a model of a task.
    """
    if config.teacher is None:
        assert config.teacher_vectors is not None
        return VectorTeacher(None, None, Path(config.teacher_vectors))
    folder = ModelFolder.open(config.teacher, "encoder")
    if folder.has_task:
        raise BrimfulError(f"{folder} is a model of a task: `brimful distil` makes its student")
    encoder, _ = load_pretrained(folder)
    if encoder.tokenizer is None:
        raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
    return VectorTeacher(encoder, folder, folder.path)
