"""The fine-tuning that a teacher is from, whose tables, settings and encoder are at hand."""

from pathlib import Path

from brimful.base.config import build, read_yaml
from brimful.base.errors import BrimfulError
from brimful.finetuning.config import FinetuneConfig
from brimful.hf.model_folder import ModelFolder
from brimful.runs.directory import CONFIG


def finetuning_of(run: Path | str) -> FinetuneConfig | None:
    """The configuration of a run of `brimful finetune`; None for a folder that is no run of it."""
    path = Path(run) / CONFIG
    if not path.is_file():
        return None
    try:
        finetuned = build(FinetuneConfig, read_yaml(path))
    except BrimfulError:
        return None
    return finetuned if finetuned.encoder and finetuned.train else None


def encoder_before(origin: FinetuneConfig, remedy: str) -> ModelFolder:
    """The folder of the encoder that the teacher was fine-tuned from.

    Args:
        remedy: what to do where it is gone.

    Raises:
        BrimfulError: it is there no more.
    """
    try:
        return origin.encoder_folder
    except BrimfulError as error:
        raise BrimfulError(
            "the student would start from the encoder that the teacher was fine-tuned from, but"
            f" {error}; {remedy}"
        ) from error
