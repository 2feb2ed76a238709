"""What pretraining starts from: new weights, or a trained model, whose vocabulary may have been extended."""

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from brimful.commands.pretrain_config import PretrainConfig
from brimful.commands.pretrain_data import longest_sequence
from brimful.corpus.tokenize.extension import other_parts, spellings
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder, preset
from brimful.nn.heads import MaskedLMHead, PretrainingHead
from brimful.nn.interop import load_model
from brimful.nn.vocabulary import extend_vocabulary
from brimful.runs.directory import find_model
from brimful.text.tokenizer import load, special_ids
from brimful.train.metrics import read_metrics

_VALIDATION = "validation."


@dataclass(frozen=True)
class Initial:
    """What a run trains.

    Attributes:
        encoder: with the tokenizer of the data.
        head: a PretrainingHead where the run learns pairs.
        new_pieces: how many pieces of the vocabulary the model that it starts from does not know.
        warnings: what a person should know of it.
    """

    encoder: Encoder
    head: MaskedLMHead
    new_pieces: int = 0
    warnings: tuple[str, ...] = ()


def initial_model(config: PretrainConfig, tokenizer: Tokenizer, kept: Path | None = None) -> Initial:
    """The model of a run on data of this tokenizer; new weights follow from the seed.

    Args:
        kept: the model that an interrupted run started from, as it kept it, if it came so far.

    Raises:
        BrimfulError: the folder to start from holds no model or no tokenizer, one with another vocabulary
            than the data, or one for shorter sequences than the run's.
    """
    kind = PretrainingHead if config.sequences.paired else MaskedLMHead
    torch.manual_seed(config.seed)
    if config.start_from is None:
        assert config.model is not None
        assert config.architecture is not None
        encoder = Encoder(
            preset(
                config.model,
                config.architecture,
                vocabulary_size=tokenizer.get_vocab_size(),
                max_length=longest_sequence(config),
                pad_id=special_ids(tokenizer).pad,
            )
        )
        encoder.tokenizer = tokenizer
        return Initial(encoder, kind(encoder))
    folder = kept if kept is not None and kept.is_dir() else find_model(Path(config.start_from), "encoder")
    return _trained(config, tokenizer, folder, kind)


def _trained(config: PretrainConfig, tokenizer: Tokenizer, folder: Path, kind: type[MaskedLMHead]) -> Initial:
    encoder, loaded, _ = load_model(folder)
    head = loaded if isinstance(loaded, MaskedLMHead) else None
    _check(config, encoder, folder)
    old = _tokenizer_of(folder)
    spelled = spellings(old, tokenizer, str(folder))
    warnings = []
    if parts := other_parts(old, tokenizer):
        warnings.append(
            f"the tokenizer of the data has another {' and '.join(parts)} than that of {folder}: the model"
            " has seen text cut otherwise"
        )
    if spelled:
        encoder, head = extend_vocabulary(encoder, head, spelled, sorted(old.get_vocab().values()))
    encoder.tokenizer = tokenizer
    torch.manual_seed(config.seed)  # to load a model draws weights too
    started = kind(encoder)
    found = {} if head is None else head.state_dict()
    missing = {name.partition(".")[0] for name in started.load_state_dict(found, strict=False).missing_keys}
    if head is None:
        warnings.append(f"{folder} has no masked-LM head: a new one is drawn")
    elif missing:
        warnings.append(f"{folder} has no head for pairs: a new one is drawn")
    return Initial(encoder, started, len(spelled), tuple(warnings))


def _check(config: PretrainConfig, encoder: Encoder, folder: Path) -> None:
    longest = longest_sequence(config)
    if longest > encoder.config.max_length:
        raise BrimfulError(
            f"sequences of {longest} tokens do not fit the model of {folder}, which has"
            f" {encoder.config.max_length} positions: lower packing.max_length, or that of a phase"
        )
    if config.sequences.paired and not encoder.config.reads_segments:
        raise BrimfulError(
            f"sequences.kind={config.sequences.kind} needs token types, which the model of {folder} has not:"
            " leave it out"
        )


def _tokenizer_of(folder: Path) -> Tokenizer:
    try:
        return load(folder)
    except BrimfulError as error:
        raise BrimfulError(f"the model of {folder} needs its tokenizer beside it: {error}") from error


def figures_at_start(metrics: Path) -> dict[str, float]:
    """What an evaluation before the first update wrote to a metrics.jsonl, as `evaluate` returned it."""
    lines = [line for line in read_metrics(metrics) if line["step"] == 0]
    return {name.removeprefix(_VALIDATION): value for name, value in lines[0].items() if name != "step"}
