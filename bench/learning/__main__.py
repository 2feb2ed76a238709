"""Do small models learn the same when packed? Held-out losses on real text, several seeds of every arm.

    packing  packed against unpacked rows: with the same sequences in each update, and with as many on average
    betas    following a LAMB recipe that was found without packing: as many sequences in an update (fewer
             rows); or as many rows: betas unchanged, to the power of the packing factor p, or p x the rate
    norms    post-LN against pre-LN, 12 thin layers, no warm-up, learning rates up to a large one

The first two use the demo's Chinese reviews. The third uses Python's language reference with almost one token
per letter, which thin layers learn early. One thread, float32, no dropout. Finished runs are kept in --work,
so an interrupted bench continues.

    python -m bench.learning [--studies packing betas norms] [--quick] [--out FOLDER] [--figures FOLDER]
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.study import Run, by_arm, kept, paired
from bench.learning.plots import draw_arms, draw_same, draw_steps
from bench.learning.run import Trial, manual_paragraphs, prepare_texts, review_texts, train
from bench.learning.studies import FULL, PIECES, POST, PRE, QUICK, Size, packing_factor, trials
from bench.learning.tables import compared, final, on_the_way, outcomes
from brimful.corpus.shards import Corpus
from brimful.data.mixture import open_sources, parse_sources

STUDIES = ("packing", "betas", "norms")


def frequency_loss(data: Path, vocabulary: int) -> float:
    """Held-out loss of predicting each token by how often it is in the training documents (add one)."""

    def counts(corpus: Corpus | None) -> np.ndarray:
        assert corpus is not None
        tokens = [np.asarray(shard.tokens) for shard in corpus.shards]
        return np.bincount(np.concatenate(tokens), minlength=vocabulary)

    corpus = next(iter(open_sources(parse_sources(str(data)), verify=False).values()))
    every, held_out = counts(corpus), counts(corpus.part("validation"))
    seen = every - held_out + 1
    return float(-(held_out @ np.log(seen / seen.sum())) / held_out.sum())


def study_data(study: str, size: Size, folder: Path) -> tuple[Path, int]:
    """The prepared text of a study, and the size of its vocabulary."""
    if study == "norms":
        paragraphs = manual_paragraphs(size.paragraphs)
        return prepare_texts(folder / "manual", paragraphs, PIECES, validation_share=0.05), PIECES
    reviews = review_texts(size.reviews)
    return prepare_texts(folder / "reviews", reviews, size.vocabulary, validation_share=0.02), size.vocabulary


def run_study(study: str, size: Size, folder: Path, before: Callable[[Trial], None]) -> dict[str, Any]:
    """Make the missing trainings of a study; returns its record.

    Args:
        before: called before each training.
    """
    data, vocabulary = study_data(study, size, folder)
    runs = []
    for trial in trials(study, size, data):
        before(trial)
        runs.append(kept(folder / f"{trial.name}.json", partial(train, trial, data, folder)))
    return {
        **machine_facts(),
        "torch": torch.__version__,
        "study": study,
        "packing_factor": packing_factor(data, size),
        "frequency_loss": frequency_loss(data, vocabulary),
        "arms": {trial.arm: {**trial.values, "shape": trial.shape} for trial in trials(study, size, data)},
        "runs": runs,
    }


def show(record: dict[str, Any], figure: Path) -> None:
    """Print a study's tables and draw its figure."""
    runs: list[Run] = record["runs"]
    print(f"\n{record['study']}: {record['packing_factor']:.3f} sequences in a packed row\n")
    if record["study"] == "norms":
        print(outcomes(runs))
        print(f"\nby frequencies alone: {record['frequency_loss']:.3f}")
        arms = list(record["arms"])
        groups = {name: [arm for arm in arms if arm.startswith(name)] for name in (POST, PRE)}
        losses = {arm: final(each) for arm, each in by_arm(runs).items()}
        for post, pre in zip(groups[POST], groups[PRE], strict=True):
            print("{} minus {}: {:+.3f} ± {:.3f}".format(pre, post, *paired(losses[pre], losses[post])))
        draw_steps(figure, runs, groups, record["frequency_loss"])
        return
    print(compared(runs, "unpacked"))
    if record["study"] == "packing":
        print()
        print(on_the_way(runs, "unpacked"))
        draw_same(figure, runs, "unpacked")
    else:
        draw_arms(figure, runs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print tables, keep records and figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=STUDIES)
    parser.add_argument("--work", type=Path, default=DATA / "learning", help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="for learning_STUDY.json")
    parser.add_argument("--figures", type=Path, default=Path("docs"), help="for learning_STUDY.png")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    size = QUICK if options.quick else FULL
    folder = options.work / ("quick" if options.quick else "full")
    for study in options.studies:
        record = run_study(study, size, folder, lambda trial: print(trial.arm, trial.seed, flush=True))
        out = options.out / f"learning_{study}.json"
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        show(record, options.figures / f"learning_{study}.png")


if __name__ == "__main__":
    main()
