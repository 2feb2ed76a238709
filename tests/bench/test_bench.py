"""The benches' own arithmetic: what they count and draw, their peers, and that each runs (toy sizes)."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers.trainer_pt_utils import get_length_grouped_indices

from bench import learning
from bench.common.flops import packed_shape
from bench.common.ideas import ATTENTION, IDEAS, PACKING, layout_of, packed_loss, switch_off
from bench.common.lengths import evenly_spaced, length_grouped
from bench.common.study import paired, spread
from bench.common.workload import (
    Sequences,
    in_rows,
    make_sequences,
    model_config,
    packed,
    padded,
    per_sequence_weights,
)
from bench.distil.worker import agree
from bench.precision import __main__ as precision
from bench.precision.study import QUICK, arms_of
from bench.serve.overload import undeserved
from bench.serve.requests import BROKEN, GOOD
from brimful.base.types import IGNORED
from brimful.model.encoder import Encoder
from brimful.model.flops import STORED, count_step_flops
from brimful.model.heads import MaskedLMHead
from builders.bench import ROOT, bench
from builders.task_models import task_model


def model(architecture: str, seed: int) -> tuple[Encoder, MaskedLMHead]:
    torch.manual_seed(seed)
    encoder = Encoder(model_config("tiny", architecture, vocabulary=704))
    return encoder, MaskedLMHead(encoder)


def test_grouped_batches_are_those_of_transformers(seed):
    """One megabatch; transformers swaps in the longest sequence, which is the first already."""
    lengths = np.random.default_rng(seed).integers(1, 513, 400).tolist()
    indices = get_length_grouped_indices(lengths, batch_size=8, mega_batch_mult=50)
    theirs = [lengths[index] for index in indices]
    batches = length_grouped(lengths, 8)
    assert [length for batch in batches for length in batch] == theirs
    assert {len(batch) for batch in batches} == {8}
    chosen = evenly_spaced(batches, 5)
    assert [batches.index(batch) for batch in chosen] == [5, 15, 25, 35, 45]


def test_both_sides_see_the_same_tokens_and_labels(seed):
    sequences = make_sequences([5, 60, 1, 17], 700, seed)
    batch, values = packed(sequences, 64), padded(sequences, 64)
    assert torch.equal(values["input_ids"][values["attention_mask"].bool()].int(), batch.tokens)
    flat = values["labels"][values["attention_mask"].bool()]
    assert torch.equal(flat[batch.mlm_positions], batch.mlm_labels)
    assert int((values["labels"] != IGNORED).sum()) == len(batch.mlm_positions) == sequences.predictions


def test_a_per_sequence_loss_is_the_mean_of_the_losses_alone(seed):
    encoder, head = model("bert", seed)
    sequences = make_sequences([5, 60, 40], 700, seed)
    loss = packed_loss(encoder, head)
    losses = []
    for tokens, labels in zip(sequences.tokens, sequences.labels, strict=True):
        alone = packed(Sequences([tokens], [labels]), 128)
        losses.append(loss(alone, encoder.prepare(alone), None).item())
    rows = in_rows(sequences, [[0, 1], [2]], 128)
    assert sum(rows.lengths) == 256
    positions, labels, weights = per_sequence_weights(rows, 30)
    assert positions.shape == labels.shape == weights.shape == (30,)
    batch = replace(packed(rows, 128), mlm_positions=positions, mlm_labels=labels)
    found = loss(batch, encoder.prepare(batch), weights).item()
    assert found == pytest.approx(sum(losses) / 3, abs=1e-5)  # float32, a loss of about 6.5


@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_flops_of_a_packed_step(architecture, seed):
    """Attention of each sequence spelt out by SDPA; our own is opaque to the counter."""
    encoder, head = model(architecture, seed)
    lengths = [5, 60, 33]
    sequences = make_sequences(lengths, 700, seed)
    batch = packed(sequences, 64)
    loss = packed_loss(encoder, head)
    for layout, attention in ((layout_of(encoder, batch, (ATTENTION,)), STORED), (encoder.prepare(batch), 0)):
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            loss(batch, layout, None).backward()
        shape = packed_shape(lengths, sequences.predictions, attention)
        assert counter.get_total_flops() == count_step_flops(encoder.config, shape)


@pytest.mark.parametrize("off", [*((idea,) for idea in IDEAS), IDEAS])
def test_switching_an_idea_off_changes_no_loss_or_gradient(off, seed):
    encoder, head = model("bert", seed)
    sequences = make_sequences([5, 60, 33], 700, seed)
    batch = packed(sequences, 64)
    loss = packed_loss(encoder, head)(batch, encoder.prepare(batch), None)
    loss.backward()
    expected = encoder.embedding.weight.grad.clone()
    encoder.zero_grad()
    switch_off(encoder, off)
    if PACKING in off:
        batch = packed(in_rows(sequences, [[0], [1], [2]], 64), 64)
    other = packed_loss(encoder, head, off)(batch, layout_of(encoder, batch, off), None)
    other.backward()
    assert other.item() == pytest.approx(loss.item(), abs=1e-5)  # float32, a loss of about 6.5
    assert (encoder.embedding.weight.grad - expected).norm() < 1e-4 * expected.norm()


def test_the_peer_of_distillation_has_the_losses_of_the_same_models():
    assert agree()["difference"] < 1e-5


def test_paired_differences_are_those_of_a_paired_t_test(seed):
    a, b = np.random.default_rng(seed).normal(size=(2, 3))
    mean, error = paired(a.tolist(), b.tolist())
    # Both are a few float64 operations.
    assert mean / error == pytest.approx(ttest_rel(a, b).statistic, rel=1e-9)
    assert spread(a.tolist()) == pytest.approx((a.mean(), a.std(ddof=1)), rel=1e-12)


def test_a_server_beyond_its_capacity_passes_only_with_deserved_outcomes():
    outcomes = {GOOD: {"200": 5, "429": 5, "503": 1}, "10 MB": {"413": 2, "lost": 1}, "not UTF-8": {"400": 1}}
    assert undeserved({"outcomes": outcomes}) == {GOOD: {"503": 1}, "10 MB": {"lost": 1}}
    assert undeserved({"outcomes": outcomes}, ends=True) == {}
    assert undeserved({"outcomes": {kind: {"200": 1} for kind in BROKEN}}).keys() == BROKEN.keys()


@pytest.mark.slow
def test_bench_step_runs(tmp_path):
    out = tmp_path / "step.json"
    said = bench("bench.step", "--quick", "--threads", "1", "--out", str(out))
    record = json.loads(out.read_text())
    rows = {row["variant"]: row for row in record["rows"]}
    assert set(rows) == {"brimful", "padded", "careful"}
    for name, row in rows.items():
        assert row["tokens_per_second"] == pytest.approx(row["real_tokens"] / row["seconds"][0]), name
        assert name in said
    assert rows["padded"]["ceiling"] > rows["careful"]["ceiling"] > 1 == rows["brimful"]["ceiling"]
    assert 0 < 2 * rows["brimful"]["saved_bytes_per_token"] < rows["padded"]["saved_bytes_per_token"]


@pytest.mark.slow
def test_bench_loader_runs(tmp_path):
    """It leaves nothing in its scratch folder, and no path in the file."""
    out, scratch = tmp_path / "loader.json", tmp_path / "scratch"
    scratch.mkdir()
    bench("bench.loader", "--quick", "--out", str(out), "--scratch", str(scratch))
    assert not list(scratch.iterdir())
    text = out.read_text()
    assert not any(str(folder) in text for folder in (ROOT, tmp_path))
    rows = json.loads(text)["rows"]
    waiting = [(row["kind"], row["depth"]) for row in rows if row["table"] == "waiting"]
    assert waiting == 2 * [(kind, n) for kind in ("sleeping", "python", "launching") for n in (0, 2)]


@pytest.mark.slow
def test_bench_distil_runs(tmp_path):
    out = tmp_path / "distil.json"
    bench("bench.distil", "--quick", "--threads", "1", "--lengths", "128", "--out", str(out))
    sides = {row["side"]: row for row in json.loads(out.read_text())["rows"] if "side" in row}
    assert list(sides) == ["floor", "brimful", "tinybert", "dynamic"]
    assert sides["tinybert"]["brimful_times_less_memory"] > sides["dynamic"]["brimful_times_less_memory"] > 1
    assert sides["dynamic"]["losses"]["hidden"] > 0


@pytest.mark.slow
def test_bench_learning_compares_three_arms_at_the_same_updates(tmp_path, monkeypatch, capsys):
    out = tmp_path / "curves.json"
    arguments = ["--quick", "--work", f"{tmp_path}/work", "--out", f"{out}"]
    learning.main(arguments)
    assert "packed, betas {" in capsys.readouterr().out
    text = out.read_text()
    record, arms = json.loads(text), {run["arm"]: run for run in json.loads(text)["runs"]}
    assert str(tmp_path) not in text
    assert record["frequency_loss"] < np.log(learning.QUICK.vocabulary)
    assert len({run["updates"] for run in arms.values()}) == 1
    last = {arm: run["points"][-1] for arm, run in arms.items()}
    assert last["packed"]["sequences"] == last["packed, betas"]["sequences"] > last["unpacked"]["sequences"]
    assert last["packed"]["loss"] != last["packed, betas"]["loss"]
    monkeypatch.setattr("bench.common.pretraining.pretrain", None)  # what is done is not repeated
    learning.main(arguments)
    assert json.loads(out.read_text())["runs"] == record["runs"]


@pytest.mark.slow
def test_bench_precision_runs(tmp_path, capsys):
    precision.main(["--quick", "--work", f"{tmp_path}/work", "--out", f"{tmp_path}/out.json"])
    record = json.loads((tmp_path / "out.json").read_text())
    arms = {(study, run["arm"]): run for study, runs in record["studies"].items() for run in runs}
    assert len(arms) == sum(len(arms_of(study, QUICK)) for study in precision.STUDIES)
    too_large = arms["window", "constant 2^60"]
    assert (too_large["outcome"], too_large["ended"], too_large["final"]) == ("diverged", 1, None)
    good, vanishing = arms["window", "constant 2^24"], arms["window", "constant 2^0"]
    assert (good["outcome"], good["overflows"], good["skipped"]) == ("stalled", 0, [])
    assert vanishing["zeros"] > good["zeros"] + 0.2
    assert "| constant 2^60 | - | - | 0 of 1 | 1 of 1 | 1 |" in capsys.readouterr().out


@pytest.mark.slow
def test_bench_serve_runs(tmp_path):
    task_model("classification").save(tmp_path / "model")
    test, out = tmp_path / "test.tsv", tmp_path / "serve.json"
    test.write_text("text\tlabel\n" + "".join(f"w{i} w{i + 1}\t{'ab'[i % 2]}\n" for i in range(80)))
    sizes = ("--rounds", "1", "--seconds", "1", "--overload-seconds", "2", "--texts", "400", "--batch", "32")
    bench("bench.serve", str(tmp_path / "model"), "--test", str(test), *sizes, "--out", str(out))
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(out.read_text())["rows"]:
        rows.setdefault(row["question"], []).append(row)
    assert [row["of"] for row in rows["cost"]] == ["predict", "serve 1", "serve 32"]
    assert [row["share"] for row in rows["latency"][:3]] == [0.5, 0.8, 0.95]
    for (row,) in (rows["answers"], rows["overload"]):
        assert row["compared"] > row["wrong"] == 0
    assert row["undeserved"] == {}
    assert {"200", "429"} == set(row["outcomes"][GOOD])
    assert rows["drain"][0]["exit"] == 0
