"""Training with a residual stream in bf16."""

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.runs.folder import RunFolder
from brimful.stages.pretrain import resolve_pretraining
from brimful.stages.pretrain_config import PretrainConfig
from brimful.train.config import TrainerConfig
from brimful.train.objective import Runtime
from builders.training import assert_same_bits, killed_and_resumed, lines, trainer_of, weights

CPU = torch.device("cpu")
BF16 = Runtime(World(0, 1, CPU), "bf16")


def test_the_stream_is_bf16_until_training_ends(seed, tmp_path):
    """The loss stays within 5 % of that of a float32 stream, which is the default outside of pretraining."""
    settings = {"steps": 10, "log_every": 1, "batch": 24, "rate": 1e-4, "runtime": BF16}
    calls = {"wide": [], "narrow": []}
    for name, residual in (("wide", "auto"), ("narrow", "bf16")):
        trainer = trainer_of(tmp_path / name, seed, residual=residual, **settings)
        trainer.encoder.register_forward_hook(
            lambda module, inputs, out, name=name: calls[name].append((inputs[0], out.dtype))
        )
        trainer.run("test")
    assert {dtype for _, dtype in calls["wide"]} == {torch.float32}
    assert {dtype for _, dtype in calls["narrow"]} == {torch.bfloat16}
    wide, narrow = ([line["loss.classification"] for line in lines(tmp_path / n)] for n in ("wide", "narrow"))
    assert narrow == pytest.approx(wide, rel=0.05)
    assert narrow != wide
    assert {p.dtype for p in trainer.state.parameters.values()} == {torch.float32}
    with BF16.autocast():
        assert trainer.encoder(calls["narrow"][0][0]).dtype == torch.float32


def test_a_killed_run_goes_on_with_the_same_bits(seed, tmp_path):
    def make(directory):
        return trainer_of(tmp_path / directory, seed, runtime=BF16, residual="bf16", checkpoint_every=5)

    whole = make("whole")
    whole.run("test")
    assert_same_bits(weights(whole), weights(killed_and_resumed(lambda: make("killed"))))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_it_needs_precision_bf16(precision):
    config = TrainerConfig(residual="bf16")
    with pytest.raises(BrimfulError, match=rf"trainer\.residual is bf16, .*precision bf16, not {precision}"):
        Runtime.of(World(0, 1, CPU), precision, config)
    assert Runtime.of(World(0, 1, CPU), "bf16", config).precision == "bf16"


@pytest.mark.parametrize(
    ("given", "device", "precision", "resolved"),
    [
        ("auto", "cuda", "bf16", "bf16"),
        ("auto", "cuda", "fp16", "fp32"),
        ("auto", "cuda", "fp32", "fp32"),
        ("auto", "cpu", "bf16", "fp32"),
        ("fp32", "cuda", "bf16", "fp32"),
        ("bf16", "cpu", "bf16", "bf16"),
    ],
)
def test_pretraining_narrows_it_by_default_on_a_gpu_in_bf16(
    tmp_path, monkeypatch, given, device, precision, resolved
):
    """The run's configuration, with which it also resumes, says what was chosen."""
    monkeypatch.setattr("brimful.precision.policy.has_fast_bf16", lambda device: True)
    config = PretrainConfig(
        data="data", out=str(tmp_path / "run"), precision=precision, trainer=TrainerConfig(residual=given)
    )
    found = resolve_pretraining(config, RunFolder(tmp_path, World(0, 1, torch.device(device))))
    assert found.trainer == TrainerConfig(residual=resolved)
