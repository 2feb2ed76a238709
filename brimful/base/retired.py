"""What was retired, and what to do instead: for one release, one line answers. docs/history.md says why."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from brimful.base.errors import BrimfulError


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

_SCALER = "brimful.precision.AutomaticLossScaler takes it, in a training loop of your own"
_RAY = "start one Ray cluster on the machines and prepare once, with --engine ray (docs/scale.md)"
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
    "rank": _Retired(_RAY, unset=0),
    "world": _Retired(_RAY, unset=1),
    "ray_address": _Retired("say it to Ray: RAY_ADDRESS=HOST:PORT brimful prepare ...", unset=None),
    "dedup.line_bytes": _Retired("leave it out: lines of 16 bytes or more are compared", unset=16),
    "pretrain_steps": _Retired("leave it out of demo: they follow from --max-reviews", unset=800),
    "seeds": _Retired("list them in finetune: --seed 0 1 2", unset=None),
    "attention_dropout": _Retired("--dropout 0 of finetune turns it off too", unset=None),
    "context": _Retired(
        "leave it out of augment: a masked LM with token types also reads the whole text", unset="auto"
    ),
    "precision": _Retired("leave it out of augment, whose masked LM computes in float32", unset="fp32"),
    "columns.label": _Retired("leave it out: no labels are read here", unset="label"),
    "lengths": _Retired("pack --histogram takes the .npy file too", unset=None),
    "trainer.bucket_mb": _Retired("leave it out: ranks sum gradients in buckets of 32 MiB", unset=32.0),
    "trainer.loss_scale_period": _Retired(f"leave it out: {_SCALER}", unset=1),
    "trainer.loss_scale_edge": _Retired(f"leave it out: {_SCALER}", unset=8192.0),
    "trainer.loss_scale_threshold": _Retired(f"leave it out: {_SCALER}", unset=1e-7),
    "tune": _Retired("pretrain --dry-run measured times the settings that you give it", unset=False),
    "recipe": _Retired(
        "recipes/distil-task.sh runs the steps from an encoder to the student of a task", unset=None
    ),
    "vectors": _Retired(
        "`brimful distil-encoder` makes students that learn vectors",
        unset={"epochs": 3.0, "learning_rate": 3e-4, "loss": "cosine"},
    ),
    "layers.losses.patient": _Retired("layers.losses.hidden and cosine compare hidden states", unset=0.0),
    "layers.losses.projections": _Retired("leave it out: one matrix serves all layers", unset="shared"),
    "layers.losses.relation_heads": _Retired(
        "leave it out: they are the most up to 12 that divide both widths", unset=12
    ),
    "layers.losses.reduction": _Retired(
        "leave it out: means are over real tokens and their pairs", unset="real"
    ),
}
"""By name; the name of a group stands for its options."""

_SHORT: dict[str, dict[str, Any]] = {
    "the epochs decide how long a training takes": {"trainer.steps": 1000, "trainer.hours": 0.0},
    "set --learning-rates of finetune, or the learning_rate of distil's stages": {
        "optimizer.learning_rate": 1e-3,
        "optimizer.muon_learning_rate": 0.02,
    },
    "only pretrain has it; leave it out of finetune and distil": {
        "optimizer.name": "adamw",
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.98,
        "optimizer.epsilon": 1e-8,
        "schedule.power": 0.5,
        "schedule.decay": 0.2,
        "schedule.decay_from": "warmup",
        "trainer.weights": "fp32",
        "trainer.rounding": "stochastic",
        "trainer.residual": "auto",
        "trainer.loss_scale": 1024.0,
        "trainer.keep_checkpoints": 2,
        "trainer.compression": "none",
        "trainer.spike": 0.0,
        "trainer.on_spike": "stop",
        "trainer.prefetch": 2,
        "trainer.profile": 0,
    },
}
"""What trainings that take minutes had, and pretrain still has: by what to do instead, and where unset."""
OPTIONS |= {
    name: _Retired(instead, unset) for instead, names in _SHORT.items() for name, unset in names.items()
}

_CHOICES = "score each choice as a pair, with --task classification: the question on its context, the choice"
VALUES = {
    ("task", "multiple-choice"): _CHOICES,
    ("layout", "clue/c3"): _CHOICES,
    ("layout", "clue/chid"): _CHOICES,
    ("student", "static"): "`brimful distil-static` makes static students",
    ("teacher", "tfidf"): "give the file of its probabilities, or of any model's, as --teacher-scores",
    ("trainer.on_spike", "roll-back"): "set it to skip, which gives the same weights",
}
"""By option and value."""


def instead_of(option: str, value: str | None = None, groups: Collection[str] | None = None) -> str | None:
    """The line on a retired option, whose name may lack its group, or on a retired value of an option; None
    if there is nothing to say.

    Args:
        groups: those that it may lack; by default any.
    """
    name = option.replace("-", "_")
    if value is not None:
        remedy = VALUES.get((name, value))
        return remedy and f"{name} {value} is retired: {remedy}"
    for known, retired in OPTIONS.items():
        group, _, last = known.rpartition(".")
        lacks_group = name == last and (groups is None or group in groups)
        if lacks_group or name == known or name.startswith(f"{known}."):
            return f"{known} is retired: {retired.instead}"
    return None


def refuse_retired(option: str, value: str, where: str = "") -> None:
    """
    Raises:
        BrimfulError: this value of an option is retired; the message begins with `where`.
    """
    if (remedy := instead_of(option, value)) is not None:
        raise BrimfulError(where + remedy)


def is_forgotten(option: str, value: Any, *, finished: bool) -> bool:
    """Whether a retired option of a saved configuration is left out: because nobody used it, or because the
    run has finished, so that the option decides nothing more."""
    if (retired := OPTIONS.get(option)) is None or finished:
        return retired is not None
    if isinstance(retired.unset, Mapping):
        return isinstance(value, Mapping) and retired.unset.items() <= value.items()
    return bool(value == retired.unset)
