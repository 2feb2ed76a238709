"""The process of one side of a pretraining by the clock: `brimful pretrain`, or a loop over `transformers`.

    python -m bench.gpu.pretraining brimful|transformers CONFIG.json

Both sides have the same prepared text, masks, first weights, AdamW, schedule by the clock and held-out
tokens, and about as many tokens in an update. The loop is what a careful user writes: ModernBERT with SDPA
and `sparse_prediction`, compiled, in bf16 autocast, in length-grouped batches that Brimful's loader reads
ahead. The clock starts at the fourth update, after compiling, and stands still for evaluations.
"""

import json
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from bench.common.lengths import MEGABATCH
from bench.common.peers import masked_lm
from bench.gpu.step import synchronize
from brimful.base.config import build
from brimful.base.storage import read_json
from brimful.base.types import IGNORED
from brimful.commands.pretrain import pretrain
from brimful.corpus.text.tokenizer import load
from brimful.data.batch import PackedBatch
from brimful.data.loader import prefetch
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.data.streams import make_validation_batches
from brimful.optim.build import build_optimizers
from brimful.optim.schedule import Schedule
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import make_sources, make_stream, open_initial_model
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer

WARM_UPS = 3
Batch = dict[str, Tensor]


def train_brimful(config: PretrainConfig, out: Path) -> list[list[float]]:
    """Run `brimful pretrain`; seconds, tokens and held-out loss at each evaluation."""
    count = Trainer._count

    def count_later(trainer: Trainer, update: Any, result: Any, started: float) -> bool:
        if trainer.progress.step < WARM_UPS:
            started = trainer._read_clock(waits=True)
        return count(trainer, update, result, started)

    with patch.object(Trainer, "_count", count_later):
        pretrain.run(config)
    lines: dict[int, dict[str, Any]] = {}
    for line in read_metrics(out / "metrics.jsonl"):
        lines.setdefault(line["step"], {}).update(line)
    evaluated = [line for line in lines.values() if "validation.loss" in line]
    return [[line["seconds"], line["tokens"], line["validation.loss"]] for line in evaluated]


def pad(batch: PackedBatch, tokens: int) -> Iterator[tuple[Batch, int]]:
    """Batches of about as many tokens, in random order, of sequences of similar lengths that are padded to
    the longest; with each its number of tokens."""
    assert batch.mlm_positions is not None
    assert batch.mlm_labels is not None
    used, device = batch.mlm_labels != IGNORED, batch.tokens.device
    labels = torch.full(batch.tokens.shape, IGNORED, device=device)
    labels[batch.mlm_positions[used]] = batch.mlm_labels[used]
    lengths = torch.tensor(batch.lengths[: batch.real_sequences])
    groups = list(lengths.argsort().tensor_split(max(1, round(batch.real_tokens / tokens))))
    random.shuffle(groups)
    for group in groups:
        places = torch.arange(int(lengths[group].max()))
        real = (places < lengths[group, None]).to(device)
        slots = batch.offsets[group.to(device), None] + places.to(device)
        slots = slots.clamp(max=len(batch.tokens) - 1)
        values = {"input_ids": batch.tokens[slots] * real, "attention_mask": real}
        values["labels"] = labels[slots].where(real, IGNORED)
        yield {name: value.long() for name, value in values.items()}, int(lengths[group].sum())


def train_transformers(config: PretrainConfig, out: Path) -> list[list[float]]:
    """Train the loop and save its encoder; seconds, tokens and held-out loss at each evaluation."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    corpora = open_sources(parse_sources(config.data or ()), verify=False)
    ((name, corpus),) = corpora.items()
    tokenizer = load(corpus.tokenizer_path)
    initial, reader = open_initial_model(config, tokenizer), SequenceReader(tokenizer, config.masking)
    model: Any = masked_lm(initial.encoder, initial.head, sparse_prediction=True).to(device)
    compiled = torch.compile(model, dynamic=True) if device.type == "cuda" else model
    limits = (config.packing, config.sequences, config.validation_tokens)
    held_out = make_validation_batches(name, corpus.part("validation"), reader, *limits, out / "validation")
    update_tokens = config.rows_per_update * config.packing.capacity
    sequences = MEGABATCH * update_tokens // config.packing.max_length
    whole = replace(config, rows_per_update=4, sequences_per_update=sequences, rows_per_micro_batch=sequences)
    stream = make_stream(whole, make_sources(whole, corpora, out / "blocks", ahead=True), reader)
    (optimizer,) = build_optimizers(config.optimizer, dict(model.named_parameters()), {})
    schedule = Schedule(config.schedule, config.cycles(), config.trainer.hours)

    def read_batches() -> Iterator[tuple[Batch, int]]:
        start, steps = stream.start(), config.trainer.steps
        for update in prefetch(stream, start, steps, normalizers=lambda batch: {}, device=device):
            yield from pad(update.batches[0], update_tokens)

    def compute_loss(call: Any, batch: Batch) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return call(**batch).loss

    def evaluate() -> float:
        losses, counts = [], []
        with torch.no_grad():
            for row in held_out:
                ((batch, _),) = pad(row.to(device), row.tokens.numel())
                losses.append(float(compute_loss(model, batch)))
                counts.append(row.predictions)
        return float(np.average(losses, weights=counts))

    points: list[list[float]] = []
    started, read, seconds = 0.0, 0, 0.0
    for step, (batch, tokens) in enumerate(read_batches()):
        if step == WARM_UPS:
            synchronize(device)
            started = time.perf_counter()
        seconds = time.perf_counter() - started if step >= WARM_UPS else 0.0
        over = schedule.over(step, seconds)
        if over or (step > WARM_UPS and step % config.trainer.evaluate_every == 0):
            synchronize(device)
            seconds = time.perf_counter() - started
            points.append([seconds, read, evaluate()])
            started = time.perf_counter() - seconds
        if over:
            break
        for settings in optimizer.param_groups:
            settings["lr"] = settings["peak"] * schedule.rate(step, seconds)
        compute_loss(compiled, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.trainer.clip)
        optimizer.step()
        optimizer.zero_grad()
        read += tokens
    model.save_pretrained(out / "encoder")
    shutil.copy(corpus.tokenizer_path, out / "encoder" / "tokenizer.json")
    return points


def main() -> None:
    side, file = sys.argv[1:]
    config, began = build(PretrainConfig, read_json(Path(file))), time.perf_counter()
    train = {"brimful": train_brimful, "transformers": train_transformers}[side]
    points = train(config, Path(str(config.out)))
    wall = time.perf_counter() - began
    print(json.dumps({"torch": torch.__version__, "wall_seconds": wall, "points": points}))


if __name__ == "__main__":
    main()
