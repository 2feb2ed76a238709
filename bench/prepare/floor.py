"""The floor of a preparation: how fast the libraries do what it cannot do without, on one core.

Parsing pages with lexbor, tokenizing with the offsets that word boundaries need, segmenting Chinese: each on
its own, on the pages of a folder and on the clean text that `brimful prepare` made of them.

    python -m bench.prepare.floor PREPARED FOLDER
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SAMPLE_BYTES = 8_000_000
REPEATS = 3


def spread(sizes: list[int]) -> range:
    """Every k-th item, so that the chosen ones have about `SAMPLE_BYTES`."""
    return range(0, len(sizes), max(1, round(sum(sizes) / SAMPLE_BYTES)))


def read_pages(folder: Path) -> list[str]:
    """A sample of the HTML pages in a folder."""
    files = sorted(folder.glob("*.html"))
    chosen = spread([file.stat().st_size for file in files])
    return [files[number].read_text(encoding="utf-8", errors="replace") for number in chosen]


def read_clean_texts(prepared: Path) -> list[str]:
    """A sample of the clean text in a prepared folder: the column `text` of its Parquet files."""
    import pyarrow.parquet as pq

    texts: list[str] = []
    for path in sorted(prepared.rglob("*.parquet")):
        file = pq.ParquetFile(path)
        if "text" in file.schema_arrow.names:
            texts += [text for text in file.read(["text"])["text"].to_pylist() if text]
    if not texts:
        sys.exit(f"bench: no Parquet file below {prepared} has a column `text`")
    return [texts[number] for number in spread([len(text.encode()) for text in texts])]


def seconds(work: Callable[[], Any]) -> float:
    """Median CPU time."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return statistics.median(times)


def measure(prepared: Path, folder: Path) -> dict[str, float]:
    """MB of input (10^6 bytes of UTF-8) a second of each part; also tokens a second."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import rjieba
    from selectolax.lexbor import LexborHTMLParser
    from tokenizers import Tokenizer

    pages, texts = read_pages(folder), read_clean_texts(prepared)
    page_mb, text_mb = (sum(len(item.encode()) for item in items) / 1e6 for items in (pages, texts))
    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    batches = [texts[begin : begin + 256] for begin in range(0, len(texts), 256)]

    def tokenize() -> int:
        encoded = (tokenizer.encode_batch(batch, add_special_tokens=False) for batch in batches)
        return sum(len(encoding) for batch in encoded for encoding in batch)

    rjieba.cut("开始")  # loads its dictionary
    tokens, tokenizing = tokenize(), seconds(tokenize)
    return {
        "parse_mb_per_second": page_mb / seconds(lambda: [LexborHTMLParser(page) for page in pages]),
        "tokenize_mb_per_second": text_mb / tokenizing,
        "tokens_per_second": tokens / tokenizing,
        "segment_mb_per_second": text_mb / seconds(lambda: [rjieba.cut(text) for text in texts]),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("folder", type=Path)
    print(json.dumps(measure(**vars(parser.parse_args()))))
