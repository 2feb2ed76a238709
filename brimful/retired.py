"""What was retired, and what to do instead: for one release, one line answers. docs/history.md says why."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from brimful.errors import BrimfulError


class _Retired(NamedTuple):
    """An option that is no more.

    Attributes:
        instead: what to do in its place.
        unset: what a configuration of before holds where the option was not used; of a group, what shows it.
    """

    instead: str
    unset: Any


VERBS = {
    "estimate": "brimful pretrain --dry-run says what a run takes; --dry-run measured also its time",
    "verify": "brimful inspect FOLDER --verify does it",
    "convert": "brimful export FOLDER --out DIR does it",
}
"""What to do instead."""

OPTIONS = {
    "submission": _Retired(
        "predictions are .jsonl, .tsv, .csv, .parquet or .npy, a row for each text in the order of the input",
        unset=False,
    ),
    "augment": _Retired(
        "run `brimful augment --input TRAIN --output MORE --encoder DIR`, then `brimful distil --train MORE`",
        unset={"copies": 0},
    ),
    "trainer.shard": _Retired(
        "every rank holds the whole model; README.md names what else can train a larger one", unset="none"
    ),
    "tune": _Retired("pretrain --dry-run measured times the settings that you give it", unset=False),
    "layers.losses.reduction": _Retired(
        "leave it out: means are over real tokens and their pairs", unset="real"
    ),
}
"""By name; the name of a group stands for its options."""

_CHOICES = "score each choice as a pair, with --task classification: the question on its context, the choice"
VALUES = {
    ("task", "multiple-choice"): _CHOICES,
    ("layout", "clue/c3"): _CHOICES,
    ("layout", "clue/chid"): _CHOICES,
    ("teacher", "tfidf"): "give the file of its probabilities, or of any model's, as --teacher-scores",
    ("trainer.on_spike", "roll-back"): "set it to skip, which gives the same weights",
}
"""By option and value."""


def instead_of(option: str, value: str | None = None) -> str | None:
    """The line on a retired option, whose name may lack its group, or on a retired value of an option; None
    if there is nothing to say."""
    name = option.replace("-", "_")
    if value is not None:
        remedy = VALUES.get((name, value))
        return remedy and f"{name} {value} is retired: {remedy}"
    for known, retired in OPTIONS.items():
        if name == known or name.startswith(f"{known}.") or known.endswith(f".{name}"):
            return f"{known} is retired: {retired.instead}"
    return None


def refuse_retired(option: str, value: str, where: str = "") -> None:
    """
    Raises:
        BrimfulError: this value of an option is retired; the message begins with `where`.
    """
    if (remedy := instead_of(option, value)) is not None:
        raise BrimfulError(where + remedy)


def was_unset(option: str, value: Any) -> bool:
    """Whether a saved configuration has a retired option with this value because nobody used it."""
    if (retired := OPTIONS.get(option)) is None:
        return False
    if isinstance(retired.unset, Mapping):
        return isinstance(value, Mapping) and retired.unset.items() <= value.items()
    return bool(value == retired.unset)
