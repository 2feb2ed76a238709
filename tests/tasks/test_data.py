"""The tables of a task: which rows are held out, and what is refused before training."""

from pathlib import Path

import numpy as np
import pytest

from brimful.errors import BrimfulError
from brimful.tables.question_files import QuestionTable
from brimful.tables.table import Table
from brimful.tasks.data import hold_out
from brimful.tasks.encoded import Encoded, encode
from builders.encoders import word_tokenizer


def encoded(texts: list[str]) -> Encoded:
    return encode(Table(Path("table.tsv"), texts, None, None), word_tokenizer(), 16)


def test_equal_texts_are_held_out_together() -> None:
    texts = [f"w{number % 40}" for number in range(200)]
    fit, dev = hold_out(encoded(texts))
    assert (len(fit), len(dev)) == (160, 40)
    assert not set(fit.table.texts) & set(dev.table.texts)
    fit, dev = hold_out(encoded(texts[:40]))
    assert list(fit.table.texts) == [text for text in texts[:40] if text in set(fit.table.texts)]
    assert len(dev) == 8
    with pytest.raises(BrimfulError, match="has 4 different texts, too few to hold out a fifth"):
        hold_out(encoded(["w1", "w2", "w3", "w4"] * 5))


def test_questions_on_a_context_are_held_out_together() -> None:
    contexts = [f"w{number // 3}" for number in range(30)]
    texts = [f"w{n}" for n in range(30)]
    table = QuestionTable(Path("table.json"), texts, contexts, None, ids=texts)
    fit, dev = hold_out(encode(table, word_tokenizer(), 16))
    assert (len(fit), len(dev)) == (24, 6)
    assert dev.table.second is not None
    assert not set(fit.table.second or []) & set(dev.table.second)
    assert np.unique(dev.table.second).size == 2
