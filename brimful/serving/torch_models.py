"""Open task models and encoders that torch computes: packed, on a GPU if there is one."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from brimful.base.cpu_threads import use_threads
from brimful.base.device import default_device
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.data.examples import Examples
from brimful.hf.folders import load_encoder, require_tokenizer
from brimful.hf.int8_steps import calibrated_precision
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import reading_of
from brimful.hf.weights import naming_weights
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import open_fast_context
from brimful.model.inference import share_products, text_vectors
from brimful.serving.config import Device, ModelOptions
from brimful.serving.served_model import ComputeOutputs, ServedEncoder, ServedTask, choose_max_length
from brimful.tasks.task_model import TaskModel, load_task_model

CPU_THREADS = torch.get_num_threads()
"""Threads of torch, read at the import: while a batch computes on few, other threads see that number."""


def open_with_torch(folder: ModelFolder, options: ModelOptions) -> ServedTask | ServedEncoder:
    """Open the task model in a folder, or its encoder. It moves to the device for the first answers.

    Raises:
        BrimfulError: the folder holds no model that can predict, an option does not fit it, the machine has
            no such device, or torch's build does not serve the GPU.
    """
    device = _choose_device(options.device)
    model = load_task_model(folder) if folder.has_task else load_encoder(folder, Encoder)
    encoder = model.encoder if isinstance(model, TaskModel) else model
    tokenizer = require_tokenizer(encoder, folder)
    precision = calibrated_precision(options.precision, encoder, device, folder)
    # Laid-out copies of the weights: a resident model keeps them from one call to the next.
    copies = open_fast_context("products", device, None, precision)

    def compute_on_device(compute: ComputeOutputs) -> ComputeOutputs:
        def outputs(examples: Examples) -> Any:
            with naming_weights(folder), share_products(copies) if options.resident else nullcontext():
                if encoder.device != device:
                    model.to(device)
                return compute(examples)

        return outputs

    common: Values = {"tokenizer": tokenizer, "precision": precision}
    if device.type == "cpu":  # a GPU has no threads to divide
        common |= {"threads": CPU_THREADS, "on_threads": use_threads}
    longest = encoder.config.max_length
    if isinstance(model, TaskModel):
        return ServedTask(
            task=model.task,
            max_length=choose_max_length(options, model.max_length, longest),
            overlap=model.overlap if options.overlap is None else options.overlap,
            outputs=compute_on_device(partial(model.outputs, precision=precision)),
            temperature=model.temperature,
            pairs=model.pairs,
            **common,
        )
    reading = reading_of(folder, encoder.config).pooled(options.pooling, options.model)

    def vectors(examples: Examples) -> np.ndarray:
        # Without `texts` every window has a vector of its own; `ServedEncoder.answers` takes their mean.
        windows = replace(examples, texts=None)
        return text_vectors(encoder, windows, pooling=reading.pooling, precision=precision)

    return ServedEncoder(
        width=encoder.config.hidden_size,
        max_length=choose_max_length(options, reading.max_length, longest),
        overlap=options.overlap,
        outputs=compute_on_device(vectors),
        unit=reading.unit,
        prompt=reading.prompt,
        **common,
    )


def _choose_device(name: Device) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    device = default_device()
    if name != "auto" and device.type != name:
        raise BrimfulError(f"--device {name}: this machine shows no such device; leave it out")
    return device
