"""The rivals: what a careful user of `transformers` runs, after its example run_mlm.py.

    grouped      BERT; documents are joined and cut into chunks of the same length, so nothing is padded
    lines        BERT; each line (here: sentence) is a sequence, padded to the longest of its batch
    modernbert   ModernBERT with the same layers, width and heads, and a head on masked tokens alone; grouped

A search may give each of them a smaller shape, the same ones as Brimful's.

The loop has what run_mlm's Trainer has: fused AdamW, linear decay after a warm-up, clipping at 1. It leaves
out what would only cost time: it logs nothing, its batches come from arrays, and masks are vectorised. Words
are masked as a whole, as they are when the models are scored, and there is no dropout. As Brimful does, the
process keeps freed memory, in huge pages.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.common.flops import padded_shape
from bench.speedrun.points import EnoughError, Points
from bench.speedrun.text import load_plain, tokenizer_of
from bench.speedrun.track import Track
from brimful.data.batch import IGNORED
from brimful.hf.config_json import read_config
from brimful.model.flops import step_flops
from brimful.model.shape import SHAPES
from brimful.text.special_ids import mask_id
from brimful.train.memory import keep_freed_memory

RIVALS = ("grouped", "lines", "modernbert")
Batch = dict[str, Tensor]


def new_model(
    rival: str, track: Track, vocabulary: int, special: Any, settings: Mapping[str, Any] | None = None
) -> nn.Module:
    """A model of `transformers` with random weights.

    Args:
        settings: those of `shape` that are given replace the shape of the track's model. BERT is always four
            times as wide inside its layers.
    """
    import transformers

    layers, hidden, heads = SHAPES[track.model]
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    layers, hidden = given.get("shape.layers", layers), given.get("shape.hidden_size", hidden)
    shared = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": given.get("shape.heads", heads),
        "max_position_embeddings": track.max_length,
        "pad_token_id": special.pad,
        "attn_implementation": "sdpa",
    }
    if rival == "modernbert":
        ids = {"cls_token_id": special.cls, "bos_token_id": special.cls}
        ids |= {"sep_token_id": special.sep, "eos_token_id": special.sep}
        return transformers.ModernBertForMaskedLM(
            transformers.ModernBertConfig(
                **shared,
                **ids,
                intermediate_size=given.get("shape.intermediate_size", 2 * hidden),
                layer_types=["full_attention"] * layers,
                sparse_prediction=True,
            )
        )
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            **shared,
            intermediate_size=4 * hidden,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


class Sequences:
    """Token ids and word starts of all training sequences of a rival, special tokens included.

    Attributes:
        tokens: int32 (T,).
        words: bool (T,), where a word starts; special tokens are words of their own.
        offsets: int64 (n + 1,).
    """

    def __init__(self, rival: str, track: Track, plain: Mapping[str, np.ndarray], special: Any) -> None:
        tokens = np.asarray(plain["tokens"]).astype(np.int32)
        words = np.asarray(plain["word_starts"])
        if rival == "lines":
            begins = np.flatnonzero(plain["line_starts"])
            ends = np.append(begins[1:], len(tokens))
            ends = np.minimum(ends, begins + track.max_length - 2)  # run_mlm truncates
        else:
            begins, ends = plain["documents"][:-1], plain["documents"][1:]
        lengths = ends - begins
        offsets = np.concatenate([[0], np.cumsum(lengths + 2)])
        self.tokens = np.full(offsets[-1], special.sep, np.int32)
        self.words = np.ones(offsets[-1], np.bool_)
        self.tokens[offsets[:-1]] = special.cls
        inner = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        source, target = np.repeat(begins, lengths) + inner, np.repeat(offsets[:-1] + 1, lengths) + inner
        self.tokens[target], self.words[target] = tokens[source], words[source]
        if rival != "lines":
            whole = len(self.tokens) // track.max_length
            offsets = np.arange(whole + 1) * track.max_length
        self.offsets = offsets.astype(np.int64)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def masked(
    tokens: Tensor,
    words: Tensor,
    rate: float,
    special: Any,
    mask: int,
    vocabulary: int,
    random: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Ids and labels, both (B, L). Where a token is predicted, 80 % show [MASK], 10 % a random token."""
    never = (tokens == special.pad) | (tokens == special.cls) | (tokens == special.sep)
    number = words.flatten().cumsum(0).view_as(tokens)
    hidden = (torch.rand(int(number.max()) + 1, generator=random) < rate)[number] & ~never
    labels = tokens.where(hidden, IGNORED)
    draw = torch.rand(tokens.shape, generator=random)
    ids = tokens.masked_fill(hidden & (draw < 0.8), mask)
    other = torch.randint(vocabulary, tokens.shape, generator=random)
    return ids.where(~(hidden & (draw >= 0.9)), other), labels


def batches(
    data: Sequences, settings: Mapping[str, Any], seed: int, special: Any, mask: int, vocabulary: int
) -> Iterator[tuple[Batch, int]]:
    """Batches without end, epoch after epoch, each with the number of its real tokens."""
    random = torch.Generator().manual_seed(seed)
    size = min(settings["batch"], len(data))
    while True:
        order = torch.randperm(len(data), generator=random).numpy()
        for begin in range(0, len(order) - size + 1, size):
            chosen = order[begin : begin + size]
            lengths = data.offsets[chosen + 1] - data.offsets[chosen]
            width = int(lengths.max())
            inside = np.arange(width) < lengths[:, None]
            places = (data.offsets[chosen, None] + np.arange(width)).clip(max=len(data.tokens) - 1)
            tokens = torch.from_numpy(np.where(inside, data.tokens[places], special.pad).astype(np.int64))
            words = torch.from_numpy(data.words[places] | ~inside)
            words[:, 0] = True
            ids, labels = masked(tokens, words, settings["mask_rate"], special, mask, vocabulary, random)
            batch = {"input_ids": ids, "labels": labels}
            if int(lengths.min()) < width:
                batch["attention_mask"] = torch.from_numpy(inside.astype(np.int64))
            yield batch, int(lengths.sum())


def train(
    rival: str,
    track: Track,
    settings: Mapping[str, Any],
    folder: Path,
    points: Points,
    *,
    seed: int,
    device: str = "cpu",
) -> None:
    """Train a rival. Its rate rises and falls in straight lines.

    Args:
        folder: of the track.
        device: cpu or cuda.

    Raises:
        BrimfulError: its seconds leave no time to train.
    """
    keep_freed_memory()
    torch.manual_seed(seed)
    tokenizer, special = tokenizer_of(folder)
    vocabulary = tokenizer.get_vocab_size()
    model = new_model(rival, track, vocabulary, special, settings).train().to(device)
    shape = read_config(model.config.to_dict(), rival)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings["learning_rate"], fused=True)
    forward = torch.compile(model) if settings["compile"] else model
    dtype = torch.bfloat16 if settings["precision"] == "bf16" else None
    data = Sequences(rival, track, load_plain(folder), special)
    tokens = flops = 0
    stream = batches(data, settings, seed, special, mask_id(tokenizer), vocabulary)
    done = 0.0
    for update, (batch, real) in enumerate(stream, 1):
        for group in optimizer.param_groups:
            group["lr"] = settings["learning_rate"] * rate(done, settings["warmup"])
        placed = {name: tensor.to(device) for name, tensor in batch.items()}
        with torch.autocast(device, dtype, enabled=dtype is not None):
            loss = forward(**placed).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens += real
        predictions = int((batch["labels"] != IGNORED).sum()) if rival == "modernbert" else None
        flops += step_flops(shape, padded_shape(*batch["input_ids"].shape, predictions))
        done = points.done(update)
        try:
            points.after(model.save_pretrained, update, tokens, flops, last=done >= 1)
        except EnoughError:
            return
        if done >= 1:
            return


def rate(done: float, warmup: float) -> float:
    """The factor on the highest rate where a proportion `done` of the training is over.

    For updates it is `transformers.get_linear_schedule_with_warmup`. By the clock, which begins after the
    first update, two updates have a rate of 0.
    """
    return done / warmup if done < warmup else (1 - done) / (1 - warmup)
