"""The verdict of a run: one line at its end, and its entry in summary.json.

It says what limits the speed of the run's trainings and, for pretraining, whether the loss is normal.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from brimful.console import say
from brimful.corpus.frequencies import entropy, piece_frequencies
from brimful.corpus.shards import Corpus
from brimful.data.sources import Source
from brimful.train.metrics import read_metrics
from brimful.train.verdict import PRETRAINING, TASK, judge_loss, speed


def verdict_of_pretraining(
    directory: Path, sources: Sequence[Source], corpora: Mapping[str, Corpus], metrics: Mapping[str, float]
) -> dict[str, Any]:
    """What limits the run's speed, and whether its loss is normal.

    Args:
        metrics: of the last evaluation; empty without one.

    Returns:
        `unigram_entropy` (nats); with metrics, `loss_is_normal`; and the fields of a `Verdict`.
    """
    shares = {corpora[source.name]: source.proportion for source in sources}
    unigram, said = entropy(piece_frequencies(shares)), []
    verdict: dict[str, Any] = {"unigram_entropy": unigram}
    if (found := speed([read_metrics(directory / "metrics.jsonl")], PRETRAINING)) is not None:
        said.append(str(found))
        verdict |= found.facts
    if (loss := metrics.get("token_loss", metrics.get("loss"))) is not None:
        verdict["loss_is_normal"], clause = judge_loss(loss, unigram)
        said.append(clause)
    say("; ".join(said))
    return verdict


def verdict_of_trainings(folders: Iterable[Path]) -> dict[str, Any]:
    """What limits the speed of the trainings of a fine-tuning or distillation, all together.

    Args:
        folders: with the metrics.jsonl of each; one that is no longer there counts as empty.

    Returns:
        `verdict`, with the fields of a `Verdict`; nothing without a training.
    """
    files = [folder / "metrics.jsonl" for folder in folders]
    found = speed([read_metrics(file) for file in files if file.exists()], TASK)
    if found is None:
        return {}
    say(str(found))
    return {"verdict": found.facts}
