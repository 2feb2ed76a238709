"""`brimful check`: files as finetune takes them, and finetune's own words at its start."""

import json
from pathlib import Path

import numpy as np
import pytest

import brimful
from brimful.cli.main import main
from builders.encoders import small, word_tokenizer
from builders.tables import write_rows


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Takes 32 tokens, which are the words w0 to w89."""
    model = small("bert", vocabulary_size=95, max_length=32)
    model.tokenizer = word_tokenizer()
    folder = tmp_path_factory.mktemp("check") / "encoder"
    model.save(folder)
    return str(folder)


def write_table(path: Path, rows: list[dict]) -> str:
    write_rows(path, rows)
    return str(path)


def sentences(count: int, seed: int, words: int = 12) -> list[str]:
    drawn = np.random.default_rng(seed).integers(0, 80, (count, words))
    return [" ".join(f"w{word}" for word in row) for row in drawn]


def checked(capsys: pytest.CaptureFixture[str], *line: str) -> dict:
    assert main(["check", *line, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_tables_are_compared_in_their_order(tmp_path, capsys):
    texts = sentences(20, 1)
    rows = [{"text": text, "label": "ab"[number % 2]} for number, text in enumerate([*texts, texts[0]])]
    rows[3]["text"] = ""
    path = write_table(tmp_path / "a.tsv", rows)
    other = write_table(tmp_path / "b.tsv", [{"text": text, "label": "a"} for text in texts[4:9]])
    found = checked(capsys, path, other)
    kinds = [(finding["file"], finding["kind"]) for finding in found["findings"]]
    assert kinds == [(path, "reading"), (path, "duplicates"), (other, "leakage")]
    assert "1 row (line 5) have an empty text" in found["findings"][0]["message"]
    assert found["files"][path] == {"rows": 21, "labels": {"a": 11, "b": 10}}
    assert main(["check", path]) == 0
    out = capsys.readouterr().out
    assert "2 findings in 1 table." in out
    assert "a 11, b 10" in out
    assert main(["check", path, path]) == 1
    assert "the same file is given twice" in capsys.readouterr().err


def test_a_layout_brings_columns_labels_and_task(tmp_path, capsys):
    rows = [
        {"index": number, "sentence1": text, "sentence2": "w1", "gold_label": "neutral"}
        for number, text in enumerate(sentences(20, 1))
    ]
    path = write_table(tmp_path / "mnli.tsv", rows)
    found = checked(capsys, path, "--layout", "glue/mnli")
    assert found["files"][path]["labels"] == {"entailment": 0, "neutral": 20, "contradiction": 0}
    rows = [{"index": number, "sentence1": "w1", "sentence2": "w2", "score": number} for number in range(20)]
    path = write_table(tmp_path / "sts.tsv", rows)
    assert "labels" not in checked(capsys, path, "--layout", "glue/sts-b")["files"][path]
    assert main(["check", path, "--layout", "glue/sts-b", "--task", "classification"]) == 1
    assert "for the task regression, not classification" in capsys.readouterr().err


def test_the_start_of_finetune_tells_lengths_and_leaks_into_every_table(encoder, tmp_path, capfd):
    texts = sentences(40, 1)
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(texts)]
    train = write_table(tmp_path / "train.tsv", rows)
    tests = [
        write_table(tmp_path / f"{name}.tsv", [{"text": t, "label": i % 2} for i, t in enumerate(some)])
        for name, some in (("test", sentences(20, 2)), ("other", [*sentences(19, 3), texts[7]]))
    ]
    files = {"train": train, "test": tests[0], "more_tests": [tests[1]], "out": str(tmp_path / "run")}
    brimful.finetune(encoder=encoder, **files, max_length=16, batch=50, dry_run=True)
    said = capfd.readouterr().err
    assert "batch is 50 and train has 40 examples: one update shows them 1.2 times" in " ".join(said.split())
    assert "other.tsv: 1 row of 20 that are in" in said
    assert "train.tsv too (row 20 ('1') and row 8 ('1') there: " in said
    assert "tokens: median 14, 90 % within 14, 99 % within 14, longest 14, 0.00 % unknown" in said
    assert "an example has at most 16, the encoder takes 32" in said
