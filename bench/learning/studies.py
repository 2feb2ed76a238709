"""What the learning bench trains: three questions, their arms, sizes and seeds."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.learning.run import Trial
from brimful.data.blocks import PackingConfig
from brimful.data.mixture import open_sources, parse_sources
from brimful.pretraining.config import PretrainConfig
from brimful.pretraining.plan import make_sources

Settings = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is trained.

    Attributes:
        length: tokens of the longest sequence, and slots of a row.
        reviews: of each label; None takes all.
        paragraphs: of the third study's text; None takes all.
        updates: of the unpacked arms of the first two studies.
        batch: sequences in each of these.
        deep: updates of the third study.
        rates: its learning rates.
    """

    seeds: tuple[int, ...]
    length: int
    vocabulary: int
    reviews: int | None
    paragraphs: int | None
    updates: int
    batch: int
    deep: int
    rates: tuple[float, ...]


FULL = Size((0, 1, 2), 128, 4000, None, None, 240, 11, 800, (1e-3, 3e-3, 1e-2))
QUICK = Size((0, 1), 32, 300, 60, 300, 5, 8, 2, (3e-3,))

PRESET = {"model": "tiny", "architecture": "modern"}
LAMB = {"name": "lamb", "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}
DEEP = {
    "layers": 12,
    "hidden_size": 64,
    "heads": 4,
    "intermediate_size": 128,
    "max_length": 32,
    "norm_eps": 1e-12,
    "initializer_range": 0.125,  # Xavier's, as in Xiong et al.: 0.02 is for wide layers
}
PIECES = 150  # hardly more than the letters
POST, PRE = "post-LN", "pre-LN"


def _settings(*, size: Size, steps: int, points: int, **values: Any) -> Settings:
    """Of a PretrainConfig; its packing, optimizer and so on may be given in part."""
    evaluate = max(1, steps // points)
    packing = {"max_length": size.length, "capacity": size.length, **values.pop("packing", {})}
    loop = {"steps": steps, "evaluate_every": evaluate, "log_every": evaluate, "checkpoint_every": 0}
    return {
        "recipe": "plain",
        "precision": "fp32",
        "verify_data": False,
        "masking": {"unit": "tokens"},  # whole words are learned too late for so short a training
        "validation_tokens": 10_000_000,  # all there are, however they share rows
        "packing": packing,
        "trainer": loop | values.pop("trainer", {}),
        **values,
    }


def _trials(study: str, size: Size, arms: Mapping[str, Settings], **shape: Any) -> list[Trial]:
    """Seed by seed, so that what is done early compares all arms."""
    return [
        Trial(study, arm, seed, values, shape or None) for seed in size.seeds for arm, values in arms.items()
    ]


def packing_study(size: Size, factor: float) -> list[Trial]:
    """Packed against unpacked rows: the same sequences in each update; and as many on average."""
    adamw = {"learning_rate": 3e-3}
    common: Settings = {"size": size, "steps": size.updates, "points": 6, "optimizer": adamw, **PRESET}
    kept: Settings = {"sequences_per_update": size.batch, **common}
    few = round(size.batch / factor)  # rows: an update is a micro-batch
    arms = {
        "unpacked": _settings(**kept, rows_per_micro_batch=size.batch, packing={"max_sequences": 1}),
        "packed": _settings(**kept, rows_per_micro_batch=few + 1),
        "packed by rows": _settings(**common, unpacked_batch_size=size.batch, rows_per_micro_batch=few),
    }
    return _trials("packing", size, arms)


def packing_factor(data: Path, size: Size) -> float:
    """Sequences in a row, as `--unpacked-batch-size` takes it."""
    config = PretrainConfig(
        data=str(data),
        packing=PackingConfig(max_length=size.length, capacity=size.length),
        unpacked_batch_size=1000,
        unpacked_keep="rows",
    )
    sources = make_sources(config, open_sources(parse_sources(str(data)), verify=False), data, ahead=False)
    return sources[0].blocks[size.length].preview()[1].packing_factor


def beta_study(size: Size, factor: float) -> list[Trial]:
    """LAMB without packing, and four ways to follow that recipe with packing, over as many sequences."""
    rows = size.batch
    fewer = 5 * max(1, round(size.updates / factor / 5))
    unpacked: Settings = {"size": size, "steps": size.updates, "points": 5, "optimizer": LAMB, **PRESET}
    packed = unpacked | {"steps": fewer}
    scaled = packed | {"optimizer": LAMB | {"learning_rate": factor * LAMB["learning_rate"]}}
    kept: Settings = {"rows_per_update": rows, "rows_per_micro_batch": rows}
    rule = {"unpacked_batch_size": rows, "unpacked_keep": "rows", "rows_per_micro_batch": rows}
    arms = {
        "unpacked": _settings(**unpacked, **kept, packing={"max_sequences": 1}),
        "packed, fewer rows": _settings(
            **unpacked, unpacked_batch_size=rows, rows_per_micro_batch=round(rows / factor)
        ),
        "packed": _settings(**packed, **kept),
        "packed, beta^p": _settings(**packed, **rule),
        "packed, p x rate": _settings(**scaled, **kept),
    }
    return _trials("betas", size, arms)


def norm_study(size: Size) -> list[Trial]:
    """Pre-LN and post-LN without warm-up, at rates from usual to large."""
    found = []
    for rate in size.rates:
        values = _settings(
            size=size,
            steps=size.deep,
            points=4,
            rows_per_update=4,
            rows_per_micro_batch=4,
            packing={"max_length": DEEP["max_length"]},
            optimizer={"learning_rate": rate},
            schedule={"warmup": 0.0, "shape": "constant"},
            trainer={"log_every": max(1, size.deep // 80)},
        )
        for name, architecture in ((POST, "bert"), (PRE, "prenorm")):
            shape: Settings = {"architecture": architecture, **DEEP}
            found += _trials("norms", size, {f"{name} {rate:g}": values}, **shape)
    return sorted(found, key=lambda trial: trial.seed)


def trials(study: str, size: Size, data: Path) -> list[Trial]:
    """All of a study: packing, betas or norms."""
    if study == "norms":
        return norm_study(size)
    factor = packing_factor(data, size)
    return packing_study(size, factor) if study == "packing" else beta_study(size, factor)
