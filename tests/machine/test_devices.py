"""What is said of a GPU and its driver, with stand-ins for both."""

import stat
from types import SimpleNamespace

import pytest
import torch

from brimful.errors import BrimfulError
from brimful.machine.devices import device_facts, driver_facts

H100 = SimpleNamespace(name="NVIDIA H100 PCIe", major=9, minor=0, uuid="1f3b")


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: H100)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 << 30, 80 << 30))
    return torch.device("cuda", 1)


def test_a_gpu(gpu, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    facts = device_facts(gpu)
    assert facts["name"] == "NVIDIA H100 PCIe"
    assert facts["capability"] == "9.0"
    assert facts["precision"] == "bf16"
    assert facts["attention"] == "varlen"
    assert facts["memory"] == {"total": 80 << 30, "free": 70 << 30}
    assert facts["visible"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6")
    assert device_facts(gpu)["visible"] == "6"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert device_facts(gpu)["visible"] == "1"


def test_a_cpu(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    facts = device_facts(torch.device("cpu"))
    assert facts["attention"] == "sdpa"
    assert facts["precision"] in ("fp32", "bf16")
    assert facts["threads"] == torch.get_num_threads()
    assert "/nowhere/g++ was not found" in facts["compile_lacks"]
    assert "memory" not in facts


def test_the_driver(tmp_path, monkeypatch):
    file = tmp_path / "nvidia-smi"
    file.write_text("#!/bin/sh\necho '0, GPU-aa-1, 580.95.05'; echo '1, GPU-bb-2, 580.95.05'\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_facts() == {"version": "580.95.05", "numbers": {"aa-1": 0, "bb-2": 1}}
    file.write_text("#!/bin/sh\necho 'No devices were found'\n")
    with pytest.raises(BrimfulError, match="names no GPU: No devices were found"):
        driver_facts()
