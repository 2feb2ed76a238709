"""A model in eight bits: its matrices as integers, and the steps of its products."""

from pathlib import Path

import torch

from brimful.base.storage import write_tensors
from brimful.hf.config_json import family_of
from brimful.hf.int8_steps import FACTORS, FILE, products
from brimful.hf.model_folder import INTEGER_WEIGHTS
from brimful.hf.tensor_names import Tensors, name_parameters
from brimful.hf.weights import COLUMN_SCALES, ROW_SCALES
from brimful.model.encoder import Encoder
from brimful.model.int8_rounding import Steps, round_weights


def write_integers(folder: Path, encoder: Encoder, floats: Tensors) -> None:
    """Write a model with the encoder's matrices in eight bits, and its steps.

    A matrix has a scale for each row. One whose product has steps has the integers that inference in int8
    makes of it, so that it is rounded once.

    Args:
        floats: the tensors of model.safetensors, which others than these matrices stay.
    """
    tensors, prefix = dict(floats), family_of(encoder.config).prefix
    steps_by_memory = {}
    for linear in products(encoder).values():
        steps_by_memory[linear.weight.untyped_storage().data_ptr()] = linear.steps
    for name, weight in name_parameters(encoder, encoder.config):
        if weight.ndim != 2:
            continue
        # A part of a module's weight, such as a query's, is in its memory.
        steps = steps_by_memory.get(weight.untyped_storage().data_ptr()) or Steps(1.0, 0)
        if name not in tensors:  # beside a head
            name = prefix + name
        tensors[name], tensors[name + ROW_SCALES] = round_weights(weight, steps)
        if steps.factors is not None:
            tensors[name + COLUMN_SCALES] = 1 / steps.factors
    write_tensors(folder / INTEGER_WEIGHTS, tensors)
    write_steps(folder, encoder)


def write_steps(folder: Path, encoder: Encoder) -> None:
    """Write the steps of an encoder's products, under the names of its modules."""
    tensors = {}
    for name, linear in products(encoder).items():
        steps = linear.steps
        if steps is not None:
            # float64, since the rounding must have the same bits after reading.
            tensors[name] = torch.tensor([steps.size, steps.zero, steps.largest], dtype=torch.float64)
            if steps.factors is not None:
                tensors[name + FACTORS] = steps.factors
    write_tensors(folder / FILE, tensors)
