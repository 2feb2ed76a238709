"""What measures a GPU, without one: its padded batches, and what fits into its minutes."""

import json

import pytest

from bench.common.workload import make_sequences, packed
from bench.gpu.pretraining import pad
from builders.bench import ROOT, bench


def test_padded_batches_hold_the_sequences_and_labels_of_a_row(seed):
    sequences = make_sequences([5, 60, 1, 17, 60], 700, seed)
    found = []
    for batch, tokens in pad(packed(sequences, 64, 160, 8), 70):
        rows = zip(batch["input_ids"], batch["labels"], batch["attention_mask"].bool(), strict=True)
        found += [(ids[real].tolist(), labels[real].tolist()) for ids, labels, real in rows]
        assert tokens == int(batch["attention_mask"].sum())
    wanted = [(a.tolist(), b.tolist()) for a, b in zip(sequences.tokens, sequences.labels, strict=True)]
    assert sorted(found) == sorted(wanted)


@pytest.mark.slow
def test_ten_minutes_run_and_are_not_made_again(tmp_path):
    paths = ["--out", str(tmp_path), "--corpus", str(ROOT / "tests/data/old/corpus"), "--data", str(tmp_path)]
    arguments = ["--device", "cpu", "--seconds", "3", "--steps", "brimful", "transformers", "tasks"]
    bench("bench.gpu.ten_minutes", *paths, *arguments)
    record = json.loads((tmp_path / "ten_minutes.json").read_text())
    rows = {row["name"]: row for row in record["rows"]}
    for side in ("brimful", "transformers"):
        seconds, tokens, loss = rows[side]["said"]["points"][-1]
        assert (seconds > 3, tokens > 1000, 3 < loss < 5.5) == (True, True, True)
        assert (tmp_path / side / "encoder/tokenizer.json").is_file()
    assert "mrpc" in rows["mrpc-brimful"]["error"]  # there are no tables
    assert "brimful: done" not in bench("bench.gpu.ten_minutes", *paths, *arguments)
