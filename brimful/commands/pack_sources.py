"""Where a length histogram comes from: a file of counts or of lengths, prepared data, or a task's texts."""

from pathlib import Path

import numpy as np

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key
from brimful.base.storage import read_json
from brimful.corpus.shards import Corpus
from brimful.data.config import SPECIAL_TOKENS, SequencesConfig
from brimful.data.sequences import cut_documents
from brimful.packing.histogram import PUBLISHED, checked_lengths, count_lengths


def histogram_counts(name: str | Path) -> np.ndarray:
    """int64 (longest + 1,): the counts of a published histogram or of a JSON file.

    Args:
        name: `wikipedia-512`, or the path of a file {"counts": [...]}: counts[i] sequences of length i + 1.

    Raises:
        BrimfulError: the file cannot be read, or holds something else.
    """
    path = PUBLISHED.get(str(name), Path(name))
    value = read_json(path)
    counts = value.get("counts") if isinstance(value, dict) else None
    if not (isinstance(counts, list) and counts and all(type(n) is int and 0 <= n < 2**53 for n in counts)):
        raise BrimfulError(
            f'{path} must be a JSON object with "counts": a list of whole numbers, counts[i] being how many'
            " sequences have i + 1 tokens"
        )
    return np.array([0, *counts], dtype=np.int64)


def npy_counts(path: Path, capacity: int) -> np.ndarray:
    """int64 (longest + 1,): the counts of a .npy file with the length of each sequence.

    Raises:
        BrimfulError: the file cannot be read, or holds something else than lengths up to `capacity`.
    """
    try:
        lengths = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise BrimfulError(f"{path} is not a .npy file of whole numbers") from error
    if not isinstance(lengths, np.ndarray):
        raise BrimfulError(f"{path} is a .npz archive, not a .npy file of whole numbers")
    try:
        return count_lengths(checked_lengths(lengths, capacity))
    except BrimfulError as error:
        raise BrimfulError(f"{path}: {error}") from error


def shard_counts(directory: Path, max_length: int) -> np.ndarray:
    """int64 (longest + 1,): the sequences that prepared documents are cut into, special tokens included.

    Raises:
        BrimfulError: the folder holds no finished corpus.
    """
    corpus = Corpus.open(directory, verify=True)
    pieces = cut_documents(
        corpus,
        np.arange(corpus.documents),
        max_length - SPECIAL_TOKENS,
        SequencesConfig(),
        derive_key("pack"),
    )
    return count_lengths(pieces.end - pieces.begin + SPECIAL_TOKENS)


def text_counts(path: Path, tokenizer: Path, max_length: int) -> np.ndarray:
    """int64 (longest + 1,): a table's texts or pairs, encoded and cut as for fine-tuning.

    Raises:
        BrimfulError: no such table or tokenizer, or one that cannot be used.
    """
    from brimful.corpus.text.special_ids import special_ids
    from brimful.corpus.text.tokenizer import load
    from brimful.data.examples import encode_texts
    from brimful.tables.table_files import read_table

    table = read_table(path, labelled=False)
    loaded = load(tokenizer)
    pad = special_ids(loaded).pad
    examples = encode_texts(loaded, table.texts, table.second, max_length=max_length, pad=pad)
    if examples.cut:
        warn(f"{examples.cut:,} of {len(table):,} texts of {path} are cut at {max_length} tokens")
    return count_lengths(examples.lengths)
