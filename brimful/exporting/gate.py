"""The gate of `brimful export`: a folder is written only if others compute from it what the model computes.

The check runs the same random sequences, padded, through `transformers`, `onnxruntime` or `openvino` and,
packed, through Brimful, and compares the outputs: of the folder that was given, so that nothing in it is
misread, and of the one that was written, in float32. The ids of a few dozen texts are compared with
AutoTokenizer's, too. What fewer bits cost is measured on real texts (text_gate.py).
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from brimful.base.console import warn
from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.base.randomness import derive_key, hash_words
from brimful.corpus.text.special_ids import special_ids
from brimful.data.batch import pack
from brimful.exporting.exported import Export
from brimful.exporting.runtimes import Inputs, Run
from brimful.exporting.transformers_runs import transformers_run
from brimful.hf.folders import transformers_reads
from brimful.hf.model_folder import ModelFolder
from brimful.hf.tensors import Head
from brimful.hf.text_reading import TextReading
from brimful.model.encoder import Encoder
from brimful.model.heads import PairHead, PretrainingHead, SequenceHead, pool
from brimful.model.inference import of_length_1

TOLERANCE = 1e-4
"""The largest `Difference.relative` that an export may have, in float32."""


class Difference(NamedTuple):
    """How far outputs are from those that were expected.

    Attributes:
        absolute: the largest difference.
        scale: the largest absolute value that was expected.
    """

    absolute: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference in units of the scale, where that is above 1: rounding errors grow with it."""
        return self.absolute / max(1.0, self.scale)


def sample_sequences(encoder: Encoder, count: int = 16) -> list[np.ndarray]:
    """Random sequences [CLS] ... [SEP] of 2 to at most 128 tokens, int32; the same ones on every call.

    They contain no padding tokens, because RoBERTa in `transformers` skips those when it numbers positions.
    """
    assert encoder.tokenizer is not None
    special = special_ids(encoder.tokenizer)
    longest = min(128, encoder.config.max_length)
    sequences = []
    for index in range(count):
        length = 2 + (longest - 2) * index // (count - 1)
        draws = hash_words(derive_key("export", index), np.arange(length))
        ids = (draws % np.uint64(encoder.config.vocabulary_size)).astype(np.int32)
        ids[ids == encoder.config.pad_id] = special.sep
        ids[0], ids[-1] = special.cls, special.sep
        sequences.append(ids)
    return sequences


def _packed_logits(
    encoder: Encoder,
    head: Head | None,
    sequences: list[np.ndarray],
    reading: TextReading | None,
) -> list[np.ndarray]:
    """Brimful's outputs for a packed batch: for each sequence (outputs,) or (length, width)."""
    batch = pack(sequences, max_length=max(map(len, sequences)), pad=encoder.config.pad_id)
    with torch.inference_mode():
        hidden = encoder(batch)
        if isinstance(head, SequenceHead):
            return list(head(hidden, batch).numpy())
        if reading is not None:
            vectors = pool(hidden, batch, reading.pooling).numpy()
            return list(of_length_1(vectors) if reading.unit else vectors)
        values = hidden if head is None else head(hidden)
    return [part.numpy() for part in values.split(list(batch.lengths))]


def max_difference(
    encoder: Encoder,
    head: Head | None,
    other: Run,
    reading: TextReading | None = None,
) -> Difference:
    """The difference between Brimful's packed outputs and `other`'s padded ones.

    Args:
        other: gives outputs of the shape that `PaddedModel` returns.
        reading: without a head, what makes a vector (B, hidden) of each sequence.

    Raises:
        NotFiniteError: Brimful's are NaN or infinite.
    """
    sequences = sample_sequences(encoder)
    ids = np.full((len(sequences), max(map(len, sequences))), encoder.config.pad_id, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    ours = _packed_logits(encoder, head, sequences, reading)
    if not all(np.isfinite(each).all() for each in ours):
        raise NotFiniteError
    theirs = other({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
    differences = []
    for row, expected in enumerate(ours):
        found = theirs[row] if expected.ndim == 1 else theirs[row][: len(expected)]
        with np.errstate(over="ignore"):  # is no small difference
            differences.append(float(np.abs(found - expected).max()))
    scale = max(float(np.abs(expected).max()) for expected in ours)
    return Difference(float(np.max(differences)), scale)  # NaN if one of them is


def check_given(source: ModelFolder, encoder: Encoder, kept: np.ndarray | None) -> float | None:
    """The largest absolute difference of a hidden state from that of `transformers` on the given folder; None
    where `transformers` is not installed, or does not find the encoder under the names there.

    Args:
        kept: the old id of each of the encoder's, where pieces were dropped.

    Raises:
        BrimfulError: hidden states differ, or `transformers` cannot read the folder.
    """
    if not importlib.util.find_spec("transformers"):
        return None
    if not transformers_reads(source, encoder):
        warn(
            f"transformers does not find the encoder of {source} under the names there: only what was written"
            " is compared with what transformers reads in it"
        )
        return None
    try:
        theirs = transformers_run(source.encoder_path, None, str(source))
    except OSError as error:
        raise BrimfulError(f"transformers cannot read {source} ({error}); nothing was written") from error
    old = np.arange(encoder.config.vocabulary_size) if kept is None else kept

    def with_old_ids(inputs: Inputs) -> np.ndarray:
        return theirs(inputs | {"input_ids": old[inputs["input_ids"]]})

    difference = max_difference(encoder, None, with_old_ids)
    if not difference.relative <= TOLERANCE:
        raise BrimfulError(
            f"{source}: hidden states differ from those of transformers by {difference.absolute:.1e}; nothing"
            " was written"
        )
    return difference.absolute


def largest_difference(export: Export, run: Run, name: str, *, vectors: bool = True) -> float:
    """The largest absolute difference of an output from the model's.

    Args:
        run: an export in its runtime, in float32.
        name: of its format, for messages.
        vectors: whether it makes vectors of an encoder's hidden states.

    Raises:
        BrimfulError: outputs differ.
    """
    reading = export.reading if vectors else None
    return _largest([max_difference(export.encoder, export.head, run, reading)], export, name)


def _largest(differences: list[Difference], export: Export, name: str) -> float:
    largest = float(np.max([each.absolute for each in differences]))
    if not all(each.relative <= TOLERANCE for each in differences):
        raise BrimfulError(
            f"the {name} export of {export.source} has logits that differ by {largest:.1e}; nothing was"
            " written"
        )
    return largest


def check_written(
    export: Export, load: Callable[[], Run], folder: Path, name: str, *, vectors: bool = True
) -> float | None:
    """As `largest_difference`, of a folder of weights; None if `transformers` is not installed.

    Args:
        load: reads the folder back.
        vectors: whether the folder says how an encoder makes vectors.

    Raises:
        BrimfulError: outputs differ, or the folder cannot be read back.
    """
    if not importlib.util.find_spec("transformers"):
        warn("transformers is not installed, so the folder was not checked against it")
        return None
    reading = export.reading if vectors else None
    try:
        differences = [max_difference(export.encoder, export.head, load(), reading)]
        if isinstance(export.head, PretrainingHead):
            differences += _pair_difference(folder, export.encoder, export.head.pair)
    except OSError as error:
        raise BrimfulError(f"the {name} export cannot be read back ({error}); nothing was written") from error
    return _largest(differences, export, name)


def _pair_difference(folder: Path, encoder: Encoder, head: PairHead) -> list[Difference]:
    """The difference of the pair scores; none where `transformers` has no class that computes them."""
    try:
        run = transformers_run(folder, head)
    except BrimfulError as error:
        warn(f"the scores of pairs were not checked: {error}")
        return []
    return [max_difference(encoder, head, run)]
