"""bench.infer.exports: each format of a task model is written and timed (toy sizes)."""

import json
from pathlib import Path

import pytest
import torch

from brimful import TaskModel
from brimful.hf.text_encoder import TextEncoder
from brimful.model.heads import SequenceHead
from brimful.tasks.classification import Classification
from builders.bench import bench
from builders.encoders import small, word_tokenizer


@pytest.mark.slow
def test_each_format_has_a_row(tmp_path: Path) -> None:
    torch.manual_seed(1)
    encoder = TextEncoder(small("bert", vocabulary_size=95, layers=1).config)
    encoder.tokenizer = word_tokenizer("bert")
    run, test = tmp_path / "run", tmp_path / "test.tsv"
    TaskModel(Classification(["a", "b"]), encoder, SequenceHead(encoder, 2), 32).save(run / "model")
    test.write_text("text\tlabel\n" + "".join(f"w{i} w{i + 1}\t{'ab'[i % 2]}\n" for i in range(20)))
    (run / "config.yaml").write_text(f"test: {test}\ncolumns: {{text: text, text_b: text_b, label: label}}\n")
    (run / "summary.json").write_text('{"kind": "finetune"}')
    out = tmp_path / "exports.json"
    formats = ("--formats", "onnx", "onnx-int8")
    done = bench("bench.infer.exports", str(run), "--rounds", "1", *formats, "--out", str(out))
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    assert record["texts"] == 20
    assert [row["format"] for row in record["rows"]] == ["brimful", "onnx", "onnx-int8"]
    for row in record["rows"]:
        assert row["texts_per_second"] == pytest.approx(20 / row["all_seconds"][0])
        assert row["p50_ms"] > 0
        assert row["mb"] > 0
        assert row["format"] in done.stdout
    assert [row["gate"]["texts"] for row in record["rows"][1:]] == [20, 20]
