"""The benches' own arithmetic: what they count, what they draw, and that their commands run (toy sizes)."""

import json
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bench.common.flops import packed_shape, padded_shape
from bench.common.ideas import ATTENTION, IDEAS, PACKING, layout_of, packed_loss, switch_off
from bench.common.lengths import evenly_spaced, length_grouped
from bench.common.memory import saved_bytes
from bench.common.peers import masked_lm
from bench.common.turns import Worker, WorkerError
from bench.common.workload import (
    Sequences,
    in_rows,
    make_sequences,
    model_config,
    packed,
    padded,
    per_sequence_weights,
)
from brimful.base.types import IGNORED
from brimful.model.encoder import Encoder
from brimful.model.flops import STORED, count_step_flops
from brimful.model.heads import MaskedLMHead
from builders.bench import ROOT, bench


def model(architecture: str, seed: int) -> tuple[Encoder, MaskedLMHead]:
    torch.manual_seed(seed)
    encoder = Encoder(model_config("tiny", architecture, vocabulary=704))
    return encoder, MaskedLMHead(encoder)


# Lengths


def test_grouped_batches_are_those_of_transformers(seed):
    """One megabatch; transformers swaps in the longest sequence, which is the first already."""
    from transformers.trainer_pt_utils import get_length_grouped_indices

    lengths = np.random.default_rng(seed).integers(1, 513, 400).tolist()
    indices = get_length_grouped_indices(lengths, batch_size=8, mega_batch_mult=50)
    theirs = [lengths[index] for index in indices]
    batches = length_grouped(lengths, 8)
    assert [length for batch in batches for length in batch] == theirs
    assert {len(batch) for batch in batches} == {8}
    chosen = evenly_spaced(batches, 5)
    assert [batches.index(batch) for batch in chosen] == [5, 15, 25, 35, 45]


# Batches


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


# Flops and bytes


@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_flops_of_a_padded_step(architecture, seed):
    """All of them, with attention spelt out: the counter knows matrix products only, as we do."""
    encoder, head = model(architecture, seed)
    peer = masked_lm(encoder, head)
    peer.set_attn_implementation("eager")
    values = padded(make_sequences([5, 60, 33], 700, seed), 64)
    with FlopCounterMode(display=False) as counter:
        peer(**values).loss.backward()
    assert counter.get_total_flops() == count_step_flops(encoder.config, padded_shape(3, 64))


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


def test_saved_bytes():
    x, w = torch.randn(8, 4), torch.randn(4, 4, requires_grad=True)

    def forward() -> torch.Tensor:
        return ((x @ w).exp() * 2).exp()  # saves x, both exponentials, and not w

    assert saved_bytes(forward, [w]) == 3 * 8 * 4 * 4


# Variants


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


# Processes


def test_a_worker_that_ends_or_hangs_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "answering.py").write_text(
        "import os, sys, time\n"
        "from bench.common.turns import serve\n"
        "print('noise on stdout')\n"
        "def end(): sys.stderr.write('the reason\\n'); sys.stderr.flush(); os._exit(3)\n"
        "def fail(): raise ValueError('no such size\\nmore')\n"
        "def echo(text): print('noise'); return {'text': text}\n"
        "serve({'end': end, 'fail': fail, 'echo': echo, 'sleep': lambda: time.sleep(60)})\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    with Worker("answering") as worker:
        with pytest.raises(WorkerError, match=r"ValueError: no such size$"):
            worker.ask("fail")
        assert worker.ask("echo", text="ä\n") == {"text": "ä\n"}
        with pytest.raises(WorkerError, match="status 3: the reason"):
            worker.ask("end")
    with Worker("answering") as worker, pytest.raises(TimeoutError):
        worker.ask("sleep", seconds=0.1)
    assert worker.process.poll() is not None


@pytest.mark.slow
def test_bench_step_runs(tmp_path):
    out = tmp_path / "step.json"
    done = bench("bench.step", "--quick", "--threads", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    rows = {row["variant"]: row for row in record["rows"]}
    assert set(rows) == {"brimful", "padded", "careful"}
    assert record["torch"] == torch.__version__
    for name, row in rows.items():
        assert row["tokens_per_second"] == pytest.approx(row["real_tokens"] / row["seconds"][0]), name
        assert row["peak_mb"] > 50
        assert name in done.stdout
    ours = rows["brimful"]["tokens_per_second"]
    assert rows["padded"]["brimful_over_it"] == pytest.approx(ours / rows["padded"]["tokens_per_second"])
    assert rows["padded"]["ceiling"] > rows["careful"]["ceiling"] > 1 == rows["brimful"]["ceiling"]
    assert 0 < 2 * rows["brimful"]["saved_bytes_per_token"] < rows["padded"]["saved_bytes_per_token"]


@pytest.mark.slow
def test_bench_loader_runs(tmp_path):
    """It leaves nothing in its scratch folder, and no path in the file."""
    out, scratch = tmp_path / "loader.json", tmp_path / "scratch"
    scratch.mkdir()
    done = bench("bench.loader", "--quick", "--out", str(out), "--scratch", str(scratch))
    assert done.returncode == 0, done.stderr
    assert not list(scratch.iterdir())
    text = out.read_text()
    assert str(ROOT) not in text
    assert str(tmp_path) not in text
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(text)["rows"]:
        found.setdefault(row["table"], []).append(row)
    assert list(found) == ["alone", "waiting"]
    assert all(row["tokens_per_second"]["least"] > 0 for row in found["alone"])
    assert [(row["kind"], row["depth"]) for row in found["waiting"]] == 2 * [
        (kind, depth) for kind in ("sleeping", "python", "launching") for depth in (0, 2)
    ]
    assert all(0 < row["waited"]["median"] < 1 for row in found["waiting"])
    assert all(row["step_without"] >= 0.03 for row in found["waiting"] if row["kind"] == "sleeping")
