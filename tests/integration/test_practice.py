"""What people do with tables: named columns, pairs, long documents, several tests."""

import brimful
from brimful.base.config import read_yaml
from builders.task_models import new_encoder


def test_matched_and_mismatched(tmp_path, capfd, monkeypatch):
    new_encoder(pairs=True).save(tmp_path / "encoder")
    header = "index\tpairID\tsentence1\tsentence2"
    labels = ["contradiction", "neutral", "entailment"]
    for name in ("train", "dev_matched", "dev_mismatched"):
        rows = [f'{i}\tp\tw{i} "w1\tw2\tneutral\t{labels[i % 3]}' for i in range(12)]
        rows.append('12\tp\t"w1\tw2\tneutral\t-')
        (tmp_path / f"{name}.tsv").write_text("\n".join([f"{header}\tlabel1\tgold_label", *rows]) + "\n")
    tests = {"test": tmp_path / "dev_matched.tsv", "more_tests": [tmp_path / "dev_mismatched.tsv"]}
    monkeypatch.chdir(tmp_path)
    train = {"encoder": "encoder", "train": "train.tsv", "epochs": 0.3, "precision": "fp32"}
    out = tmp_path / "run"
    summary = brimful.finetune(**train, **tests, out=out, layout="glue/mnli", learning_rates=(3e-3,))
    assert summary["labels"] == ["entailment", "neutral", "contradiction"]
    assert (summary["test"]["n"], summary["tests"]["dev_mismatched"]["n"]) == (12, 12)
    assert len((out / "predictions-dev_mismatched.jsonl").read_text().splitlines()) == 12
    assert "warning: train.tsv: 1 row with the label - are left out" in capfd.readouterr().err
    assert read_yaml(out / "config.yaml")["train"] == str(tmp_path / "train.tsv")
    (tmp_path / "test.tsv").write_text(header + "\n0\tp\tw1\tw2\n1\tp\tw3\tw4\n")
    files = {"model": out, "input": tmp_path / "test.tsv", "layout": "glue/mnli"}
    brimful.predict(**files, output=tmp_path / "out.tsv")
    first, *rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert first[:2] == ["row", "prediction"]
    assert len(rows) == 2
    assert {row[1] for row in rows} <= set(labels)
