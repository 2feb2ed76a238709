"""One side of `bench.pruning`: prints a JSON object."""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ["RAYON_NUM_THREADS"] = "1"

from brimful.corpus.reading.read import ReadConfig
from brimful.corpus.reading.texts import read_texts
from brimful.demonstration.reviews import find_reviews, load_reviews
from brimful.text.pruning import prune, unknown_rate
from brimful.text.tokenizer import load

SEED = 0
BATCH = 4096


def texts_of(paths: list[str], unseen: bool) -> Iterator[str]:
    """The lines of the files; of the demo's reviews, the training side or the test side."""
    for path in paths:
        if path != "demo":
            yield from read_texts([path], os.devnull, ReadConfig(split="line"))
            continue
        reviews = load_reviews(find_reviews(), SEED, None)
        if unseen:
            yield from (text for text, _ in reviews.test)
        else:
            yield from [*(text for text, _ in reviews.labelled), *reviews.unlabelled]


def main(side: str, name: str, unseen: str, *corpus: str) -> dict[str, Any]:
    tokenizer = load(name)
    texts = list(texts_of([*corpus], False))
    began = time.process_time()
    if side == "encode":
        for begin in range(0, len(texts), BATCH):
            for encoding in tokenizer.encode_batch_fast(
                texts[begin : begin + BATCH], add_special_tokens=False
            ):
                _ = encoding.ids
        return {"seconds": time.process_time() - began}
    pruned = prune(tokenizer, texts)
    seconds = time.process_time() - began
    held_out = list(texts_of([unseen], True))
    new, kept = pruned.tokenizer, pruned.kept
    before, after = tokenizer.encode_batch(held_out), new.encode_batch(held_out)
    return {
        "seconds": seconds,
        "megabytes": sum(len(text.encode()) for text in texts) / 1e6,
        "texts": len(texts),
        "pieces_used": pruned.statistics.used,
        "pieces": [tokenizer.get_vocab_size(), len(kept)],
        "corpus_unknown_rate": [unknown_rate(tokenizer, texts), unknown_rate(new, texts)],
        "corpus_texts_changed": sum(
            one.ids != kept[other.ids].tolist()
            for begin in range(0, len(texts), BATCH)
            for one, other in zip(
                tokenizer.encode_batch_fast(texts[begin : begin + BATCH]),
                new.encode_batch_fast(texts[begin : begin + BATCH]),
                strict=True,
            )
        ),
        "unseen_texts": len(held_out),
        "unseen_tokens": [sum(map(len, before)), sum(map(len, after))],
        "unseen_unknown_rate": [unknown_rate(tokenizer, held_out), unknown_rate(new, held_out)],
        "unseen_texts_changed": sum(
            one.ids != kept[other.ids].tolist() for one, other in zip(before, after, strict=True)
        ),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
