"""The options of `brimful estimate`: those of pretrain, and what only an estimate needs."""

import re
from dataclasses import dataclass

from brimful.commands.pretrain_config import PretrainConfig
from brimful.config import incidental
from brimful.environment import number_of
from brimful.errors import BrimfulError
from brimful.estimates.assumptions import AssumeConfig
from brimful.train.config import TrainerConfig
from brimful.train.data_sheets import Sheet, find_sheet

ANY_STEPS = 10**9
"""As many updates as the hours allow."""
_GPUS = re.compile(r"(?:(\d+)\s*[x*]\s*)?(\S.*)")


@dataclass(frozen=True, kw_only=True)
class EstimateConfig(PretrainConfig):
    """Say what a pretraining run will take before it is started. Every option of pretrain counts as it does
    there: give the run's own --config and options."""

    gpus: str | None = incidental(None)
    """The GPUs of the run: 8xH100. The names are those of the data sheets that estimate knows; an unknown
    name lists them."""
    measure: bool = incidental(False)
    """Train the run's model on the run's data on this machine, and take its rate, instead of a data sheet's.
    Nothing is kept."""
    minutes: float = incidental(1.0)
    """Minutes of that training."""
    tokens: float | None = incidental(None)
    """Tokens of the training text, where there is no data yet: 3e9."""
    finetune_examples: int = incidental(0)
    """Labelled examples of a fine-tuning to be estimated too: on one GPU, as long as a sequence of the
    data."""
    assume: AssumeConfig = incidental(AssumeConfig())
    trainer: TrainerConfig = TrainerConfig(steps=ANY_STEPS, checkpoint_every=500)


def check(config: EstimateConfig) -> None:
    """Refuse what cannot be estimated.

    Raises:
        BrimfulError: something is missing, or does not go together.
    """
    if number_of("WORLD_SIZE", 1) > 1:
        raise BrimfulError("estimate runs in one process: leave out torchrun")
    if config.resume is not None:
        raise BrimfulError("estimate is for runs that have not begun: leave out resume")
    if config.gpus is None and not config.measure:
        raise BrimfulError("estimate needs the GPUs (--gpus 8xH100), or --measure to try this machine")
    if config.data is None and config.tokens is None:
        raise BrimfulError("estimate needs the run's data, or --tokens, how much text there will be")
    if config.data is not None and config.tokens is not None:
        raise BrimfulError("data has its own number of tokens: leave out tokens")
    if config.tokens is not None and not config.tokens >= 1:
        raise BrimfulError(f"tokens is {config.tokens:g}: it must be at least 1")
    if config.measure and config.data is None:
        raise BrimfulError("--measure trains on the run's data: give data")
    if config.unpacked_batch_size is not None and config.data is None:
        raise BrimfulError("unpacked_batch_size follows from how data packs: give data, or rows_per_update")
    if not config.minutes > 0:
        raise BrimfulError(f"minutes is {config.minutes:g}: it must be above 0")
    if config.finetune_examples < 0:
        raise BrimfulError(f"finetune_examples is {config.finetune_examples}: it must not be negative")
    if config.trainer.steps == ANY_STEPS and not config.trainer.hours:
        raise BrimfulError(
            "estimate needs how long the run is: --hours 10, what fits in 10 hours; or --trainer.steps 50000"
        )


def parse_gpus(text: str) -> tuple[int, Sheet]:
    """8xH100, H100.

    Raises:
        BrimfulError: no number of GPUs above 0, or an unknown GPU.
    """
    match = _GPUS.fullmatch(text.strip())
    if match is None or match[1] == "0":
        raise BrimfulError(f"gpus is {text!r}: say how many of which, as in 8xH100")
    return int(match[1] or 1), find_sheet(match[2])
