"""WordPiece of several Chinese characters: deterministic, spelled by its own pieces, read by transformers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.corpus.text.tokenizer import save, tokenizer_hash
from brimful.corpus.text.tokenizer_pipelines import LONGEST_PIECE, LONGEST_RUN
from brimful.corpus.tokenize.vocabulary_training import train

TEXTS = [
    *["这家酒店的服务员态度非常好，就是价格不便宜！"] * 5,
    *["不推荐这家酒店，服务态度不好。", "the hotel was great, the price was not"] * 5,
]
PROGRAM = """
import sys
from test_pieces import TEXTS
from brimful.corpus.tokenize.vocabulary_training import train
from brimful.corpus.text.tokenizer import tokenizer_hash
print(tokenizer_hash(train(TEXTS, 120, han="pieces")))
"""


@pytest.fixture(scope="module")
def tokenizer():
    return train(TEXTS, 120, han="pieces")


def test_frequent_words_are_pieces_with_one_id_wherever_they_stand(tokenizer) -> None:
    first = tokenizer.encode("服务员态度好", add_special_tokens=False)
    later = tokenizer.encode("好服务员态度", add_special_tokens=False)
    assert max(len(piece) for piece in first.tokens) > 1
    assert sorted(first.ids) == sorted(later.ids)
    vocabulary = tokenizer.get_vocab()
    assert len(vocabulary) <= 120
    assert all(len(piece) <= LONGEST_PIECE for piece in vocabulary if not piece.isascii())
    assert not any(piece.startswith("##") for piece in vocabulary)


def test_an_unknown_character_hides_nothing_but_itself(tokenizer) -> None:
    tokens = tokenizer.encode("酒店㐀的价格", add_special_tokens=False).tokens
    assert tokens.count("[UNK]") == 1
    assert "".join(token for token in tokens if token != "[UNK]") == "酒店的价格"


@given(st.text(alphabet="这家酒店的服务员态度非常好就是价格不便宜，！ ", max_size=5 * LONGEST_RUN))
def test_pieces_spell_the_text(text: str) -> None:
    tokenizer = train(TEXTS, 120, han="pieces")
    tokens = tokenizer.encode(text, add_special_tokens=False).tokens
    assert "".join(tokens) == "".join(text.split())


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_training_is_deterministic_across_processes(tokenizer, seed: str) -> None:
    environment = os.environ | {
        "PYTHONHASHSEED": seed,
        "RAYON_NUM_THREADS": seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    output = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert output.stdout.strip() == tokenizer_hash(tokenizer), output.stderr


def test_transformers_reads_it(tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save(tokenizer, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS[:1] + TEXTS[-2:]:
        assert theirs(text)["input_ids"] == tokenizer.encode(text).ids
