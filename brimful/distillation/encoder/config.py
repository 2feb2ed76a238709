"""What `brimful distil-encoder` is told: its options, and what they decide together."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.config import incidental, require_seeds
from brimful.base.errors import BrimfulError
from brimful.distillation.options import LayeredOptions, StageConfig


@dataclass(frozen=True, kw_only=True)
class VectorStageConfig(StageConfig):
    """The second stage of the distillation."""

    loss: Literal["cosine", "mse"] = "cosine"
    """How the vectors of texts are compared: 1 - cosine, or the mean squared difference."""


@dataclass(frozen=True, kw_only=True)
class DistilEncoderConfig(LayeredOptions):
    """Train a smaller encoder to imitate an encoder without a task: its layers, then its vectors."""

    MAIN = (
        *("teacher", "student", "unlabelled", "data", "test", "out", "student_layers", "student_hidden"),
        *("layers.epochs", "vectors.epochs", "seed", "dry_run"),
    )
    NEEDS = ("teacher or teacher_vectors",)
    EXAMPLE = "--teacher runs/pretrain --unlabelled texts.txt --out runs/small-encoder"

    teacher: str | None = incidental(None)
    """Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face folder."""
    teacher_vectors: str | None = incidental(None)
    """In place of --teacher, a .npy file of the vectors of any model: a row for each text of the unlabelled
    files. The student then starts from --student."""
    unlabelled: tuple[str, ...] = incidental(())
    """Texts to learn from: .txt (one a line), or tables with a text column."""
    data: tuple[str, ...] = incidental(())
    """Folders made by `brimful prepare` with the teacher's tokenizer, PATH or PATH:WEIGHT, from which the
    layers are learned in place of the texts."""
    test: str | None = incidental(None)
    """Texts on which the vectors of teacher and student are compared at the end."""
    out: str | None = incidental(None)
    """Run directory to create; the student ends up in RUN/encoder."""
    initialisation: Literal["teacher", "random"] = "teacher"
    """teacher: layers of the teacher. random: new weights."""
    max_length: int | None = None
    """The most tokens of a text; by default as the teacher's. Without a teacher that is a model, 128."""
    seed: int = 0
    """Decides random weights and the order of texts."""
    vectors: VectorStageConfig = VectorStageConfig(epochs=3.0, learning_rate=3e-4)
    """Second stage: pooled vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_seeds(self.seed)
        if self.teacher and self.teacher_vectors:
            raise BrimfulError("vectors of two teachers have no average: give --teacher or --teacher-vectors")
