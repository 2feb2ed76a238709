"""A conditional random field for names: what was used before encoders.

Features are the usual ones: the token, its neighbours up to two away and in pairs, its shape and its ends.
The two strengths of regularisation are chosen by F1 on dev. python-crfsuite runs in an environment of its
own, as a worker: `python crf.py IN.json OUT.json`.
"""

import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STRENGTHS = list(itertools.product((0.01, 0.1, 0.5), (0.001, 0.01, 0.1)))
"""c1 and c2 of crfsuite's L-BFGS."""
REQUIREMENTS = ("python-crfsuite",)
Sentence = list[tuple[str, str]]
Span = tuple[int, int, int, str]


def read_sentences(path: Path) -> list[Sentence]:
    """Read the first and the last column of a file of a token a line."""
    sentences: list[Sentence] = [[]]
    for line in path.read_text(encoding="utf-8").splitlines():
        columns = line.split()
        if columns:
            sentences[-1].append((columns[0], columns[-1]))
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def find_spans(tags: list[list[str]]) -> set[Span]:
    """Return (sentence, first, last, label) of each name, in BIO or BMES, as conlleval reads them."""
    spans = set()
    for number, sentence in enumerate(tags):
        start, label = None, ""
        for place, tag in enumerate([*sentence, "O"]):
            mark, _, name = tag.partition("-")
            if start is not None and (mark in "OBS" or name != label or sentence[place - 1][0] in "ES"):
                spans.add((number, start, place - 1, label))
                start = None
            if mark != "O" and start is None:
                start, label = place, name
    return spans


def score(tags: list[list[str]], gold: list[list[str]]) -> dict[str, float]:
    """Return precision, recall and F1 of names."""
    ours, theirs = find_spans(tags), find_spans(gold)
    right = len(ours & theirs)
    precision, recall = right / max(len(ours), 1), right / max(len(theirs), 1)
    return {"f1": 2 * right / max(len(ours) + len(theirs), 1), "precision": precision, "recall": recall}


def measure(files: dict[str, Path], work: Path) -> dict[str, Any]:
    """Train and score a CRF on a set with train, dev and test."""
    from bench.common.corpora import DATA, environment

    DATA.mkdir(parents=True, exist_ok=True)
    python = environment("crf-venv", REQUIREMENTS, (), DATA)
    given, result = work / "crf-in.json", work / "crf-out.json"
    parts = {part: read_sentences(path) for part, path in files.items()}
    given.write_text(json.dumps(parts), encoding="utf-8")
    started = time.perf_counter()
    subprocess.run([str(python), __file__, str(given), str(result)], check=True)
    found = json.loads(result.read_text(encoding="utf-8"))
    seconds = time.perf_counter() - started
    return {"primary_metric": "f1", "wall_seconds": seconds, **found}


def shape(token: str) -> str:
    """Return a token with its letters and digits as classes, runs shortened."""
    classes = re.sub(r"[A-Z]", "X", re.sub(r"[a-z]", "x", re.sub(r"\d", "0", token)))
    return re.sub(r"(.)\1+", r"\1\1", classes)


def list_features(sentence: Sentence) -> list[list[str]]:
    """Return the features of each token."""
    tokens = ["<<", "<", *(token for token, _ in sentence), ">", ">>"]
    features = []
    for place in range(2, len(tokens) - 2):
        token = tokens[place]
        own = [f"shape={shape(token)}", f"lower={token.lower()}", f"start={token[:3]}", f"end={token[-3:]}"]
        near = [f"{offset}={tokens[place + offset]}" for offset in range(-2, 3)]
        pairs = [f"{at}+={' '.join(tokens[place + at : place + at + 2])}" for at in range(-2, 2)]
        shapes = f"shapes={shape(tokens[place - 1])} {shape(tokens[place + 1])}"
        features.append([*own, *near, *pairs, shapes])
    return features


def work(given: Path, result: Path) -> None:
    """Choose the strengths on dev, and write the metrics on test. Runs in the peers' environment."""
    import pycrfsuite

    parts = json.loads(given.read_text(encoding="utf-8"))
    features = {part: [list_features(sentence) for sentence in parts[part]] for part in parts}
    tags = {part: [[tag for _, tag in sentence] for sentence in parts[part]] for part in parts}
    best: dict[str, Any] = {"dev": {"f1": -1.0}}
    for c1, c2 in STRENGTHS:
        trainer = pycrfsuite.Trainer(verbose=False)
        for one, labels in zip(features["train"], tags["train"], strict=True):
            trainer.append(one, labels)
        trainer.set_params({"c1": c1, "c2": c2, "max_iterations": 100, "feature.possible_transitions": True})
        trainer.train(f"{given}.model")
        tagger = pycrfsuite.Tagger()
        tagger.open(f"{given}.model")
        dev = score([tagger.tag(one) for one in features["dev"]], tags["dev"])
        if dev["f1"] > best["dev"]["f1"]:
            test = score([tagger.tag(one) for one in features["test"]], tags["test"])
            best = {"dev": dev, "test": test | {"n": len(tags["test"])}, "c1": c1, "c2": c2}
    result.write_text(json.dumps(best), encoding="utf-8")


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]))
