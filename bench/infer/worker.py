"""The process of one side of bench/infer: it embeds texts, file to vectors, when asked to.

A side imports what it needs alone: no torch beside another runtime's threads.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.memory import peak_mb
from bench.common.turns import Answer, serve

Embed = Callable[[list[str]], np.ndarray]
BATCH = 32
made: dict[str, Any] = {}


def setup(side: str, folder: str, texts: str, max_length: int, threads: int) -> Answer:
    """Load the model and embed all texts once, which warms up; saves the vectors, scaled to length 1."""
    made["texts"] = json.loads(Path(texts).read_text(encoding="utf-8"))
    made["embed"] = SIDES[side](Path(folder), max_length, threads)
    vectors = made["embed"](made["texts"])
    np.save(Path(texts).with_name(f"{side}.npy"), vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return {}


def turn() -> Answer:
    """Seconds from texts to vectors."""
    started = time.perf_counter()
    made["embed"](made["texts"])
    return {"seconds": time.perf_counter() - started, "cpu": sum(os.times()[:2])}


def peak() -> Answer:
    return {"peak_mb": peak_mb()}


def brimful(folder: Path, max_length: int, threads: int, precision: Any = "fp32") -> Embed:
    """`Encoder.embed`."""
    import torch

    from brimful import Encoder

    torch.set_num_threads(threads)
    encoder = Encoder.load(folder / ("int8" if precision == "int8" else "encoder"))
    return lambda texts: encoder.embed(texts, max_length=max_length, precision=precision)


def _torch_peer(folder: Path, max_length: int, threads: int, sort: bool, bf16: bool = False) -> Embed:
    import torch
    import transformers

    torch.set_num_threads(threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "encoder")
    dtype = torch.bfloat16 if bf16 else torch.float32
    model = transformers.AutoModel.from_pretrained(
        folder / "encoder", attn_implementation="sdpa", dtype=dtype
    ).eval()

    def forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        given = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        with torch.inference_mode():
            hidden = model(**given).last_hidden_state.float()
            weights = given["attention_mask"][:, :, None].to(hidden.dtype)
            return ((hidden * weights).sum(1) / weights.sum(1)).numpy()

    def embed(texts: list[str]) -> np.ndarray:
        if sort:
            return in_batches(tokenizer.backend_tokenizer, texts, max_length, forward)
        parts = []
        for start in range(0, len(texts), BATCH):
            given = tokenizer(
                texts[start : start + BATCH],
                padding=True,
                truncation=True,
                max_length=max_length,
                return_tensors="np",
            )
            parts.append(forward(given["input_ids"], given["attention_mask"]))
        return np.concatenate(parts)

    return embed


def padded(folder: Path, max_length: int, threads: int) -> Embed:
    """`transformers`, batches in the order of the file."""
    return _torch_peer(folder, max_length, threads, sort=False)


def sorted_(folder: Path, max_length: int, threads: int) -> Embed:
    """`transformers`, batches of texts sorted by tokens."""
    return _torch_peer(folder, max_length, threads, sort=True)


def onnxruntime(folder: Path, max_length: int, threads: int, file: str = "onnx/onnx/model.onnx") -> Embed:
    """ONNX Runtime with a graph of `brimful export`, sorted."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])
    return _sorted_by(
        folder,
        max_length,
        lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0],
    )


def openvino(
    folder: Path,
    max_length: int,
    threads: int,
    file: str = "onnx/onnx/model.onnx",
    precision: str | None = None,
) -> Embed:
    """OpenVINO with a graph of `brimful export`, sorted; without a precision in the one that it chooses."""
    import openvino as ov

    core = ov.Core()
    hints: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if precision:
        hints["INFERENCE_PRECISION_HINT"] = precision
    model = core.compile_model(core.read_model(str(folder / file)), "CPU", hints)
    return _sorted_by(
        folder, max_length, lambda ids, mask: model({"input_ids": ids, "attention_mask": mask})[0]
    )


def _sorted_by(
    folder: Path, max_length: int, forward: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Embed:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "encoder" / "tokenizer.json"))
    return lambda texts: in_batches(tokenizer, texts, max_length, forward)


def in_batches(
    tokenizer: Any, texts: list[str], max_length: int, forward: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Vectors of texts in batches of equal lengths, nearly; in the order of the texts."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    encoded = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
    order = np.argsort([-len(ids) for ids in encoded], kind="stable")
    parts = [forward(*batch) for batch in _batches(encoded, order)]
    vectors = np.concatenate(parts)
    found = np.empty_like(vectors)
    found[order] = vectors
    return found


def _batches(encoded: list[list[int]], order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(order), BATCH):
        chosen = [encoded[i] for i in order[start : start + BATCH]]
        ids = np.zeros((len(chosen), max(map(len, chosen))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(chosen):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        yield ids, mask


SIDES: dict[str, Callable[[Path, int, int], Embed]] = {
    "brimful": brimful,
    "padded": padded,
    "sorted": sorted_,
    "onnxruntime": onnxruntime,
    "openvino": partial(openvino, precision="f32"),
    "brimful-bf16": partial(brimful, precision="bf16"),
    "brimful-int8": partial(brimful, precision="int8"),
    "sorted-bf16": partial(_torch_peer, sort=True, bf16=True),
    "onnxruntime-int8": partial(onnxruntime, file="onnx-int8/onnx/model_quantized.onnx"),
    "openvino-default": openvino,
}
"""Those with a suffix round more than float32 does."""

if __name__ == "__main__":
    serve({"setup": setup, "turn": turn, "peak": peak})
