"""The gate of `brimful export`: a folder is written only if others compute from it what the model computes.

The check runs the same random sequences, padded, through `transformers`, `onnxruntime` or `openvino` and,
packed, through Brimful, and compares the outputs: of the folder that was given, so that nothing in it is
misread, and of the one that was written, in float32. The ids of a few dozen texts are compared with
AutoTokenizer's, too. What fewer bits cost is measured on real texts (text_gate.py).
"""

import importlib.util
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file

from brimful.base.console import warn
from brimful.base.errors import BrimfulError, NotFiniteError, is_out_of_memory
from brimful.base.paths import utf8_path
from brimful.base.randomness import derive_key, hash_words
from brimful.corpus.text.special_ids import special_ids
from brimful.data.batch import pack
from brimful.exporting.formats import FORMATS, FormatName
from brimful.exporting.onnx_file import onnx_session
from brimful.exporting.openvino_file import openvino_session
from brimful.exporting.padded_batches import Run, pooled, session_run
from brimful.exporting.source import transformers_reads
from brimful.hf.folders import HEADS
from brimful.hf.model_folder import CLASSIFIER, ModelFolder
from brimful.hf.reading import TextReading
from brimful.hf.tensors import Head
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, PairHead, PretrainingHead, SequenceHead, SpanHead, pool
from brimful.model.inference import of_length_1

TOLERANCE = 1e-4
"""The largest `Difference.relative` that an export may have, in float32."""
_FIELD = re.compile(r"Validation error for field '(\w+)'")
Forward = Callable[..., np.ndarray]
"""input_ids and attention_mask (B, L), and perhaps token_type_ids -> outputs."""


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
    other: Forward,
    reading: TextReading | None = None,
) -> Difference:
    """The difference between Brimful's packed outputs and `other`'s padded ones.

    Args:
        other: (input_ids, attention_mask), int64 (B, L) -> outputs of the shape that `PaddedModel` returns.
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
    theirs = other(ids, mask)
    differences = []
    for row, expected in enumerate(ours):
        found = theirs[row] if expected.ndim == 1 else theirs[row][: len(expected)]
        with np.errstate(over="ignore"):  # is no small difference
            differences.append(float(np.abs(found - expected).max()))
    scale = max(float(np.abs(expected).max()) for expected in ours)
    return Difference(float(np.max(differences)), scale)  # NaN if one of them is


@contextmanager
def _refusals(named: str, head: Head | None) -> Iterator[None]:
    """Whatever the files of a folder make `transformers` raise, but an OSError, becomes one line."""
    try:
        yield
    except (BrimfulError, OSError, MemoryError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        if is_out_of_memory(error):
            raise
        if "Unrecognized configuration class" in message:
            raise BrimfulError(
                f"transformers has no class for a {type(head).__name__} on this kind of encoder, so it cannot"
                " load the export"
            ) from error
        if field := _FIELD.match(message):
            message = f"{field[1]} of config.json has a value of a wrong type"
        raise BrimfulError(
            f"transformers cannot load {named}; nothing was written. It says: {message}"
        ) from error


def transformers_forward(folder: Path, head: Head | None, named: str = "the export") -> Forward:
    """The forward pass of the folder in `transformers` (imports transformers); `named` so in errors."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    suffix = "" if head is None else HEADS[MaskedLMHead if isinstance(head, MaskedLMHead) else type(head)]
    kind = getattr(transformers, f"AutoModel{suffix}")
    with _refusals(named, head), utf8_path(folder) as place:
        model = kind.from_pretrained(place, attn_implementation="eager", dtype=torch.float32).eval()

    def forward(ids: np.ndarray, mask: np.ndarray, types: np.ndarray | None = None) -> np.ndarray:
        given = {"input_ids": ids, "attention_mask": mask}
        if types is not None:
            given["token_type_ids"] = types
        with _refusals(named, head), torch.inference_mode():
            output = model(**{name: torch.from_numpy(array) for name, array in given.items()})
        if isinstance(head, SpanHead):
            return torch.stack((output.start_logits, output.end_logits), -1).numpy()
        return (output.last_hidden_state if head is None else output.logits).numpy()

    return forward


def sentence_forward(folder: Path) -> Forward:
    """What sentence-transformers computes from the folder's files, by AutoModel (imports transformers)."""
    given, hidden_states = ModelFolder(folder), transformers_forward(folder, None)
    unit = any(kind == "Normalize" for kind, _ in given.modules)
    path = folder / CLASSIFIER / "model.safetensors"
    dense = {name: tensor.numpy() for name, tensor in load_file(path).items()} if path.is_file() else {}

    def forward(ids: np.ndarray, mask: np.ndarray, types: np.ndarray | None = None) -> np.ndarray:
        vectors = pooled(hidden_states(ids, mask, types), mask, given.pooling or "mean")
        if dense:
            return vectors @ dense["linear.weight"].T + dense["linear.bias"]
        return of_length_1(vectors) if unit else vectors

    return forward


def graph_forward(path: Path, *, in_openvino: bool) -> Forward:
    """The forward pass of an ONNX file in its runtime, in float32."""
    run = session_run(openvino_session(path, exact=True) if in_openvino else onnx_session(path))
    return lambda ids, mask: run(
        {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    )


def run_of_export(folder: Path, kind: FormatName, head: Head | None, *, token_types: bool) -> Run:
    """An export as its users run it."""
    form = FORMATS[kind]
    if form.graph:
        path = folder / form.file
        return session_run(openvino_session(path) if path.suffix == ".xml" else onnx_session(path))
    forward = transformers_forward(folder, head) if kind == "hf" else sentence_forward(folder)
    types = (lambda inputs: {"types": inputs["token_type_ids"]}) if token_types else (lambda _: {})
    return lambda inputs: forward(inputs["input_ids"], inputs["attention_mask"], **types(inputs))


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
        theirs = transformers_forward(source.encoder_path, None, str(source))
    except OSError as error:
        raise BrimfulError(f"transformers cannot read {source} ({error}); nothing was written") from error
    old = np.arange(encoder.config.vocabulary_size) if kept is None else kept
    difference = max_difference(encoder, None, lambda ids, mask: theirs(old[ids], mask))
    if not difference.relative <= TOLERANCE:
        raise BrimfulError(
            f"{source}: hidden states differ from those of transformers by {difference.absolute:.1e}; nothing"
            " was written"
        )
    return difference.absolute


def check_written(
    folder: Path,
    source: ModelFolder,
    kind: FormatName,
    encoder: Encoder,
    head: Head | None,
    reading: TextReading | None,
) -> float | None:
    """The largest absolute difference of an output of the written folder of weights from the model's; None if
    `transformers` is needed and not installed.

    Raises:
        BrimfulError: outputs differ, or the folder cannot be read back.
    """
    if not importlib.util.find_spec("transformers"):
        warn("transformers is not installed, so the folder was not checked against it")
        return None
    try:
        forward = transformers_forward(folder, head) if kind == "hf" else sentence_forward(folder)
        differences = [max_difference(encoder, head, forward, reading)]
        if kind == "hf" and isinstance(head, PretrainingHead):
            differences += _pair_difference(folder, encoder, head.pair)
    except OSError as error:
        raise BrimfulError(f"the {kind} export cannot be read back ({error}); nothing was written") from error
    return _largest(differences, source, kind)


def check_graph(
    graph: Path,
    source: ModelFolder,
    kind: FormatName,
    encoder: Encoder,
    head: Head | None,
    reading: TextReading | None,
) -> float:
    """The largest absolute difference of an output of a graph from the model's, in the runtime of the format
    that it is written for or becomes.

    Args:
        graph: an ONNX file.

    Raises:
        BrimfulError: outputs differ.
    """
    forward = graph_forward(graph, in_openvino=kind.startswith("openvino"))
    return _largest([max_difference(encoder, head, forward, reading)], source, kind)


def _largest(differences: list[Difference], source: ModelFolder, kind: FormatName) -> float:
    largest = float(np.max([each.absolute for each in differences]))
    if not all(each.relative <= TOLERANCE for each in differences):
        raise BrimfulError(
            f"the {kind} export of {source} has logits that differ by {largest:.1e}; nothing was written"
        )
    return largest


def _pair_difference(folder: Path, encoder: Encoder, head: PairHead) -> list[Difference]:
    """The difference of the pair scores; none where `transformers` has no class that computes them."""
    try:
        forward = transformers_forward(folder, head)
    except BrimfulError as error:
        warn(f"the scores of pairs were not checked: {error}")
        return []
    return [max_difference(encoder, head, forward)]
