"""Prepared folders of random tokens, as large as a bench needs: to a loader only their sizes matter."""

from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from bench.common.workload import VOCABULARY
from brimful.corpus.shards import Corpus, TokenBatch, write_manifest, write_shard
from brimful.corpus.text.tokenizer import load, tokenizer_hash

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORD, SENTENCE = 0.7, 0.05  # proportions of tokens that start one, as in English with 30,000 pieces
BATCH_TOKENS = 4_000_000
SHARD_TOKENS = 64_000_000


def write_tokenizer(path: Path) -> None:
    """A vocabulary of words that no text has."""
    names = [*SPECIAL, *(f"w{number}" for number in range(VOCABULARY - len(SPECIAL)))]
    tokenizer = Tokenizer(WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.save(str(path))


def random_documents(tokens: int, mean_length: int, seed: int) -> TokenBatch:
    """Documents of about `tokens` tokens together; their lengths are exponential."""
    rng = np.random.default_rng(seed)
    lengths = np.ceil(rng.exponential(mean_length, tokens // mean_length + 1)).astype(np.int64)
    size = int(lengths.sum())
    begins = np.cumsum(lengths) - lengths
    words, sentences = (rng.random(size, dtype=np.float32) < share for share in (WORD, SENTENCE))
    sentences[begins] = True
    return TokenBatch(
        rng.integers(len(SPECIAL), VOCABULARY, size, dtype=np.uint16),
        words | sentences,
        sentences,
        lengths,
        np.zeros((len(lengths), 2), dtype=np.int64),
    )


def make_corpus(directory: Path, tokens: int, mean_length: int) -> Corpus:
    """Write a folder of `tokens` tokens (uint16), and open it. A shard repeats the same documents."""
    (directory / "shards").mkdir(parents=True)
    write_tokenizer(directory / "tokenizer.json")
    facts = {
        "vocabulary_size": VOCABULARY,
        "tokenizer_hash": tokenizer_hash(load(directory / "tokenizer.json")),
        "config_hash": "random",
        "inputs": [""],
    }
    names = []
    for number, begin in enumerate(range(0, tokens, SHARD_TOKENS)):
        size = min(SHARD_TOKENS, tokens - begin)
        batch = random_documents(min(BATCH_TOKENS, size), mean_length, number)
        names.append(f"random-{number:04d}")
        write_shard(directory / "shards", names[-1], [batch] * max(1, size // BATCH_TOKENS), **facts)
    write_manifest(directory, names)
    return Corpus.open(directory)
