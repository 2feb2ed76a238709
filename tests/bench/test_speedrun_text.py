"""The speedrun's text: fixed masks, nothing held out in training."""

import shutil

import numpy as np
import pytest
import torch

from bench.speedrun.rival import RIVALS, Sequences, batches
from bench.speedrun.sides import (
    RIVAL_START,
)
from bench.speedrun.text import (
    REPEATED,
    grams,
    load_held_out,
    load_plain,
    make_text,
    occurs,
    tokenizer_of,
)
from brimful.corpus.shards import Corpus
from brimful.data.batch import IGNORED
from brimful.errors import BrimfulError
from brimful.text.special_ids import mask_id
from builders.speedrun import TRACK


@pytest.mark.slow
def test_held_out_masks_are_fixed(text, tmp_path):
    again = make_text(TRACK, tmp_path, tmp_path / "text")
    held_out = load_held_out(text)
    assert again["held_out"] == held_out.hash == load_held_out(tmp_path / "text").hash
    special = tokenizer_of(text)[1]
    predicted = held_out.labels != IGNORED
    inner = ~np.isin(held_out.tokens, [special.cls, special.sep])
    assert not predicted[~inner].any()
    # 290 predictions of about 200 words, each drawn alone: three deviations are 0.15 * 3 / sqrt(200).
    assert abs(predicted[inner].mean() - 0.15) < 0.035


def test_other_masks_are_refused(text, tmp_path):
    shutil.copytree(text, tmp_path / "text")
    held_out = load_held_out(tmp_path / "text")
    moved = np.roll(held_out.labels, 1)
    np.savez(tmp_path / "text" / "held_out.npz", **(vars(held_out) | {"labels": moved}))
    with pytest.raises(BrimfulError, match="texts or masks were changed"):
        load_held_out(tmp_path / "text")


def test_nothing_held_out_is_trained_on(text):
    corpus, held_out = Corpus.open(text / "training", verify=True), load_held_out(text)
    assert corpus.part("validation") is None
    plain = load_plain(text)
    assert (plain["tokens"] == np.concatenate([shard.tokens for shard in corpus.shards])).all()
    trained = {tuple(run) for run in np.lib.stride_tricks.sliding_window_view(plain["tokens"], REPEATED)}
    for begin, end in zip(held_out.offsets[:-1] + 1, held_out.offsets[1:] - 1, strict=True):
        runs = np.lib.stride_tricks.sliding_window_view(held_out.tokens[begin:end], REPEATED)
        assert len(runs)
        assert not trained & {tuple(run) for run in runs}


def test_a_repeated_run_is_found_wherever_it_is(seed):
    draw = np.random.default_rng(seed)
    training = draw.integers(0, 50, 2000).astype(np.uint16)
    seen = grams(training, REPEATED)
    other = draw.integers(0, 50, 100)
    assert not occurs(other, seen)
    begin = draw.integers(0, 2000 - REPEATED)
    at = draw.integers(0, 100 - REPEATED)
    other[at : at + REPEATED] = training[begin : begin + REPEATED]
    assert occurs(other, seen)
    assert not occurs(other[: REPEATED - 1], seen)


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_read_all_tokens_and_mask_words(text, name, seed):
    tokenizer, special = tokenizer_of(text)
    plain, mask = load_plain(text), mask_id(tokenizer)
    data = Sequences(name, TRACK, plain, special)
    lengths = np.diff(data.offsets)
    assert lengths.max() <= TRACK.max_length
    ordinary = ~np.isin(data.tokens, [special.cls, special.sep])
    if name == "lines":
        assert len(data) == plain["line_starts"].sum()
    else:
        assert (lengths == TRACK.max_length).all()
        assert (data.tokens[ordinary] == plain["tokens"]).all()
    settings = RIVAL_START | {"batch": 16, "mask_rate": 0.3}
    seen = predicted = 0
    stream = batches(data, settings, seed, special, mask, tokenizer.get_vocab_size())
    for batch, real in (next(stream) for _ in range(len(data) // 16)):
        ids, labels = batch["input_ids"], batch["labels"]
        original = torch.where(labels == IGNORED, ids, labels)
        never = (original == special.pad) | (original == special.cls) | (original == special.sep)
        assert (labels[never] == IGNORED).all()
        inside = batch.get("attention_mask", torch.ones_like(ids))
        assert int(inside.sum()) == real
        assert ((original == special.pad) == (inside == 0)).all()
        seen += int((~never).sum())
        predicted += int((labels != IGNORED).sum())
    assert seen > 0.8 * len(plain["tokens"]) or name == "lines"
    assert abs(predicted / seen - 0.3) < 0.02
