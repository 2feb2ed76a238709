"""The rival: what a careful user of `transformers` runs, after its example run_mlm.py, with ModernBERT.

Documents are joined and cut into chunks, so nothing is padded. The loop has what run_mlm's Trainer has: fused
AdamW, linear decay after a warm-up, clipping at 1, but no logs and no dropout. Words are masked as a whole.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.common.flops import padded_shape
from bench.speedrun.text import Track, tokenizer_of
from brimful.base.types import IGNORED
from brimful.corpus.shards import Corpus
from brimful.corpus.text.special_ids import mask_id
from brimful.hf.config_json import read_config
from brimful.model.flops import step_flops
from brimful.model.shape import SHAPES
from brimful.train.freed_memory import keep_freed_memory


def new_model(track: Track, vocabulary: int, special: Any, settings: Mapping[str, Any]) -> nn.Module:
    """ModernBERT with random weights; settings of `shape` replace the shape of the track's model."""
    import transformers

    layers, hidden, heads = SHAPES[track.model]
    layers, hidden = settings["shape.layers"] or layers, settings["shape.hidden_size"] or hidden
    config = transformers.ModernBertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=settings["shape.heads"] or heads,
        intermediate_size=settings["shape.intermediate_size"] or 2 * hidden,
        max_position_embeddings=track.max_length,
        pad_token_id=special.pad,
        **dict.fromkeys(("cls_token_id", "bos_token_id"), special.cls),
        **dict.fromkeys(("sep_token_id", "eos_token_id"), special.sep),
        layer_types=["full_attention"] * layers,
        sparse_prediction=True,
        attn_implementation="sdpa",
    )
    return transformers.ModernBertForMaskedLM(config)


def chunks(corpus: Corpus, length: int, special: Any) -> tuple[np.ndarray, np.ndarray]:
    """The training tokens, int32 (n, length), and where words start; special tokens are words too."""
    tokens, words = [], []
    for shard in corpus.shards:
        if shard.split == "train":
            starts = shard.word_starts(0, len(shard.tokens))
            ends = np.repeat(np.asarray(shard.offsets).astype(np.int64), 2)[
                1:-1
            ]  # both ends of each document
            kinds = np.resize([special.cls, special.sep], len(ends))
            tokens.append(np.insert(np.asarray(shard.tokens).astype(np.int32), ends, kinds))
            words.append(np.insert(starts, ends, True))
    ids, starts = np.concatenate(tokens), np.concatenate(words)
    whole = len(ids) // length * length
    return ids[:whole].reshape(-1, length), starts[:whole].reshape(-1, length)


def masked(
    tokens: Tensor, words: Tensor, rate: float, special: Any, mask: int, size: int, random: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Ids and labels, both (B, L). Where one is predicted, 80 % show [MASK], 10 % one of `size` tokens."""
    number = words.flatten().cumsum(0).view_as(tokens)
    hidden = (torch.rand(int(number.max()) + 1, generator=random) < rate)[number]
    hidden &= (tokens != special.cls) & (tokens != special.sep)
    labels = tokens.where(hidden, IGNORED)
    draw = torch.rand(tokens.shape, generator=random)
    ids = tokens.masked_fill(hidden & (draw < 0.8), mask)
    other = torch.randint(size, tokens.shape, generator=random)
    return ids.where(~(hidden & (draw >= 0.9)), other), labels


def batches(
    data: tuple[np.ndarray, np.ndarray], settings: Mapping[str, Any], seed: int, *masking: Any
) -> Iterator[dict[str, Tensor]]:
    """Batches without end; `masking` has special ids, the mask's id, and the vocabulary's size."""
    tokens, starts = data
    random = torch.Generator().manual_seed(seed)
    size = min(settings["batch"], len(tokens))
    while True:
        order = torch.randperm(len(tokens), generator=random).numpy()
        for begin in range(0, len(order) - size + 1, size):
            chosen = order[begin : begin + size]
            words = torch.from_numpy(starts[chosen])
            words[:, 0] = True
            rows = torch.from_numpy(tokens[chosen].astype(np.int64))
            ids, labels = masked(rows, words, settings["mask_rate"], *masking, random)
            yield {"input_ids": ids, "labels": labels}


def train(track: Track, settings: Mapping[str, Any], folder: Path, points: Any, seed: int) -> None:
    """Train the rival. Its rate rises and falls in straight lines."""
    keep_freed_memory()
    torch.manual_seed(seed)
    tokenizer, special = tokenizer_of(folder)
    vocabulary = tokenizer.get_vocab_size()
    model = new_model(track, vocabulary, special, settings).train()
    shape = read_config(model.config.to_dict(), "modernbert")
    groups = [{"params": [], "weight_decay": 0.0}, {"params": [], "weight_decay": 0.01}]
    for parameter in model.parameters():
        groups[parameter.ndim > 1]["params"].append(parameter)
    optimizer = torch.optim.AdamW(groups, lr=settings["learning_rate"], fused=True)
    forward = torch.compile(model) if settings["compile"] else model
    data = chunks(Corpus.open(folder / "prepared"), track.max_length, special)
    tokens = flops = 0
    done = 0.0
    stream = batches(data, settings, seed, special, mask_id(tokenizer), vocabulary)
    for update, batch in enumerate(stream, 1):
        for group in optimizer.param_groups:
            group["lr"] = settings["learning_rate"] * rate(done, settings["warmup"])
        with torch.autocast("cpu", torch.bfloat16, enabled=settings["precision"] == "bf16"):
            loss = forward(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens += batch["input_ids"].numel()
        predictions = int((batch["labels"] != IGNORED).sum())
        flops += step_flops(shape, padded_shape(*batch["input_ids"].shape, predictions))
        done = points.done(update)
        points.after(model.save_pretrained, update, tokens, flops, done >= 1)
        if done >= 1:
            return


def rate(done: float, warmup: float) -> float:
    """`transformers.get_linear_schedule_with_warmup`, of the proportion that is done."""
    return done / warmup if done < warmup else (1 - done) / (1 - warmup)
