"""What the ladder's TF-IDF costs, choice and all, and what its solver loses against lbfgs.

Made-up texts of 40 words, whose word frequencies are Zipf's, one word in twenty of their class; and with
`--data`, sets of texts that the user has: rows of text and label in NAME-train.jsonl and NAME-test.jsonl.
On these, the kind and strength that were chosen are fitted by scikit-learn's multinomial lbfgs too.

    python -m bench.finetune.tfidf [--data FOLDER] [--texts 10000] [--classes 100] [--out FILE.json]
"""

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from bench.common.processes import machine_facts
from bench.common.record import Record
from brimful.data.examples import Examples
from brimful.tables.table import Table
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.judging.baselines import Tfidf, linear
from brimful.tasks.task_data import TaskData

VOCABULARIES = (5_000, 20_000, 80_000)
WORDS, OWN_WORDS, OWN_SHARE = 40, 30, 0.05


def made_up(texts: int, classes: int, vocabulary: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts and labels; the words and the classes are the same for every seed."""
    fixed, random = np.random.default_rng(0), np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(["".join(fixed.choice(letters, fixed.integers(2, 11))) for _ in range(vocabulary)])
    frequency = 1 / (np.arange(vocabulary) + 3)
    own = fixed.integers(0, vocabulary, (classes, OWN_WORDS))
    labels = random.integers(0, classes, texts)
    chosen = random.choice(vocabulary, (texts, WORDS), p=frequency / frequency.sum())
    theirs = own[labels[:, None], random.integers(0, OWN_WORDS, (texts, WORDS))]
    chosen = np.where(random.random((texts, WORDS)) < OWN_SHARE, theirs, chosen)
    return [" ".join(words[row]) for row in chosen], [f"c{label}" for label in labels]


def read(path: Path) -> tuple[list[str], list[str]]:
    """Texts and labels of a file."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in rows], [row["label"] for row in rows]


def data_of(train: tuple[list[str], list[str]], test: tuple[list[str], list[str]]) -> TaskData:
    """The tables of a task, whose texts no encoder reads; every fifth row of train is dev."""
    task = Classification(sorted({*train[1], *test[1]}))

    def encoded(texts: list[str], labels: list[str]) -> Encoded:
        table = Table(Path("made-up.tsv"), texts, None, labels)
        blank = [np.zeros(1, dtype=np.int32)] * len(texts)
        return Encoded(table, Examples(blank, blank, task.targets(table), 1, 0))

    every = encoded(*train)
    is_dev = np.arange(len(every)) % 5 == 0
    fit, dev = (every.take(np.flatnonzero(part)) for part in (~is_dev, is_dev))
    return TaskData(task, fit, dev, every, encoded(*test), 0)


def measured(name: str, data: TaskData, *, against: bool) -> dict[str, object]:
    """CPU seconds of the rung, its choice, its accuracy, and lbfgs's with the same features and strength."""
    features, begin = Tfidf(), time.process_time()
    rung = linear(data.task, data, features)
    assert rung is not None
    row: dict[str, object] = {
        "set": name,
        "texts": len(data.train),
        "classes": len(data.task.labels),
        "cpu_seconds": round(time.process_time() - begin, 1),
        "reads": rung.reads,
        "strength": rung.strength,
        "features": features.of(data.test.table).shape[1],
        "accuracy": rung.metrics["accuracy"],
    }
    if against:
        labels, begin = data.test.targets["label"], time.process_time()
        model = LogisticRegression(C=rung.strength, max_iter=1000)
        model.fit(features.fit(data.train.table), data.train.targets["label"])
        theirs = model.predict(features.of(data.test.table)) == labels
        ours = rung.answers.argmax(1) == labels
        gains = ours.astype(float) - theirs
        gap, error = float(gains.mean()), float(gains.std() / len(gains) ** 0.5)
        row |= {"lbfgs_accuracy": float(theirs.mean()), "minus_lbfgs": gap, "standard_error": error}
        row["lbfgs_cpu_seconds_of_one_fit"] = round(time.process_time() - begin, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    versions = {name: version(name) for name in ("scikit-learn", "scipy", "numpy")}
    facts = {"bench": "finetune.tfidf", **machine_facts(), "versions": versions}
    record = Record(facts, options.out)
    for train in sorted(options.data.glob("*-train.jsonl")) if options.data else []:
        name = train.name.removesuffix("-train.jsonl")
        data = data_of(read(train), read(train.with_name(f"{name}-test.jsonl")))
        record.add(measured(name, data, against=True))
        print(record.rows[-1], flush=True)
    for vocabulary in VOCABULARIES:
        parts = (made_up(options.texts, options.classes, vocabulary, seed) for seed in (1, 2))
        row = measured(f"made up, {vocabulary:,} words", data_of(*parts), against=False)
        record.add(row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
