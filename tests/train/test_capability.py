"""What a run chooses on GPUs of each compute capability, with a stand-in for the device's answer.

V100 is 7.0, T4 and RTX 2080 are 7.5, A100 is 8.0, H100 is 9.0.
"""

from dataclasses import dataclass

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.kernels.backends import FlexLayout, VarlenLayout
from brimful.model.attention import SequenceLayout, choose_backend
from brimful.precision.policy import resolve_residual
from brimful.train.config import TrainerConfig
from brimful.train.objective import Runtime
from builders.training import trainer_of


@dataclass(frozen=True)
class Expected:
    """What a capability decides; None: no GPU."""

    capability: tuple[int, int] | None
    precision: str
    attention: type
    without_compiler: type
    scaled: bool
    residual: str


EXPECTED = [
    Expected(None, "fp32", SequenceLayout, SequenceLayout, False, "fp32"),
    Expected((7, 0), "fp16", FlexLayout, SequenceLayout, True, "fp32"),
    Expected((7, 5), "fp16", FlexLayout, SequenceLayout, True, "fp32"),
    Expected((8, 0), "bf16", VarlenLayout, VarlenLayout, False, "bf16"),
    Expected((9, 0), "bf16", VarlenLayout, VarlenLayout, False, "bf16"),
]


@pytest.fixture(params=EXPECTED, ids=lambda expected: str(expected.capability))
def expected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Expected:
    found: Expected = request.param
    if found.capability is None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    else:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: found.capability)
    return found


def world_of(expected: Expected) -> World:
    return World(0, 1, torch.device("cpu" if expected.capability is None else "cuda"))


def test_precision_attention_and_residual_stream(expected: Expected, monkeypatch: pytest.MonkeyPatch):
    runtime = Runtime.of(world_of(expected), "auto", TrainerConfig())
    assert runtime.precision == expected.precision
    assert resolve_residual("auto", runtime.precision, runtime.device) == expected.residual
    for missing, backend in ((None, expected.attention), ("a compiler", expected.without_compiler)):
        monkeypatch.setattr(
            "brimful.kernels.backends.compiler_lacks", lambda device, missing=missing: missing
        )
        assert choose_backend(runtime.device, runtime.dtype) is backend


def test_fp16_scales_the_loss_and_every_format_trains(expected: Expected, tmp_path):
    runtime = Runtime.of(world_of(expected), "auto", TrainerConfig())
    here = Runtime(World(0, 1, torch.device("cpu")), runtime.precision)
    trainer = trainer_of(tmp_path, 1, runtime=here, steps=2)
    assert (trainer.gradients.scaler is not None) is expected.scaled
    trainer.run("test")
    assert trainer.progress.step == 2


def test_what_a_device_lacks_is_refused(expected: Expected):
    world, before_ampere = world_of(expected), expected.precision == "fp16"
    if before_ampere:
        with pytest.raises(BrimfulError, match="this GPU has no bfloat16; use --precision fp16"):
            Runtime.of(world, "bf16", TrainerConfig())
        with pytest.raises(BrimfulError, match="no bfloat16"):
            Runtime.of(world, "auto", TrainerConfig(weights="bf16"))
        with pytest.raises(BrimfulError, match="compute capability"):
            choose_backend(world.device, torch.float16, "varlen")
    else:
        assert Runtime.of(world, "bf16", TrainerConfig()).precision == "bf16"
    assert Runtime.of(world, "fp32", TrainerConfig()).precision == "fp32"
