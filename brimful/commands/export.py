"""The verb `brimful export`: a folder for Hugging Face libraries or an ONNX file, checked before it exists.

The check runs the same random sequences, padded, through `transformers` or `onnxruntime` and, packed, through
Brimful, and compares the outputs; the ids of a few dozen texts are compared with AutoTokenizer's, too. An
export with other outputs or ids is not written.
"""

import importlib.util
import logging
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
import tyro
from safetensors.torch import load_file

from brimful.config import verb
from brimful.console import warn
from brimful.data.batch import pack
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import (
    ChoiceHead,
    MaskedLMHead,
    PairHead,
    PretrainingHead,
    SequenceHead,
    SpanHead,
    pool,
)
from brimful.nn.hf_tensors import Head
from brimful.nn.interop import HEADS, save_model
from brimful.nn.layers import Pooling
from brimful.nn.padded import PaddedModel
from brimful.nn.sentence_modules import CLASSIFIER, read_pooling, write_modules
from brimful.nn.tokenizer_check import check_ids
from brimful.paths import utf8_path
from brimful.randomness import derive_key, hash_words
from brimful.runs.snapshot import Step, load_snapshot
from brimful.seals import EXPORT as RECORD
from brimful.seals import own_files
from brimful.storage import atomic_directory, commit, require_folder_place
from brimful.tasks.model import saved_settings
from brimful.text.special_ids import special_ids

TOLERANCE = 1e-4
"""The largest `Difference.relative` that an export may have, in float32."""
LARGEST_FILE = (1 << 31) - (1 << 26)
"""Bytes of weights in one ONNX file: protobuf holds 2 GiB, and the graph needs some."""
Forward = Callable[[np.ndarray, np.ndarray], np.ndarray]


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


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Write a trained model for deployment and check it."""

    run: Annotated[str, tyro.conf.Positional]
    """Run directory of pretrain, finetune or distil, or a folder with a model."""
    out: str
    """Folder to create. An earlier export there is replaced; your own files beside it stay."""
    step: Step | None = None
    """For a run of pretrain, finished or not, or the training under way in one of finetune: the checkpoint
    after this many updates, or of the best evaluation. An average of weights is taken, if there is one."""
    format: Literal["hf", "sentence-transformers", "onnx"] = "hf"
    """hf: config.json, model.safetensors, tokenizer.json for `transformers`; sentence-transformers: the same
    with a pooling, for encoders without a head and for classifiers of the mean in BERT-like models, which
    `transformers` has no class for; onnx: model.onnx, the whole model."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""


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
    encoder: Encoder, head: Head | None, sequences: list[np.ndarray], pooling: Pooling | None
) -> list[np.ndarray]:
    """Brimful's outputs for a packed batch: for each sequence (outputs,) or (length, width)."""
    batch = pack(sequences, max_length=max(map(len, sequences)), pad=encoder.config.pad_id)
    with torch.inference_mode():
        hidden = encoder(batch)
        if isinstance(head, SequenceHead):
            return list(head(hidden, batch).numpy())
        if pooling is not None:
            return list(pool(hidden, batch, pooling).numpy())
        values = hidden if head is None else head(hidden)
    return [part.numpy() for part in values.split(list(batch.lengths))]


def max_difference(
    encoder: Encoder, head: Head | None, other: Forward, pooling: Pooling | None = None
) -> Difference:
    """The difference between Brimful's packed outputs and `other`'s padded ones.

    Args:
        other: (input_ids, attention_mask), int64 (B, L) -> outputs of the shape that `PaddedModel` returns.
        pooling: without a head, what makes a vector (B, hidden) of each sequence.
    """
    sequences = sample_sequences(encoder)
    ids = np.full((len(sequences), max(map(len, sequences))), encoder.config.pad_id, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    theirs = other(ids, mask)
    ours = _packed_logits(encoder, head, sequences, pooling)
    differences = []
    for row, expected in enumerate(ours):
        found = theirs[row] if expected.ndim == 1 else theirs[row][: len(expected)]
        differences.append(float(np.abs(found - expected).max()))
    scale = max(float(np.abs(expected).max()) for expected in ours)
    return Difference(float(np.max(differences)), scale)  # NaN if one of them is


def transformers_forward(folder: Path, head: Head | None) -> Forward:
    """The forward pass of the folder in `transformers` (imports transformers)."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    suffix = "" if head is None else HEADS[MaskedLMHead if isinstance(head, MaskedLMHead) else type(head)]
    kind = getattr(transformers, f"AutoModel{suffix}")
    try:
        with utf8_path(folder) as place:
            model = kind.from_pretrained(place, attn_implementation="eager", dtype=torch.float32).eval()
    except ValueError as error:
        if "Unrecognized configuration class" in str(error):
            raise BrimfulError(
                f"transformers has no class for a {type(head).__name__} on this kind of encoder, so it cannot"
                " load the export"
            ) from error
        said = " ".join(str(error).split())
        raise BrimfulError(
            f"transformers cannot load the folder; nothing was written. It says: {said}"
        ) from error

    def forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if isinstance(head, ChoiceHead):  # it takes (B, choices, L); here each sequence is one choice
            ids, mask = ids[:, None], mask[:, None]
        with torch.inference_mode():
            output = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        if isinstance(head, SpanHead):
            return torch.stack((output.start_logits, output.end_logits), -1).numpy()
        return (output.last_hidden_state if head is None else output.logits).numpy()

    return forward


def sentence_forward(folder: Path) -> Forward:
    """What sentence-transformers computes from the folder's files, by AutoModel (imports transformers)."""
    hidden_states, pooling = transformers_forward(folder, None), read_pooling(folder)
    path = folder / CLASSIFIER / "model.safetensors"
    dense = {name: tensor.numpy() for name, tensor in load_file(path).items()} if path.is_file() else {}

    def forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        hidden, real = hidden_states(ids, mask), mask[:, :, None]
        pooled = hidden[:, 0] if pooling == "first" else (hidden * real).sum(1) / real.sum(1)
        return pooled @ dense["linear.weight"].T + dense["linear.bias"] if dense else pooled

    return forward


def onnx_session(path: Path, threads: int = 0) -> Any:
    """An onnxruntime session on the CPU; with `threads` 0, onnxruntime chooses their number."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def onnx_forward(path: Path) -> Forward:
    """The forward pass of the file in `onnxruntime`."""
    session = onnx_session(path)
    inputs = [value.name for value in session.get_inputs()]

    def forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(None, {name: values[name] for name in inputs})[0]

    return forward


def _weight_bytes(*modules: torch.nn.Module | None) -> int:
    """Bytes of the weights; those that two modules share count once."""
    weights = {id(p): p.nbytes for module in modules if module for p in module.parameters()}
    return sum(weights.values())


def write_onnx(path: Path, encoder: Encoder, head: Head | None, *, token_types: bool) -> None:
    """Trace the model with dynamic batch and length, into one file; the weights of a large one are beside it,
    in model.onnx.data.

    Args:
        token_types: whether token_type_ids are an input; else all are 0.
    """
    # It would report the operators of packages that are not installed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    model = PaddedModel(encoder, head).eval()
    ids = torch.full((2, 8), encoder.config.pad_id, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if token_types:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    output = "last_hidden_state" if head is None else "logits"
    dynamic = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=encoder.config.max_length)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about the exporter itself
        torch.onnx.export(
            model,
            kwargs=inputs,
            f=str(path),
            input_names=list(inputs),
            output_names=[output],
            dynamic_shapes=dict.fromkeys(inputs, dynamic),
            dynamo=True,
            external_data=_weight_bytes(encoder, head) > LARGEST_FILE,
            verbose=False,
        )


def _exported_head(head: Head | None, kind: str) -> Head | None:
    """The head that a format takes along.

    Raises:
        BrimfulError: the format has no place for the head.
    """
    linear = isinstance(head, SequenceHead) and head.linear
    if kind == "hf" and linear:
        raise BrimfulError(
            "transformers has no class for a classifier of the mean on this kind of encoder: export it with"
            " --format sentence-transformers or --format onnx"
        )
    if kind != "sentence-transformers" or linear:
        return head
    if head is None or isinstance(head, MaskedLMHead):
        return None  # an encoder of texts, whose embeddings are pooled hidden states
    raise BrimfulError(
        f"sentence-transformers has no module for this {type(head).__name__}: export it with --format hf or"
        " --format onnx"
    )


def _check(
    folder: Path, kind: str, encoder: Encoder, head: Head | None, pooling: Pooling | None
) -> float | None:
    """The largest absolute difference of an output; None if `transformers` is needed and not installed."""
    if kind != "onnx" and not importlib.util.find_spec("transformers"):
        warn("transformers is not installed, so the folder was not checked against it")
        return None
    try:
        if kind == "onnx":
            forward = onnx_forward(folder / "model.onnx")
        elif kind == "hf":
            forward = transformers_forward(folder, head)
        else:
            forward = sentence_forward(folder)
        differences = [max_difference(encoder, head, forward, pooling)]
        if kind == "hf" and isinstance(head, PretrainingHead):
            differences += _pair_difference(folder, encoder, head.pair)
    except OSError as error:
        raise BrimfulError(f"the {kind} export cannot be read back ({error}); nothing was written") from error
    largest = float(np.max([each.absolute for each in differences]))
    if not all(each.relative <= TOLERANCE for each in differences):
        raise BrimfulError(f"the {kind} export's logits differ by {largest:.1e}; nothing was written")
    return largest


def _pair_difference(folder: Path, encoder: Encoder, head: PairHead) -> list[Difference]:
    """The difference of the pair scores; none where `transformers` has no class that computes them."""
    try:
        forward = transformers_forward(folder, head)
    except BrimfulError as error:
        warn(f"the scores of pairs were not checked: {error}")
        return []
    return [max_difference(encoder, head, forward)]


def _keep_description(folder: Path) -> None:
    """Remove the weights of a model, and leave what describes it and its tokenizer."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            path.unlink()


@verb(ExportConfig)
def export(config: ExportConfig) -> dict[str, Any]:
    """Write a trained model as a folder for Hugging Face libraries or an ONNX file, and check its outputs.

    Returns:
        the folder, its size in bytes, and `max_abs_logit_difference` (None if `transformers` is needed and
        not installed); for a checkpoint also its `step` and whether its weights are `averaged`.

    Raises:
        BrimfulError: there is no model or no such checkpoint, the format has no place for its head, the
            folder holds something else, or outputs or ids differ.
    """
    out = Path(config.out)
    encoder, head, labels, source, about = load_snapshot(Path(config.run), config.step)
    require_folder_place(out, replaces=("an earlier export", lambda folder: (folder / RECORD).is_file()))
    own = own_files(out / RECORD)
    if out.resolve() == source.resolve():
        raise BrimfulError(f"{out} is the model itself; choose another --out")
    if encoder.tokenizer is None:
        raise BrimfulError(f"{source} has no tokenizer.json; add it beside config.json")
    head = _exported_head(head, config.format)
    pooling = (encoder.pooling or "mean") if config.format == "sentence-transformers" else None
    if config.dry_run:
        return {"dry_run": True, "model": str(source), "format": config.format, **about}
    settings = saved_settings(source, encoder)
    with atomic_directory(out, own) as folder:
        save_model(folder, encoder, head, labels, **settings)
        if pooling and head is None:
            write_modules(folder, encoder.config.hidden_size, pooling, settings["max_length"])
        if config.format == "onnx":
            _keep_description(folder)
            if isinstance(head, PretrainingHead):
                warn("model.onnx has the scores of tokens; those of pairs are left out")
            # Without a head it makes embeddings of single texts, as `Encoder.embed` does.
            typed = settings["token_types"] and head is not None
            write_onnx(folder / "model.onnx", encoder, head, token_types=typed)
        difference = _check(folder, config.format, encoder, head, pooling)
        if importlib.util.find_spec("transformers"):
            check_ids(source, folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        facts = {"format": config.format, **about, "max_abs_logit_difference": difference}
        record = commit(folder / RECORD, files, kind="export", **facts)
    size = sum(file["bytes"] for file in record["files"].values())
    return {"out": str(out), "bytes": size, **facts}
