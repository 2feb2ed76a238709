"""Masked-LM loss and accuracy of encoders on held-out text, source by source."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.storage import read_record
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.preparing import prepare_corpus
from brimful.corpus.shards import MANIFEST, Corpus
from brimful.corpus.text.tokenizer import tokenizer_hash
from brimful.data.config import MaskingConfig, PackingConfig, SequencesConfig
from brimful.data.reader import SequenceReader
from brimful.data.streams import validation_batches
from brimful.hf.folders import load_pretrained
from brimful.hf.model_folder import ModelFolder
from brimful.objectives.masked_lm import MaskedLM
from brimful.train.objective import Runtime

CAPACITY = 1024
"""Token slots of a row, or the maximum length if that is more."""


class _Summary(TypedDict):
    tokens_per_character: float


class _Manifest(TypedDict):
    summary: _Summary


@dataclass(frozen=True)
class Scores:
    """What an encoder reached on one source.

    Attributes:
        rows: float64 (R, 3): of each packed row the summed loss, the right predictions, the predictions.
        tokens_a_character: of the source, by the encoder's tokenizer.
        tokenizer: a hash of it: rows of the same tokenizer hold the same text and masks.
    """

    rows: np.ndarray
    tokens_a_character: float
    tokenizer: str

    @property
    def record(self) -> dict[str, float]:
        """The metrics, as summary.json has them."""
        _, right, predictions = self.rows.sum(0)
        mean, error = mean_of_ratios(self.rows[:, 0], self.rows[:, 2])
        return {
            "loss": mean,
            "standard_error": error,
            "accuracy": float(right / predictions),
            "bits_per_character": mean * self.tokens_a_character / math.log(2),
            "predictions": int(predictions),
        }


def mean_of_ratios(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """sum(sums) / sum(counts) over n rows, and the standard error of this ratio estimator (Cochran 1977,
    section 6.4), NaN of one row."""
    mean = sums.sum() / counts.sum()
    n = len(sums)
    if n == 1:
        return float(mean), math.nan
    variance = n / (n - 1) * ((sums - mean * counts) ** 2).sum() / counts.sum() ** 2
    return float(mean), float(np.sqrt(variance))


def evaluate_text(
    encoders: Mapping[str, ModelFolder],
    texts: Sequence[str],
    folder: Path,
    *,
    max_length: int,
    tokens: int,
    runtime: Runtime,
) -> dict[str, Any]:
    """Score encoders on held-out text.

    Args:
        encoders: folders by name.
        texts: raw files or folders, which are prepared with each encoder's tokenizer; or prepared folders,
            whose validation part is read.
        folder: where what is prepared lies.
        max_length: the longest sequence.
        tokens: the most tokens of a source that are read.

    Returns:
        `text`, a record for each source and encoder; `text_differences`, a record for each source and pair of
        encoders with the same tokenizer; and `without_masked_lm`, the encoders that have no masked-LM head.

    Raises:
        BrimfulError: a prepared folder has another tokenizer than an encoder, or no validation part.
    """
    records: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    scores: dict[tuple[str, str], Scores] = {}
    without = []
    for name, model in encoders.items():
        encoder, head = load_pretrained(model)
        if head is None:
            say(f"{name} has no masked-LM head: it is left out of the losses on text")
            without.append(name)
            continue
        tokenizer = encoder.tokenizer
        assert tokenizer is not None
        encoder, head = encoder.to(runtime.device), head.to(runtime.device)
        reader = SequenceReader(tokenizer, MaskingConfig())
        packing = PackingConfig(max_length=max_length, capacity=max(CAPACITY, max_length))
        objective = MaskedLM(head, {})
        made_by = tokenizer_hash(tokenizer)
        for number, text in enumerate(texts):
            place = folder / made_by / f"{number}-{Path(text).name}"
            corpus, rate = _open(text, place, name, model, made_by)
            batches = validation_batches(
                place.name, corpus, reader, packing, SequencesConfig(), tokens, place / "plans"
            )
            rows = []
            with torch.inference_mode():
                for batch in batches:
                    batch = batch.to(runtime.device)
                    with runtime.autocast():
                        hidden = encoder(batch, kept=objective.kept(batch))
                        measured = objective.measure(hidden, batch)
                    rows.append([measured["loss"][0], measured["accuracy"][0], measured["loss"][1]])
            if not sum(row[2] for row in rows):
                raise BrimfulError(f"{text} is too short: none of its words is masked; give more text")
            if not np.isfinite(rows).all():
                raise BrimfulError(
                    f"{name}: its losses on {text} are NaN or infinite: its weights are damaged, or too large"
                    " for the precision"
                )
            scores[text, name] = Scores(np.array(rows), rate, made_by)
    for text in texts:
        found = {name: scores[text, name] for name in encoders if (text, name) in scores}
        records += [{"source": text, "encoder": name, **each.record} for name, each in found.items()]
        for (first, ours), (second, theirs) in combinations(found.items(), 2):
            if ours.tokenizer == theirs.tokenizer:
                gaps = ours.rows[:, 0] - theirs.rows[:, 0]
                difference, error = mean_of_ratios(gaps, ours.rows[:, 2])
                pair = {"source": text, "first": first, "second": second}
                differences.append(pair | {"difference": difference, "standard_error": error})
    return {"text": records, "text_differences": differences, "without_masked_lm": without}


def _open(text: str, place: Path, name: str, encoder: ModelFolder, made_by: str) -> tuple[Corpus, float]:
    """The held-out documents of a source, and how many tokens a character of it takes."""
    path = Path(text)
    part: Corpus | None
    if (path / MANIFEST).is_file():
        corpus = Corpus.open(path, verify=True)
        if corpus.tokenizer_hash != made_by:
            raise BrimfulError(
                f"{text} was prepared with another tokenizer than that of {name}: give the raw text instead"
            )
        if (part := corpus.part("validation")) is None:
            raise BrimfulError(
                f"{text} holds no validation documents (prepare's --validation-share): give raw text"
                " that no encoder was trained on"
            )
    else:
        path = place / "data"
        prepare_corpus(
            PrepareConfig(paths=(text,), out=str(path), tokenizer=str(encoder), validation_share=0.0)
        )
        part = Corpus.open(path).part("train")
        assert part is not None
    return part, float(read_record(path / MANIFEST, _Manifest)["summary"]["tokens_per_character"])
