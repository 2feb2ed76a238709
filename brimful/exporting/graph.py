"""A model as one ONNX graph, which runtimes read and quantisers take."""

import logging
import warnings
from pathlib import Path

import torch

from brimful.exporting.padded import PaddedModel
from brimful.hf.reading import VECTORS, TextReading
from brimful.hf.tensors import Head
from brimful.model.encoder import Encoder

LARGEST_FILE = (1 << 31) - (1 << 26)
"""Bytes of weights in one ONNX file: protobuf holds 2 GiB, and the graph needs some."""


def write_onnx(
    path: Path, encoder: Encoder, head: Head | None, *, token_types: bool, reading: TextReading | None = None
) -> None:
    """Trace the model with dynamic batch and length, into one file; the weights of a large one are beside it,
    in model.onnx.data. Needs onnx and onnxscript.

    Args:
        token_types: whether token_type_ids are an input; else all are 0.
        reading: without a head, the output is `VECTORS`, made so; without one too, hidden states.
    """
    # It would report the operators of packages that are not installed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    model = PaddedModel(encoder, head, reading).eval()
    ids = torch.full((2, 8), encoder.config.pad_id, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if token_types:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    vectors = VECTORS if reading else "last_hidden_state"
    dynamic = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=encoder.config.max_length)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about the exporter itself
        torch.onnx.export(
            model,
            kwargs=inputs,
            f=str(path),
            input_names=list(inputs),
            output_names=[vectors if head is None else "logits"],
            dynamic_shapes=dict.fromkeys(inputs, dynamic),
            dynamo=True,
            external_data=_weight_bytes(encoder, head) > LARGEST_FILE,
            verbose=False,
        )
    _leave_out_shapes(path)


def _leave_out_shapes(path: Path) -> None:
    """Remove value_info, the shapes of weights and of results in between: runtimes infer them, and quantisers
    that transpose a weight fail where its shape before is listed."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    del model.graph.value_info[:]
    onnx.save(model, path)


def _weight_bytes(*modules: torch.nn.Module | None) -> int:
    """Bytes of the weights; those that two modules share count once."""
    weights = {id(p): p.nbytes for module in modules if module for p in module.parameters()}
    return sum(weights.values())
