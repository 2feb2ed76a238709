"""A model on padded input: as one ONNX graph, which runtimes read and quantisers take, and as `transformers`
computes it from a folder of weights."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from numpy import ndarray
from safetensors.torch import load_file
from torch import Tensor, nn

from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.data.batch import PackedBatch
from brimful.exporting.exported_model import Export
from brimful.exporting.padded_batches import Inputs, Run
from brimful.hf.config_json import shape_of
from brimful.hf.folders import HEADS
from brimful.hf.model_folder import CLASSIFIER, ModelFolder
from brimful.hf.tensor_names import Head
from brimful.hf.text_reading import VECTORS, TextReading, reading_of
from brimful.model.attention import Layout, Windows
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, SequenceHead, SpanHead
from brimful.model.inference import scale_to_length_1
from brimful.model.shape import TextPooling

FILE_BYTES = (1 << 31) - (1 << 26)
"""The most bytes of weights in one ONNX file: protobuf holds 2 GiB, and the graph needs some."""


@dataclass(frozen=True)
class DenseLayout(Layout):
    """Padded input, (B, L) tokens laid out flat as T = B * L. Only for tracing a model."""

    real: Tensor  # bool (B, L), True where there is a token

    @staticmethod
    def lacks(device: torch.device, dtype: torch.dtype) -> str | None:
        return None

    @classmethod
    def prepare(cls, batch: PackedBatch, windows: Windows = ()) -> "DenseLayout":
        raise TypeError("DenseLayout is made from a mask, not from a packed batch")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
        B, L = self.real.shape
        heads, head_dim = q.shape[-2:]
        # (T, heads, head_dim) -> (B, heads, L, head_dim)
        q, k, v = (tensor.view(B, L, heads, head_dim).transpose(1, 2) for tensor in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(q, window))
        return out.transpose(1, 2).reshape(B * L, heads, head_dim)  # (T, heads, head_dim)

    def mask(self, q: Tensor, window: int | None) -> Tensor:
        """The mask of scaled_dot_product_attention, broadcast to (B, heads, L, L)."""
        place = torch.arange(self.real.shape[1], device=q.device)
        distance = (place[:, None] - place).abs()
        visible = self.real[:, None, None, :]
        if window is not None:
            visible = visible & (distance <= window // 2)
        return visible | (distance == 0)  # so that padding, which sees nothing else, stays finite


class PaddedModel(nn.Module):
    """An encoder and its head, if any, over (B, L) tokens with a mask; the weights are shared.

    `torch.onnx.export(..., dynamo=True)` traces it with dynamic B and L.
    """

    def __init__(
        self, encoder: Encoder, head: Head | None = None, reading: TextReading | None = None
    ) -> None:
        """reading: without a head, what makes a vector of each text; None gives hidden states."""
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.reading = reading

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Hidden states (B, L, hidden), or vectors of texts (B, hidden) with a reading, or the head's logits:
        (B, L, scores), (B, classes) of a SequenceHead.

        Args:
            input_ids, attention_mask, token_type_ids: integers (B, L); tokens are on the left. bert and
                prenorm alone read types; by default types are 0.
        """
        B, L = input_ids.shape
        positions = torch.arange(L, dtype=torch.int32, device=input_ids.device).repeat(B)
        batch = PackedBatch(
            tokens=input_ids.reshape(-1),
            positions=positions,
            segments=torch.zeros_like(positions) if token_type_ids is None else token_type_ids.reshape(-1),
            offsets=positions,  # never read: the layout is dense
            lengths=(),
            real_sequences=0,
            max_length=0,
        )
        real = attention_mask.bool()
        hidden = self.encoder(batch, DenseLayout(real))
        padded = hidden.view(B, L, -1)
        if isinstance(self.head, SequenceHead):
            return self.head.classify(pool_padded(padded, real, self.head.pooling))
        if self.head is not None:
            return self.head(hidden).view(B, L, -1)
        if self.reading is None:
            return padded
        vectors = pool_padded(padded, real, self.reading.pooling)
        return F.normalize(vectors, dim=-1) if self.reading.unit else vectors


def pool_padded(hidden: Tensor, real: Tensor, pooling: TextPooling) -> Tensor:
    """Make one vector of each text, as `model.heads.pool`, with operators that a graph can have.

    Args:
        hidden: (B, L, hidden).
        real: bool (B, L), True where there is a token.

    Returns:
        (B, hidden).
    """
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "max":
        return hidden.masked_fill(~real[:, :, None], torch.finfo(hidden.dtype).min).amax(1)
    weights = real[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)


def write_onnx(path: Path, export: Export) -> None:
    """Trace the model with dynamic batch and length, into one file; the weights of a large one are beside it,
    in model.onnx.data. Needs onnx and onnxscript. Without a head, the output is `VECTORS`.
    """
    import onnx

    # Below an error, the exporter reports the operators of packages that are not installed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    encoder, head = export.encoder, export.head
    model = PaddedModel(encoder, head, export.reading).eval()
    ids = torch.full((2, 8), encoder.config.pad_id, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if export.token_types:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    dynamic = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=encoder.config.max_length)}
    path.parent.mkdir(parents=True, exist_ok=True)
    weight_bytes = sum(parameter.nbytes for parameter in model.parameters())  # shared weights count once
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's warnings are about itself
        torch.onnx.export(
            model,
            kwargs=inputs,
            f=str(path),
            input_names=list(inputs),
            output_names=[VECTORS if head is None else "logits"],
            dynamic_shapes=dict.fromkeys(inputs, dynamic),
            dynamo=True,
            external_data=weight_bytes > FILE_BYTES,
            verbose=False,
        )
    onnx_model = onnx.load(path, load_external_data=False)
    # Runtimes infer the shapes of weights and of intermediate results. Quantisers that transpose a weight
    # fail where its earlier shape is listed.
    del onnx_model.graph.value_info[:]
    onnx.save(onnx_model, path)


def gather_rounded(
    integers: Tensor, scales: Tensor, _: nn.Module, given: tuple[Tensor], out: Tensor
) -> Tensor:
    """As a hook of embeddings, trace their rows from integers (rows, width) and scales (rows,) instead."""
    return F.embedding(given[0], integers) * F.embedding(given[0], scales[:, None])


@contextmanager
def _refuse_errors(named: str) -> Iterator[None]:
    """A context in which an error of `transformers`, except an OSError, becomes one line."""
    try:
        yield
    except (BrimfulError, OSError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        message = " ".join(str(error).split())
        raise BrimfulError(
            f"transformers cannot load {named}; nothing was written. It says: {message:.500}"
        ) from error


def transformers_run(
    folder: Path, head: Head | None, named: str = "the export", *, token_types: bool = False
) -> Run:
    """Open the folder's model in `transformers`, in float32.

    Args:
        head: a head like the one of the class to load; None: the encoder, which gives hidden states.
        named: the folder in errors.
        token_types: whether they are inputs; not every class takes them.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    suffix = ""
    if head is not None:  # of a PretrainingHead, only its masked-LM head is compared
        suffix = HEADS[MaskedLMHead if isinstance(head, MaskedLMHead) else type(head)]
    kind = getattr(transformers, f"AutoModel{suffix}")
    with _refuse_errors(named):
        model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()

    def run(inputs: Inputs) -> ndarray:
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        if not token_types:
            tensors.pop("token_type_ids", None)
        with _refuse_errors(named), torch.inference_mode():
            output = model(**tensors)
        if isinstance(head, SpanHead):
            return torch.stack((output.start_logits, output.end_logits), -1).numpy()
        return (output.last_hidden_state if head is None else output.logits).numpy()

    return run


def sentence_run(folder: Path, *, token_types: bool = False) -> Run:
    """Compute the vectors of sentence-transformers from the folder's files; for a classifier, its logits."""
    model_folder = ModelFolder(folder)
    reading = reading_of(model_folder, shape_of(model_folder))
    hidden_states = transformers_run(folder, None, token_types=token_types)
    path = folder / CLASSIFIER / "model.safetensors"
    classifier = load_file(path) if path.is_file() else None

    def run(inputs: Inputs) -> ndarray:
        hidden = torch.from_numpy(hidden_states(inputs))
        real = torch.from_numpy(inputs["attention_mask"]).bool()
        vectors = pool_padded(hidden, real, reading.pooling)
        if classifier is not None:
            matrix, bias = classifier["linear.weight"], classifier["linear.bias"]
            return F.linear(vectors, matrix, bias).numpy()
        return scale_to_length_1(vectors.numpy()) if reading.unit else vectors.numpy()

    return run
