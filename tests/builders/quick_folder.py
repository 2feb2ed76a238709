"""A classifier with random weights as a graph of ONNX, which opens without torch and so quickly."""

from pathlib import Path

import torch

from brimful.exporting.padded_model import write_onnx
from brimful.model.heads import SequenceHead
from brimful.tasks.classification import Classification
from brimful.tasks.task_model import TaskModel
from builders.task_models import new_encoder


def save_quick(folder: Path, *, negative: bool = False) -> None:
    """It has the labels a, b and c, knows the words w0 to w89 and reads 32 tokens.

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
    write_onnx(folder / "onnx" / "model.onnx", encoder, head, token_types=False)
    (folder / "model.safetensors").unlink()
