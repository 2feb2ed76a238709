"""What `brimful distil-recipe` is told: the options of its steps."""

from dataclasses import dataclass

from brimful.base.config import incidental
from brimful.base.errors import BrimfulError
from brimful.distillation.task.config import LogitOptions


@dataclass(frozen=True, kw_only=True)
class DistilRecipeConfig(LogitOptions):
    """Fine-tune a teacher if there is none, distil in general, then for the task, and compare."""

    MAIN = (
        *("encoder", "teacher", "train", "test", "unlabelled", "data", "out"),
        *("student_layers", "layers.epochs", "logits.epochs", "seed", "dry_run"),
    )
    NEEDS = ()
    EXAMPLE = "--encoder runs/pretrain --train train.tsv --test test.tsv --out runs/recipe"

    encoder: str | None = incidental(None)
    """The encoder to fine-tune the teacher from; by default the one that --teacher is from."""
    data: tuple[str, ...] = incidental(())
    """Folders made by `brimful prepare` with the encoder's tokenizer, PATH or PATH:WEIGHT, from which the
    general step learns in place of the texts."""
    out: str | None = incidental(None)
    """Run directory to create; each step is a run in it, and the student ends up in RUN/student/model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data and self.student is not None:
            raise BrimfulError("--data is for the general step, and --student takes its place: leave one out")
