"""Task models and encoders that predict: packed, with torch, on a GPU if there is one."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from brimful.base.cpu_steps import threads
from brimful.base.device import default_device
from brimful.base.errors import BrimfulError
from brimful.data.examples import Examples, check_length
from brimful.hf.folders import load_encoder
from brimful.hf.int8_steps import calibrated_precision
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import reading_of
from brimful.hf.weights import naming_weights
from brimful.model.door import within
from brimful.model.encoder import Encoder
from brimful.model.inference import sharing, text_vectors
from brimful.serving.config import Device, Opening
from brimful.serving.opened import ServedEncoder, ServedTask
from brimful.tasks.form import Outputs
from brimful.tasks.model import load_task_model

THREADS = torch.get_num_threads()
"""Read once: beside a batch that has few, other threads would see these."""


def open_with_torch(folder: ModelFolder, opening: Opening) -> ServedTask | ServedEncoder:
    """The task model in a folder, or its encoder. It moves to the device for the first answers.

    Raises:
        BrimfulError: the folder holds no model that can predict, an option does not fit it, there is no such
            device, or torch's build does not serve the GPU.
    """
    device = _device(opening.device)
    if folder.has_task:
        loaded = load_task_model(folder)
        model = replace(
            loaded,
            max_length=loaded.max_length if opening.max_length is None else opening.max_length,
            overlap=loaded.overlap if opening.overlap is None else opening.overlap,
        )
        check_length(model.max_length, model.encoder.config.max_length)
        numbers = _Numbers(opening, loaded.encoder, device, folder)

        def outputs(examples: Examples) -> Outputs:
            with naming_weights(folder), numbers.products():
                if model.encoder.device != device:
                    model.to(device)
                return model.outputs(examples, numbers.precision)

        assert model.encoder.tokenizer is not None
        return ServedTask(
            task=model.task,
            max_length=model.max_length,
            overlap=model.overlap,
            tokenizer=model.encoder.tokenizer,
            outputs=outputs,
            temperature=model.temperature,
            pairs=model.pairs,
            precision=numbers.precision,
            **_threads(device),
        )
    encoder = load_encoder(folder, Encoder)
    numbers = _Numbers(opening, encoder, device, folder)
    tokenizer, shape = encoder.tokenizer, encoder.config
    if tokenizer is None:
        raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
    reading = reading_of(folder, shape).pooled(opening.pooling, opening.model)
    max_length = reading.max_length if opening.max_length is None else opening.max_length
    check_length(max_length, shape.max_length)

    def vectors(examples: Examples) -> np.ndarray:
        with naming_weights(folder), numbers.products():
            if encoder.device != device:
                encoder.to(device)
            each = replace(examples, texts=None)
            return text_vectors(encoder, each, pooling=reading.pooling, precision=numbers.precision)

    return ServedEncoder(
        width=shape.hidden_size,
        max_length=max_length,
        overlap=opening.overlap,
        tokenizer=tokenizer,
        outputs=vectors,
        precision=numbers.precision,
        unit=reading.unit,
        prompt=reading.prompt,
        **_threads(device),
    )


def _threads(device: torch.device) -> dict[str, Any]:
    """`threads` and `on_threads` of what is served; a GPU has none to divide."""
    return {"threads": THREADS, "on_threads": threads} if device.type == "cpu" else {}


def _device(asked: Device) -> torch.device:
    if asked == "cpu":
        return torch.device("cpu")
    found = default_device()
    if asked != "auto" and found.type != asked:
        raise BrimfulError(f"--device {asked}: this machine shows no such device; leave it out")
    return found


class _Numbers:
    """The number format of a model's computation; of a model that stays, the copies of its weights too."""

    def __init__(self, opening: Opening, encoder: Encoder, device: torch.device, folder: ModelFolder) -> None:
        self.precision = calibrated_precision(opening.precision, encoder, device, folder)
        self.shared = within("products", device, None, self.precision)
        self.stays = opening.stays

    def products(self) -> AbstractContextManager[None]:
        """What a computation runs within."""
        return sharing(self.shared) if self.stays else nullcontext()
