"""Packed copies with one mask each propose what TinyBERT's loop proposes: one pass a word, a full sort."""

import numpy as np
import pytest
import torch

from brimful.augmentation.candidates import CandidateModel
from brimful.augmentation.neighbours import Pieces
from brimful.data.batch import pack
from builders.augmentation import ENGLISH, masked_lm

CPU = torch.device("cpu")


def one_word_at_a_time(model: CandidateModel, text: np.ndarray, place: int, choices: int):
    """A pass for one word, scores of every position, a sort of the vocabulary."""
    ids, at = model.sequence(text, place)
    batch = pack([ids], max_length=len(ids), pad=0)
    with torch.no_grad():
        scores = model.head(model.encoder(batch))[at]
    order = scores.argsort(descending=True).tolist()
    words, spaced = model.pieces.words, model.pieces.spaced
    alike = [i for i in order if i < len(words) and words[i] and spaced[i] == spaced[text[place]]]
    return (alike + [-1] * choices)[:choices]


@pytest.mark.parametrize("choices", [15, 1000], ids=["some", "more than there are"])
@pytest.mark.parametrize("kind", ["bert", "electra", "roberta", "modern"])
def test_the_candidates_are_those_of_one_word_at_a_time(kind: str, choices: int, seed) -> None:
    encoder, head = masked_lm(kind)
    # In float64: the last bits of scores depend on the batch, and nearly equal ones would change places.
    model = CandidateModel(encoder.double(), head.double(), Pieces(encoder.tokenizer), 96, CPU)
    texts, places, expected = [], [], []
    random = np.random.default_rng(seed)
    for length in random.integers(1, 30, 6):
        text = " ".join(random.choice(ENGLISH, length))
        ids = np.array(encoder.tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)
        texts.append(ids)
        places.append(np.arange(0, len(ids), 2))
        expected += [one_word_at_a_time(model, ids, place, choices) for place in places[-1].tolist()]
    found = model.best(texts, places, choices, lambda words: None)
    assert found.dtype == np.int32
    assert found.tolist() == expected


def test_of_long_texts_the_model_reads_what_is_around_the_word() -> None:
    encoder, head = masked_lm()
    model = CandidateModel(encoder, head, Pieces(encoder.tokenizer), 21, CPU)
    text = np.arange(1000, 1100, dtype=np.int32)
    room = 21 - 2
    for place in (0, 3, 50, 97, 99):
        ids, at = model.sequence(text, place)
        assert len(ids) <= 21
        assert ids[at] == model.mask
        seen = ids[1 : 1 + room]
        at -= 1
        assert (np.delete(seen, at) == np.delete(text[place - at : place - at + room], at)).all()
        assert min(at, room - 1 - at) >= room // 2 - 1 or place in (0, 3, 97, 99)
