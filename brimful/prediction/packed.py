"""Task models and encoders for `brimful predict`: packed, with torch, on a GPU if there is one."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from brimful.console import warn
from brimful.data.examples import check_length
from brimful.device import default_device
from brimful.errors import BrimfulError
from brimful.hf.folders import load_encoder, naming_weights
from brimful.hf.int8 import calibrated_precision
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.precision.formats import InferencePrecision
from brimful.precision.inference import resolve_inference
from brimful.prediction.config import PredictConfig
from brimful.prediction.served import ServedEncoder, ServedTask
from brimful.tables.table import Table
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.model import load_task_model


def open_model(folder: ModelFolder, config: PredictConfig) -> ServedTask | ServedEncoder:
    """The task model in a folder, or its encoder. It moves to the device for the first answers.

    Raises:
        BrimfulError: the folder holds no model that can predict, an option does not fit it, or torch's build
            does not serve the GPU.
    """
    device = default_device()
    resolve_inference(config.precision, device, 0)  # refuses what the device does not have
    if folder.has_task:
        loaded = load_task_model(folder)
        of_file = _FormatOfFile(
            calibrated_precision(config.precision, loaded.encoder, device, folder), device
        )
        model = replace(
            loaded,
            max_length=loaded.max_length if config.max_length is None else config.max_length,
            overlap=loaded.overlap if config.overlap is None else config.overlap,
        )
        check_length(model.max_length, model.encoder.config.max_length)

        def answers(data: Encoded) -> Any:
            with naming_weights(folder):
                return model.to(device).answers(data, of_file(data))

        return ServedTask(
            model.task,
            model.max_length,
            model.overlap,
            True,
            model.encode,
            answers,
            computed_in=lambda: of_file.found,
        )
    encoder = load_encoder(folder, Encoder)
    of_file = _FormatOfFile(calibrated_precision(config.precision, encoder, device, folder), device)
    tokenizer, shape = encoder.tokenizer, encoder.config
    if tokenizer is None:
        raise BrimfulError(f"{folder} has no tokenizer.json; add it beside config.json")
    if others := folder.other_modules(classifier=False):
        warn(f"{config.model}: the vectors are without {', '.join(others)}, which is not read")
    pooling = None if config.pooling == "auto" else config.pooling
    max_length = folder.text_length(shape) if config.max_length is None else config.max_length
    check_length(max_length, shape.max_length)

    def encoded(table: Table) -> Encoded:
        return encode(table, tokenizer, max_length, overlap=config.overlap)

    def vectors(data: Encoded) -> np.ndarray:
        with naming_weights(folder):
            precision = of_file(data)
            return text_vectors(encoder.to(device), data.examples, pooling=pooling, precision=precision)

    return ServedEncoder(shape.hidden_size, max_length, encoded, vectors, computed_in=lambda: of_file.found)


class _FormatOfFile:
    """The number format of a file: `auto` is decided by its first slice, so all rows have the same.

    Attributes:
        found: the format; None before the first slice.
    """

    def __init__(self, asked: InferencePrecision, device: torch.device) -> None:
        self._asked, self._device = asked, device
        self.found: InferencePrecision | None = None

    def __call__(self, data: Encoded) -> InferencePrecision:
        if self.found is None:
            self.found = resolve_inference(self._asked, self._device, int(data.examples.lengths.sum()))
        return self.found
