"""`brimful serve` as a process of its own, with small models of random weights.

The models know the words w0 to w89 and read 32 tokens.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from brimful.exporting.exported_model import Export
from brimful.exporting.padded_model import write_onnx
from brimful.hf.model_folder import ModelFolder
from brimful.model.heads import SequenceHead, TokenHead
from brimful.tasks.classification import Classification
from brimful.tasks.task_model import TaskModel
from brimful.tasks.token_classification import TokenClassification
from builders.task_models import new_encoder

LABELS = ["good", "bad", "neither"]
TAGS = ["O", "B-PERSON", "I-PERSON", "B-PLACE", "I-PLACE"]


def write_models(folder: Path) -> None:
    """A classifier `topics`, a token classifier `names` and an encoder `vectors`."""
    encoder = new_encoder()
    TaskModel(Classification(LABELS), encoder, SequenceHead(encoder, 3), 32).save(folder / "topics")
    TaskModel(TokenClassification(TAGS), encoder, TokenHead(encoder, 5), 32).save(folder / "names")
    encoder.save(folder / "vectors")


def save_quick(folder: Path, *, negative: bool = False) -> None:
    """A classifier of a, b and c as a graph of ONNX, which opens without torch and so quickly.

    Args:
        negative: whether its logits have the other sign.
    """
    encoder = new_encoder()
    head = SequenceHead(encoder, 3)
    if negative:
        with torch.no_grad():
            head.classifier.weight.neg_()
            head.classifier.bias.neg_()
    TaskModel(Classification(["a", "b", "c"]), encoder, head, 32, pairs=False).save(folder)
    model = Export(encoder, head, None, ModelFolder(folder), {}, False, None)
    write_onnx(folder / "onnx" / "model.onnx", model)
    (folder / "model.safetensors").unlink()


@contextmanager
def serving(*models: Path, token: str | None = None) -> Iterator[str]:
    """The address of a server of these models, which ends with status 0 afterwards."""
    environment = {name: value for name, value in os.environ.items() if name != "BRIMFUL_TOKEN"}
    if token is not None:
        environment["BRIMFUL_TOKEN"] = token
    command = [sys.executable, "-m", "brimful", "serve", *map(str, models), "--port", "0"]
    command += ["--precision", "fp32"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            ready = filter(None, (re.fullmatch(r"serving .* on (http://\S+)\n", line) for line in lines))
            yield next(ready)[1] + "/"
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(60)
    assert status == 0


def nearly(value: Any, other: Any) -> bool:
    """Whether two answers are equal but for the rounding of numbers, which the batch decides."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(nearly(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(nearly, value, other))
    if isinstance(value, float) and isinstance(other, float):
        return abs(value - other) <= 1e-5 * max(1.0, abs(other))
    return bool(value == other)
