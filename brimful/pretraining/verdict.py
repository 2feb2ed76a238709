"""The verdict of a pretraining: what limits its speed, and whether its loss is normal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brimful.corpus.frequencies import entropy, piece_frequencies
from brimful.corpus.shards import Corpus
from brimful.data.sources import Source
from brimful.train.metrics import read_metrics
from brimful.train.verdict import PRETRAINING, is_normal, speed


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
    unigram = entropy(piece_frequencies(shares))
    verdict: dict[str, Any] = {"unigram_entropy": unigram}
    if (found := speed([read_metrics(directory / "metrics.jsonl")], PRETRAINING)) is not None:
        verdict |= found.facts
    if (loss := metrics.get("token_loss", metrics.get("loss"))) is not None:
        verdict["loss_is_normal"] = is_normal(loss, unigram)
    return verdict
