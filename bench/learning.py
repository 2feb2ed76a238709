"""Does a packed model learn the same? Packed BERT's learning curves, on the demo's Chinese reviews.

    unpacked        single sequences, each in a row of its own
    packed          as many rows an update, and so more sequences
    packed, betas   the same, with the betas of AdamW to the power of the packing factor, the article's remedy

A mini (4 layers of 256) at the same updates, and so for the same time; one seed, no dropout. The record has
the loss of piece frequencies too: a model above it has not learned from context. Finished runs are kept in
--work, so an interrupted bench continues.

    python -m bench.learning [--quick] [--out FILE.json]
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common.corpora import DATA
from bench.common.pretraining import Trial, prepare_texts, run_trials
from bench.common.processes import machine_facts
from brimful.base.storage import write_json
from brimful.commands.demo_reviews import find_reviews, load_reviews
from brimful.corpus.shards import Corpus
from brimful.data.config import PackingConfig
from brimful.data.mixture import open_sources, parse_sources
from brimful.optim.config import OptimizerConfig
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import make_sources

Settings = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is trained.

    Attributes:
        length: tokens of the longest sequence, and slots of a row.
        reviews: of each label; None takes all.
        rows: of an update.
    """

    model: str
    precision: str
    length: int
    vocabulary: int
    reviews: int | None
    updates: int
    rows: int


FULL = Size("mini", "bf16", 128, 4000, None, 800, 64)
QUICK = Size("tiny", "fp32", 32, 300, 120, 6, 8)


def measure_packing_factor(data: Path, size: Size) -> float:
    """Sequences in a row, on average."""
    packing = PackingConfig(max_length=size.length, capacity=size.length)
    config = PretrainConfig(data=str(data), packing=packing)
    sources = make_sources(config, open_sources(parse_sources(str(data)), verify=False), data, ahead=False)
    return sources[0].blocks[size.length].preview()[1].packing_factor


def measure_frequencies(data: Path) -> float:
    """The loss of held-out text, in nats a token, by the frequencies of pieces in the training text."""
    corpus = Corpus.open(data)
    counts = {}
    for split in ("train", "validation"):
        part = corpus.part(split)
        assert part is not None
        tokens = np.concatenate([np.asarray(shard.tokens) for shard in part.shards])
        counts[split] = np.bincount(tokens, minlength=corpus.vocabulary_size)
    frequencies = (counts["train"] + 1) / (counts["train"] + 1).sum()
    return float(-(counts["validation"] * np.log(frequencies)).sum() / counts["validation"].sum())


def make_arms(size: Size, factor: float) -> dict[str, Settings]:
    """Return the settings of a PretrainConfig for each arm."""
    evaluate = max(1, size.updates // 12)
    loop = {"steps": size.updates, "evaluate_every": evaluate, "log_every": evaluate, "checkpoint_every": 0}
    common = {
        "recipe": "plain",
        "model": size.model,
        "precision": size.precision,
        "verify_data": False,
        "masking": {"unit": "tokens"},  # its loss is comparable with that of piece frequencies
        "validation_tokens": 10_000_000,  # all there are, however they share rows
        "rows_per_update": size.rows,
        "rows_per_micro_batch": size.rows,
        "trainer": loop,
    }
    packing = {"max_length": size.length, "capacity": size.length}
    betas = {"beta1": OptimizerConfig.beta1**factor, "beta2": OptimizerConfig.beta2**factor}
    return {
        "unpacked": common | {"packing": packing | {"max_sequences": 1}},
        "packed": common | {"packing": packing},
        "packed, betas": common | {"packing": packing, "optimizer": betas},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print the last points, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, default=DATA / "learning", help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("bench/results/learning_curves.json"))
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    size = QUICK if options.quick else FULL
    folder = options.work / ("quick" if options.quick else "full")
    demo = load_reviews(find_reviews())
    reviews = sorted([text for text, _ in (*demo.labelled, *demo.test)] + demo.unlabelled)[: size.reviews]
    data = prepare_texts(folder / "reviews", reviews, size.vocabulary, 0.02)
    factor = measure_packing_factor(data, size)
    arms = make_arms(size, factor)
    runs = run_trials([Trial("curves", arm, 0, values) for arm, values in arms.items()], data, folder)
    facts = machine_facts("brimful/data", "brimful/objectives", "brimful/train") | {
        "torch": torch.__version__,
        "packing_factor": factor,
        "frequency_loss": measure_frequencies(data),
    }
    write_json(options.out, facts | {"arms": arms, "runs": runs})
    print(f"frequencies of pieces: {facts['frequency_loss']:.4f}; {factor:.3f} sequences in a packed row")
    for run in runs:
        print(run["arm"], run["points"][-1])


if __name__ == "__main__":
    main()
