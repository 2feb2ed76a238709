"""The Summary of a pretraining."""

from collections.abc import Mapping
from typing import Any

from brimful.base.numbers import branch, duration, metric, percent, short
from brimful.base.summary import Summary, make_facts_table
from brimful.train.metrics import list_outcome


def summarise_pretraining(facts: Mapping[str, Any]) -> Summary:
    """What came out of a pretraining: its loss, and how full its rows were.

    Args:
        facts: what summary.json holds.
    """
    loss, entropy = metric(facts, "validation.loss"), metric(facts, "verdict.unigram_entropy")
    tokens, seconds = metric(facts, "tokens") or 0, metric(facts, "seconds") or 0
    verdict = f"Trained on {short(tokens)} real tokens in {duration(seconds)}"
    if loss is not None:
        verdict += f"; the loss on held-out text is {loss:.2f}"
    is_normal = branch(facts, "verdict").get("loss_is_normal")
    if is_normal is True:
        verdict += f", which is normal (guessing by frequency: {entropy:.2f})"
    elif is_normal is False:
        verdict += (
            f", no better than guessing by frequency ({entropy:.2f}): train longer, or change"
            " optimizer.learning_rate"
        )
    perplexity, found = metric(facts, "validation.perplexity"), metric(facts, "validation.accuracy")
    packed, padded = metric(facts, "packing.efficiency"), metric(facts, "packing.padded_efficiency")
    result = {
        "Perplexity on held-out text": None if perplexity is None else short(perplexity),
        "Masked tokens found": None if found is None else percent(found),
        "Real tokens a second": short(metric(facts, "tokens_per_second") or 0),
        "Parameters": short(metric(facts, "parameters") or 0),
        "Real tokens in a row": None if packed is None else percent(packed),
        "Real tokens in a row, if padded": None if padded is None else percent(padded),
    }
    tables = make_facts_table("Result", result | list_outcome(facts, loss))
    return Summary("Pretrained encoder", f"{verdict}.", tables)
