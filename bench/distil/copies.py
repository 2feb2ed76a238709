"""Does the memory of `augment` and `distil` grow with the number of copies?

A table of random words is augmented with few copies and with many, and a teacher of random weights distils
both files into a student of one layer, each verb in a process of its own with an empty cache. Candidates are
neighbours, since only their number counts here. `anonymous` is the most memory that a process has of its own
while it runs, sampled every 20 ms; `peak` also counts pages of files that are mapped, which the system takes
back when others need them.

    python -m bench.distil.copies [--rows 4000] [--copies 1 20] [--out FILE.json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.processes import machine_facts
from bench.common.record import Record
from brimful.base.randomness import derive_key, hash_words

WORDS, LENGTH = 2000, 40
"""Distinct words, and the most of a text."""
MAKE = """
import sys
from pathlib import Path
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from brimful import Encoder
from brimful.model.heads import SequenceHead
from brimful.hf.folders import save_model
from brimful.model.shape import EncoderConfig
from bench.distil.copies import words

folder = Path(sys.argv[1])
ids = {piece: number for number, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words()])}
tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
ends = [(name, ids[name]) for name in ("[CLS]", "[SEP]")]
tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
torch.manual_seed(0)
shape = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "max_length": 64}
encoder = Encoder(EncoderConfig(vocabulary_size=len(ids), dropout=0.0, **shape))
encoder.tokenizer = tokenizer
save_model(folder / "encoder", encoder)
save_model(folder / "teacher", encoder, SequenceHead(encoder, 2), ["bad", "good"])
"""


def words() -> list[str]:
    """Made-up words of six letters, all of them pieces of the vocabulary."""
    draws = hash_words(derive_key("bench", "words"), np.arange(6 * WORDS)).reshape(-1, 6) % np.uint64(26)
    return list(dict.fromkeys("".join(chr(97 + int(letter)) for letter in word) for word in draws))


def write_rows(path: Path, rows: int) -> None:
    """A table of texts with two labels."""
    known = words()
    with open(path, "w", encoding="utf-8") as file:
        file.write("text\tlabel\n")
        for row in range(rows):
            draws = hash_words(derive_key("bench", "row", row), np.arange(LENGTH)) % np.uint64(len(known))
            text = " ".join(known[int(draw)] for draw in draws[: 10 + row % (LENGTH - 9)])
            file.write(f"{text}\t{('bad', 'good')[row % 2]}\n")


def watched(command: list[str], cache: Path) -> dict[str, Any]:
    """Run a verb, and sample what memory its process has."""
    environment = os.environ | {"BRIMFUL_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment)
        most = {"RssAnon": 0, "VmHWM": 0}
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                break
            for line in status.splitlines():
                name, _, value = line.partition(":")
                if name in most:
                    most[name] = max(most[name], int(value.split()[0]))
            time.sleep(0.02)
        if process.wait():
            errors.seek(0)
            sys.exit(f"bench: `{' '.join(command)}` failed:\n{errors.read()[-2000:]}")
        out.seek(0)
        facts = json.loads(out.read().splitlines()[-1])
    return {
        "anonymous_mb": most["RssAnon"] / 1024,
        "peak_mb": most["VmHWM"] / 1024,
        "seconds": time.perf_counter() - started,
        "facts": facts,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 20])
    parser.add_argument(
        "--epochs", type=float, default=0.02, help="of each stage: memory does not depend on it"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    facts = {
        "bench": "distil.copies",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine_facts(),
    }
    record = Record(facts | {"rows_of_the_table": options.rows}, options.out)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([sys.executable, "-c", MAKE, place], check=True)
        write_rows(folder / "train.tsv", options.rows)
        write_rows(folder / "test.tsv", 50)
        brimful = [sys.executable, "-m", "brimful"]
        for copies in options.copies:
            table, cache = folder / f"{copies}.tsv", folder / f"cache-{copies}"
            files = ["--input", folder / "train.tsv", "--output", table, "--encoder", folder / "encoder"]
            stage = [f"--{name}.epochs={options.epochs}" for name in ("layers", "logits")]
            data = ["--train", table, "--test", folder / "test.tsv", "--student-layers", 1, *stage]
            lines = {
                "augment": [*files, "--copies", copies],
                "distil": ["--teacher", folder / "teacher", "--out", folder / f"run-{copies}", *data],
            }
            for verb, line in lines.items():
                if verb == "distil":
                    line += ["--precision", "fp32", "--initialisation", "teacher"]
                found = watched([*brimful, verb, *map(str, line), "--json"], cache)
                rows = found.pop("facts")["written" if verb == "augment" else "texts"]
                record.add({"verb": verb, "copies": copies, "rows": rows, **found})
                print(
                    f"{verb:8} {copies:3} copies, {rows:9,} rows: {found['anonymous_mb']:6.0f} MB of its own,"
                    f" peak {found['peak_mb']:6.0f} MB, {found['seconds']:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
