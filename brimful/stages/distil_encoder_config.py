"""The configuration of `brimful distil-encoder`."""

from dataclasses import dataclass

from brimful.base.config import incidental, require_seeds
from brimful.base.errors import BrimfulError
from brimful.data.mixture import SourcePath
from brimful.hf.model_folder import ModelPath
from brimful.stages.distil_options import LayerStageConfig, StudentOptions


@dataclass(frozen=True, kw_only=True)
class DistilEncoderConfig(StudentOptions):
    """Train a smaller encoder to imitate the layers of an encoder without a task."""

    MAIN = (
        *("teacher", "student", "data", "out", "student_layers", "student_hidden"),
        *("layers.epochs", "seed", "dry_run"),
    )
    NEEDS = ("teacher", "data")
    EXAMPLE = "--teacher runs/pretrain --data data --out runs/small-encoder"

    teacher: ModelPath | None = incidental(None)
    """Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face folder."""
    data: tuple[SourcePath, ...] = incidental(())
    """Folders made by `brimful prepare` with the teacher's tokenizer, PATH or PATH:WEIGHT."""
    out: str | None = incidental(None)
    """Run directory to create; the student ends up in RUN/encoder."""
    seed: int = 0
    """Decides random weights and the order of texts."""
    layers: LayerStageConfig = LayerStageConfig(epochs=3.0, learning_rate=5e-4)
    """The stage: embeddings, hidden states and attention scores are imitated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_seeds(self.seed)
        if not self.layers.epochs:
            raise BrimfulError("layers.epochs is 0: the layers are all that the student learns")
