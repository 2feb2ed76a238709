"""Number formats of a step, and of inference: int8 of an encoder that is calibrated, else the device's."""

import pytest
import torch

from brimful.base.errors import BrimfulError
from brimful.hf.int8_steps import calibrated_precision
from brimful.model.fast_forms import use_plain_forms
from brimful.model.int8_rounding import Steps, find_obstacle
from brimful.precision import policy
from brimful.precision.policy import has_fast_bf16, resolve
from builders.encoders import small

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("bf16", "capability", "on_cpu", "on_cuda"),
    [
        (True, (8, 0), "bf16", "bf16"),
        (False, (7, 5), "fp32", "fp16"),
        (False, (7, 0), "fp32", "fp16"),
        (False, (6, 1), "fp32", "fp32"),  # whose float16 is slow
    ],
)
def test_auto_is_what_the_device_does_fast(monkeypatch, bf16, capability, on_cpu, on_cuda):
    monkeypatch.setattr(policy, "has_fast_bf16", lambda device: bf16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert resolve("auto", CPU) == on_cpu
    assert resolve("auto", CUDA) == on_cuda


AVX512, BF16 = {"avx2": True, "avx512_f": True}, {"avx512_bf16": True}


@pytest.mark.parametrize(
    ("processor", "onednn", "format"),
    [
        ({"avx2": True}, False, "fp32"),
        (AVX512, True, "fp32"),
        (AVX512 | BF16, True, "bf16"),
        (AVX512 | BF16 | {"amx_bf16": True}, True, "bf16"),
        (AVX512 | BF16, False, "fp32"),  # ONEDNN_MAX_CPU_ISA=AVX2
    ],
)
def test_the_processor_decides_by_its_instructions(monkeypatch, processor, onednn, format):
    monkeypatch.setattr(policy, "has_fast_bf16", has_fast_bf16)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    assert resolve("auto", CPU) == format


def test_bf16_on_a_gpu_without_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(policy, "has_fast_bf16", lambda device: False)
    assert resolve("fp32", CUDA) == "fp32"
    with pytest.raises(BrimfulError, match="--precision fp16"):
        resolve("bf16", CUDA)


@pytest.mark.usefixtures("kernels")
def test_int8_needs_steps_and_instructions(monkeypatch):
    monkeypatch.setattr(policy, "has_fast_bf16", lambda device: device == CUDA)
    encoder = small("bert")
    assert calibrated_precision("auto", encoder, CPU) == "fp32"
    with pytest.raises(BrimfulError, match="X is not calibrated for int8: `brimful export --format int8"):
        calibrated_precision("int8", encoder, CPU, "X")
    encoder.layers[1].up.steps = Steps(0.1, 3)
    assert calibrated_precision("bf16", encoder, CPU) == "bf16"
    monkeypatch.setattr("brimful.hf.int8_steps.find_obstacle", lambda largest: None)
    assert calibrated_precision("auto", encoder, CPU) == calibrated_precision("int8", encoder, CPU) == "int8"
    assert calibrated_precision("auto", encoder, CUDA) == "bf16"
    with pytest.raises(BrimfulError, match="int8 needs a CPU; leave --precision out"):
        calibrated_precision("int8", encoder, CUDA)
    with use_plain_forms(), pytest.raises(BrimfulError, match="BRIMFUL_KERNELS=on"):
        calibrated_precision("int8", encoder, CPU)
    monkeypatch.setattr("brimful.hf.int8_steps.find_obstacle", find_obstacle)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert calibrated_precision("auto", encoder, CPU) == "fp32"
    with pytest.raises(BrimfulError, match="a processor with VNNI or AMX"):
        calibrated_precision("int8", encoder, CPU)
