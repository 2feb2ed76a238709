"""Task models and encoders that predict: packed, with torch, on a GPU if there is one."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from brimful.base.cpu_threads import use_threads
from brimful.base.device import default_device
from brimful.base.errors import BrimfulError
from brimful.data.examples import Examples, check_length
from brimful.hf.folders import load_encoder
from brimful.hf.int8_steps import calibrated_precision
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import reading_of
from brimful.hf.weights import naming_weights
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import open_fast_context
from brimful.model.inference import share_products, text_vectors
from brimful.serving.config import Device, Opening
from brimful.serving.opened import ServedEncoder, ServedTask
from brimful.tasks.prediction_form import Outputs
from brimful.tasks.task_model import TaskModel, load_task_model

THREADS = torch.get_num_threads()
"""Read once: beside a batch that has few, other threads would see these."""


def open_with_torch(folder: ModelFolder, opening: Opening) -> ServedTask | ServedEncoder:
    """The task model in a folder, or its encoder. It moves to the device for the first answers.

    Raises:
        BrimfulError: the folder holds no model that can predict, an option does not fit it, there is no such
            device, or torch's build does not serve the GPU.
    """
    device = _device(opening.device)
    model: TaskModel | Encoder = load_task_model(folder) if folder.has_task else load_encoder(folder, Encoder)
    encoder = model.encoder if isinstance(model, TaskModel) else model
    shape, tokenizer = encoder.config, encoder.tokenizer
    if tokenizer is None:
        raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
    precision = calibrated_precision(opening.precision, encoder, device, folder)
    products = open_fast_context("products", device, None, precision)

    def computed(compute: Callable[[Examples], Any], examples: Examples) -> Any:
        """What a computation gives on the device; of a model that stays, copies of its weights stay too."""
        with naming_weights(folder), share_products(products) if opening.stays else nullcontext():
            if encoder.device != device:
                model.to(device)
            return compute(examples)

    # A GPU has no threads to divide.
    how: dict[str, Any] = {"threads": THREADS, "on_threads": use_threads} if device.type == "cpu" else {}
    how |= {"tokenizer": tokenizer, "precision": precision}
    if isinstance(model, TaskModel):
        task_model = model
        max_length = model.max_length if opening.max_length is None else opening.max_length
        check_length(max_length, shape.max_length)

        def outputs(examples: Examples) -> Outputs:
            return task_model.outputs(examples, precision)

        return ServedTask(
            task=model.task,
            max_length=max_length,
            overlap=model.overlap if opening.overlap is None else opening.overlap,
            outputs=lambda examples: computed(outputs, examples),
            temperature=model.temperature,
            pairs=model.pairs,
            **how,
        )
    reading = reading_of(folder, shape).pooled(opening.pooling, opening.model)
    max_length = reading.max_length if opening.max_length is None else opening.max_length
    check_length(max_length, shape.max_length)

    def vectors(examples: Examples) -> np.ndarray:
        each = replace(examples, texts=None)
        return text_vectors(encoder, each, pooling=reading.pooling, precision=precision)

    return ServedEncoder(
        width=shape.hidden_size,
        max_length=max_length,
        overlap=opening.overlap,
        outputs=lambda examples: computed(vectors, examples),
        unit=reading.unit,
        prompt=reading.prompt,
        **how,
    )


def _device(asked: Device) -> torch.device:
    if asked == "cpu":
        return torch.device("cpu")
    found = default_device()
    if asked != "auto" and found.type != asked:
        raise BrimfulError(f"--device {asked}: this machine shows no such device; leave it out")
    return found
