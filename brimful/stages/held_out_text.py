"""Masked-LM loss and accuracy of encoders on held-out text, source by source."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.storage import read_record
from brimful.corpus.shards import MANIFEST, Corpus
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.data.batch import PackedBatch
from brimful.data.config import MaskingConfig, PackingConfig, SequencesConfig
from brimful.data.reader import SequenceReader
from brimful.data.streams import validation_batches
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.objectives.masked_lm import MaskedLM
from brimful.train.objective import Runtime

CAPACITY = 1024
"""Token slots of a row, or the maximum length if that is more."""
HOW_TO_PREPARE = "brimful prepare TEXT --out DIR --tokenizer ENCODER --validation-share 1"


class _Summary(TypedDict):
    tokens_per_character: float


class _Manifest(TypedDict):
    summary: _Summary


def mean_of_ratios(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """sum(sums) / sum(counts) over n rows, and the standard error of this ratio estimator (Cochran 1977,
    section 6.4), NaN of one row."""
    mean = sums.sum() / counts.sum()
    n = len(sums)
    if n == 1:
        return float(mean), math.nan
    variance = n / (n - 1) * ((sums - mean * counts) ** 2).sum() / counts.sum() ** 2
    return float(mean), float(np.sqrt(variance))


def open_held_out(texts: Sequence[str]) -> dict[str, Corpus]:
    """The validation documents of prepared folders, by the paths in `texts`.

    Raises:
        BrimfulError: a path is no prepared folder, or its corpus holds no validation documents.
    """
    corpora = {}
    for text in texts:
        if not Path(text).exists():
            raise BrimfulError(f"{text} does not exist")
        if not (Path(text) / MANIFEST).is_file():
            raise BrimfulError(f"{text} is not a prepared folder; make one with: {HOW_TO_PREPARE}")
        corpus = Corpus.open(Path(text), verify=True).part("validation")
        if corpus is None:
            raise BrimfulError(f"{text} holds no validation documents; use prepare's --validation-share 1")
        corpora[text] = corpus
    return corpora


def evaluate_text(
    encoders: Mapping[str, ModelFolder],
    corpora: Mapping[str, Corpus],
    plans: Path,
    max_length: int,
    tokens: int,
    runtime: Runtime,
) -> dict[str, Any]:
    """Score each encoder on the held-out text that was prepared with its tokenizer.

    Args:
        encoders: folders by name.
        corpora: what `open_held_out` gives.
        plans: a folder for the packing of the text.
        max_length: the longest sequence.
        tokens: the most tokens of a corpus that are read.

    Returns:
        `text`, a record for each corpus and encoder; `text_differences`, a record for each corpus and pair of
        encoders; and `without_masked_lm`, the encoders that have no masked-LM head.

    Raises:
        BrimfulError: a loss is not finite, or no word of a text is masked.
    """
    scores: dict[str, dict[str, np.ndarray]] = {text: {} for text in corpora}
    without = []
    for name, model in encoders.items():
        encoder, head = load_pretrained(model)
        if head is None:
            say(f"{name} has no masked-LM head: it is left out of the losses on text")
            without.append(name)
            continue
        tokenizer = encoder.tokenizer
        assert tokenizer is not None
        encoder = encoder.to(runtime.device)
        objective = MaskedLM(head.to(runtime.device), {})
        reader = SequenceReader(tokenizer, MaskingConfig())
        packing = PackingConfig(max_length=max_length, capacity=max(CAPACITY, max_length))
        for text, corpus in corpora.items():
            if corpus.tokenizer_hash != tokenizer_hash(tokenizer):
                continue
            place = corpus.fingerprint
            batches = validation_batches(place, corpus, reader, packing, SequencesConfig(), tokens, plans)
            rows = _measure_rows(encoder, objective, batches, runtime)
            if not rows[:, 2].sum():
                raise BrimfulError(f"{text} is too short: none of its words is masked; give more text")
            if not np.isfinite(rows).all():
                raise BrimfulError(
                    f"{name}: its losses on {text} are NaN or infinite: its weights are damaged, or too large"
                    " for the precision"
                )
            scores[text][name] = rows
    records, differences = [], []
    for text, by_encoder in scores.items():
        rate = read_record(Path(text) / MANIFEST, _Manifest)["summary"]["tokens_per_character"]
        for name, rows in by_encoder.items():
            record = _describe_losses(rows, rate)
            records.append({"source": text, "encoder": name, **record})
        for (first, ours), (second, theirs) in combinations(by_encoder.items(), 2):
            difference, error = mean_of_ratios(ours[:, 0] - theirs[:, 0], ours[:, 2])
            pair = {"source": text, "first": first, "second": second}
            differences.append(pair | {"difference": difference, "standard_error": error})
    return {"text": records, "text_differences": differences, "without_masked_lm": without}


def _measure_rows(
    encoder: Encoder, objective: MaskedLM, batches: Sequence[PackedBatch], runtime: Runtime
) -> np.ndarray:
    """float64 (R, 3): of each packed row the summed loss, the right predictions, the predictions."""
    rows = []
    with torch.inference_mode():
        for batch in batches:
            batch = batch.to(runtime.device)
            with runtime.autocast():
                hidden = encoder(batch, kept=objective.kept(batch))
                measured = objective.measure(hidden, batch)
            rows.append([measured["loss"][0], measured["accuracy"][0], measured["loss"][1]])
    return np.array(rows)


def _describe_losses(rows: np.ndarray, tokens_a_character: float) -> dict[str, float]:
    """The metrics of an encoder on a text, as summary.json has them."""
    _, right, predictions = rows.sum(0)
    mean, error = mean_of_ratios(rows[:, 0], rows[:, 2])
    return {
        "loss": mean,
        "standard_error": error,
        "accuracy": float(right / predictions),
        "bits_per_character": mean * tokens_a_character / math.log(2),
        "predictions": int(predictions),
    }
