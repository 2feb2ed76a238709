"""Static models: a linear classifier of the mean of a text's token vectors, served with numpy and tokenizers.

Nothing here imports torch. `stages.distil_static` makes such a model from an encoder.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.base.seals import check_seal
from brimful.base.storage import atomic_directory, read_object, require_folder_place, write_json
from brimful.corpus.text import tokenizer as tokenizers
from brimful.corpus.text.beginnings import beginning
from brimful.corpus.text.special_ids import special_ids
from brimful.hf.model_folder import STATIC

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LEAST_PROBABILITY = 1e-7
"""A smaller one counts as this, so that its logarithm is finite."""
AT_ONCE = 4096
"""Texts whose encodings are in memory at a time."""


def token_ids(tokenizer: "Tokenizer", texts: Iterable[str], max_length: int) -> list[np.ndarray]:
    """int32 ids of each text's first `max_length` tokens, without special tokens."""
    every = [beginning(tokenizer, text, max_length, "a text") for text in texts]
    found = []
    for start in range(0, len(every), AT_ONCE):
        part = tokenizer.encode_batch_fast(every[start : start + AT_ONCE], add_special_tokens=False)
        found += [np.array(encoding.ids[:max_length], dtype=np.int32) for encoding in part]
    return found


def ids_without_markers(texts: Iterable[np.ndarray], tokenizer: "Tokenizer") -> list[np.ndarray]:
    """The ids of texts that were encoded with special tokens, without these."""
    special = special_ids(tokenizer)
    return [ids[~np.isin(ids, (special.cls, special.sep, special.pad))] for ids in texts]


@dataclass(frozen=True)
class StaticModel:
    """A classifier of texts.

    Attributes:
        vectors: float16 or float32 (vocabulary, dimensions).
        matrix, bias: float32 (labels, dimensions) and (labels,), applied to the mean.
        labels: their names.
        max_length: tokens that are read of a text.
    """

    vectors: np.ndarray
    matrix: np.ndarray
    bias: np.ndarray
    labels: Sequence[str]
    tokenizer: "Tokenizer"
    max_length: int = 512

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self.vectors.size + self.matrix.size + self.bias.size

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """The logarithm of each label's probability, float32 (texts, labels); see `predict`."""
        return np.log(np.maximum(self.predict(texts), LEAST_PROBABILITY)).astype(np.float32)

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """The probability of each label for each text, float32 (n, labels), in their order."""
        logits = self.logits(token_ids(self.tokenizer, texts, self.max_length))
        chances = np.exp(logits - logits.max(1, keepdims=True))
        return chances / chances.sum(1, keepdims=True)

    def logits(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """float32 (n, labels) from the ids of `token_ids`. The mean of no tokens is 0.

        Raises:
            NotFiniteError: one is NaN or infinite.
        """
        x = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        for row, ids in zip(x, texts, strict=True):
            if len(ids):
                row[:] = self.vectors[ids].mean(0, dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # said below
            found = x @ self.matrix.T + self.bias
        if not np.isfinite(found).all():
            raise NotFiniteError("the model's outputs are NaN or infinite: its weights are damaged")
        return found

    def save(self, folder: Path | str) -> None:
        """Write config.json, weights.npz and tokenizer.json into a folder: a new one, or a static model's.

        Raises:
            BrimfulError: the folder cannot be written, or holds anything else.
        """
        folder = Path(folder)
        require_folder_place(folder, replaces=("a static model", _is_ours), remedy="choose another folder")
        with atomic_directory(folder) as place:
            np.savez(place / "weights.npz", vectors=self.vectors, matrix=self.matrix, bias=self.bias)
            tokenizers.save(self.tokenizer, place)
            about = {"kind": STATIC, "labels": list(self.labels), "max_length": self.max_length}
            write_json(place / "config.json", about)

    @classmethod
    def load(cls, folder: Path | str) -> "StaticModel":
        """Read what `save` wrote.

        Raises:
            BrimfulError: the folder holds no static model.
        """
        place = Path(folder)
        check_seal(place)
        config = read_object(place / "config.json")
        if config.get("kind") != STATIC:
            raise BrimfulError(f"{place} holds no static model: config.json says {config.get('kind')!r:.60}")
        try:
            with np.load(place / "weights.npz", allow_pickle=False) as arrays:
                vectors, matrix, bias = (arrays[name] for name in ("vectors", "matrix", "bias"))
        except (OSError, EOFError, KeyError, ValueError, TypeError, BadZipFile, NotImplementedError) as error:
            raise BrimfulError(
                f"{place} holds no whole static model: weights.npz is damaged, or lacks vectors, matrix or"
                " bias"
            ) from error
        labels: Any = config.get("labels")
        length: Any = config.get("max_length")
        tokenizer = tokenizers.read(place)
        if problem := _problem(vectors, matrix, bias, labels, length, tokenizer):
            raise BrimfulError(f"{place} holds no whole static model: {problem}")
        return cls(vectors, matrix, bias, labels, tokenizer, length)


def _problem(
    vectors: np.ndarray,
    matrix: np.ndarray,
    bias: np.ndarray,
    labels: Any,
    length: Any,
    tokenizer: "Tokenizer",
) -> str:
    """What does not fit in the parts of a model; empty if all does."""
    shapes = " and ".join(str(array.shape) for array in (vectors, matrix, bias))
    if not all(array.dtype in (np.float16, np.float32) for array in (vectors, matrix, bias)):
        return "its weights are not float16 or float32"
    if (vectors.ndim, matrix.ndim, bias.ndim) != (2, 2, 1) or vectors.shape[1] != matrix.shape[1]:
        return f"the shapes of vectors, matrix and bias are {shapes}, which do not fit each other"
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        return "labels in config.json is not a list of names"
    if not len(labels) == len(matrix) == len(bias) > 0:
        return f"config.json has {len(labels)} labels, and the shapes of its weights are {shapes}"
    if type(length) is not int or not 0 < length < 2**31:
        return "max_length in config.json is not a number of tokens"
    if (highest := max(tokenizer.get_vocab().values(), default=-1)) >= len(vectors):
        return f"its tokenizer has ids up to {highest}, and there are {len(vectors)} vectors"
    if not all(np.isfinite(array).all() for array in (vectors, matrix, bias)):
        return "its weights are NaN or infinite"
    return ""


def _is_ours(folder: Path) -> bool:
    file = folder / "config.json"
    return file.is_file() and read_object(file).get("kind") == STATIC
