"""Number formats of a step."""

import pytest
import torch

from brimful.base.errors import BrimfulError
from brimful.precision import policy
from brimful.precision.policy import has_fast_bf16, resolve

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


@pytest.mark.parametrize(
    ("processor", "onednn", "format"),
    [
        ({"avx2": True}, False, "fp32"),
        ({"avx2": True, "avx512_f": True}, True, "fp32"),
        ({"avx2": True, "avx512_f": True, "avx512_bf16": True}, True, "bf16"),
        ({"avx2": True, "avx512_f": True, "avx512_bf16": True, "amx_bf16": True}, True, "bf16"),
        ({"avx2": True, "avx512_f": True, "avx512_bf16": True}, False, "fp32"),  # ONEDNN_MAX_CPU_ISA=AVX2
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
