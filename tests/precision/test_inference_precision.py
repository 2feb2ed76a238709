"""The number format of a model's inference: int8 of an encoder that is calibrated, else the device's."""

import pytest
import torch

from brimful.base.errors import BrimfulError
from brimful.hf.int8_steps import calibrated_precision
from brimful.model.fast_forms import use_plain_forms
from brimful.model.int8_rounding import Steps, find_obstacle
from brimful.precision import policy
from builders.encoders import small

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.usefixtures("kernels")
def test_int8_needs_steps_and_instructions(monkeypatch):
    monkeypatch.setattr(policy, "has_fast_bf16", lambda device: device == GPU)
    encoder = small("bert")
    assert calibrated_precision("auto", encoder, CPU) == "fp32"
    with pytest.raises(BrimfulError, match="X is not calibrated for int8: `brimful export --format int8"):
        calibrated_precision("int8", encoder, CPU, "X")
    encoder.layers[1].up.steps = Steps(0.1, 3)
    assert calibrated_precision("bf16", encoder, CPU) == "bf16"
    monkeypatch.setattr("brimful.hf.int8_steps.find_obstacle", lambda largest: None)
    assert calibrated_precision("auto", encoder, CPU) == calibrated_precision("int8", encoder, CPU) == "int8"
    assert calibrated_precision("auto", encoder, GPU) == "bf16"
    with pytest.raises(BrimfulError, match="int8 needs a CPU; leave --precision out"):
        calibrated_precision("int8", encoder, GPU)
    with use_plain_forms(), pytest.raises(BrimfulError, match="BRIMFUL_KERNELS=on"):
        calibrated_precision("int8", encoder, CPU)
    monkeypatch.setattr("brimful.hf.int8_steps.find_obstacle", find_obstacle)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert calibrated_precision("auto", encoder, CPU) == "fp32"
    with pytest.raises(BrimfulError, match="a processor with VNNI or AMX"):
        calibrated_precision("int8", encoder, CPU)
