"""Count the lengths of public task sets: the files of brimful/packing/histograms, but for Graphcore's two.

    python -m bench.packing.histograms --data TASKS --english vocab.txt --chinese vocab.txt

TASKS holds the folders of docs/results/scores.md as their repositories have them. The vocabularies are
those of bert-base-uncased and bert-base-chinese; a pair of texts is one sequence, and longer ones are cut.
"""

import argparse
import csv
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers.implementations import BertWordPieceTokenizer

OUT = Path(__file__).parents[2] / "brimful" / "packing" / "histograms"
Texts = Iterator[tuple[str, str | None]]


def read_rows(path: Path, *columns: int, header: bool = False) -> Texts:
    """Yield columns of a table with tabs."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if header:
            next(rows)
        for row in rows:
            first, *second = [row[column] for column in columns]
            yield first, second[0] if second else None


def read_records(path: Path, *keys: str) -> Texts:
    """Yield values of lines of JSON."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            record: dict[str, Any] = json.loads(line)
            first, *second = [record[key] for key in keys]
            yield first, second[0] if second else None


def read_questions(path: Path) -> Texts:
    """Yield questions with their contexts, in SQuAD's form."""
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield question["question"], paragraph["context"]


SETS = {
    "glue-mrpc-128": ("MRPC, training set", "wasiahmad/paraphrase_identification", "english"),
    "glue-cola-128": ("CoLA, training set", "nyu-mll/CoLA-baselines", "english"),
    "glue-sst2-128": (
        "SST-2, the training set's 6,920 sentences (GLUE has 67,349 with their phrases)",
        "clairett/pytorch-sentiment-classification",
        "english",
    ),
    "clue-ocnli-128": ("OCNLI, train.10k", "CLUEbenchmark/OCNLI", "chinese"),
    "clue-tnews-128": ("TNEWS, public test and unlabelled titles", "CLUEbenchmark/FewCLUE", "chinese"),
    "clue-cmrc-512": ("CMRC 2018, dev set", "ymcui/cmrc2018", "chinese"),
}


def open_set(name: str, data: Path) -> list[tuple[Path, Texts]]:
    """Return the files of a set with their texts."""
    if name == "glue-mrpc-128":
        path = data / "mrpc/msr_paraphrase_train.txt"
        return [(path, read_rows(path, 3, 4, header=True))]
    if name == "glue-cola-128":
        path = data / "cola/in_domain_train.tsv"
        return [(path, read_rows(path, 3))]
    if name == "glue-sst2-128":
        path = data / "sst2/train.tsv"
        return [(path, read_rows(path, 0))]
    if name == "clue-ocnli-128":
        path = data / "ocnli/train.10k.json"
        return [(path, read_records(path, "sentence1", "sentence2"))]
    if name == "clue-tnews-128":
        paths = [data / "fewclue/tnews" / file for file in ("test_public.json", "unlabeled.json")]
        return [(path, read_records(path, "sentence")) for path in paths]
    path = data / "cmrc2018/squad-style/cmrc2018_dev.json"
    return [(path, read_questions(path))]


def hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def count(name: str, data: Path, vocabulary: Path) -> dict[str, Any]:
    """Return the record of a set: title, source, hashes, and counts by length from 1."""
    title, repository, language = SETS[name]
    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    longest = int(name.rpartition("-")[2])
    tokenizer.enable_truncation(longest)
    counts = np.zeros(longest, dtype=int)
    files = {}
    for path, texts in open_set(name, data):
        files[path.name] = hash_file(path)
        for first, second in texts:
            counts[len(tokenizer.encode(first, second).ids) - 1] += 1
    vocabulary_name = "bert-base-uncased" if language == "english" else "bert-base-chinese"
    return {
        "title": f"{title}: sequences by length, at most {longest} tokens of {vocabulary_name}",
        "source": f"{repository} on GitHub; counted by bench/packing/histograms.py",
        "sha256": files | {f"vocab.txt of {vocabulary_name}": hash_file(vocabulary)},
        "counts": counts.tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--english", type=Path, required=True, help="vocab.txt of bert-base-uncased")
    parser.add_argument("--chinese", type=Path, required=True, help="vocab.txt of bert-base-chinese")
    args = parser.parse_args()
    for name, (_, _, language) in SETS.items():
        record = count(name, args.data, getattr(args, language))
        (OUT / f"{name}.json").write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {sum(record['counts']):,} sequences")


if __name__ == "__main__":
    main()
