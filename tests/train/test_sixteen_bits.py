"""Training in 16 bits: a scaled loss in float16, a residual stream in bf16; against float32, after a kill."""

from itertools import pairwise

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.optim.lamb import Lamb
from brimful.optim.muon import Muon
from brimful.runs.folder import RunFolder
from brimful.stages.pretrain import resolve_pretraining
from brimful.stages.pretrain_config import PretrainConfig
from brimful.train.config import TrainerConfig
from brimful.train.guard import Spike
from brimful.train.objective import Runtime
from builders.training import RUNTIME, assert_same_bits, killed_and_resumed, lines, trainer_of, weights

ALONE = RUNTIME.world
FP16, BF16 = Runtime(ALONE, "fp16"), Runtime(ALONE, "bf16")
TEN = {"steps": 10, "log_every": 1, "batch": 24, "rate": 1e-4}


def column(directory, name: str = "loss.classification") -> list[float]:
    return [line[name] for line in lines(directory)]


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_losses_are_those_of_float32(seed, tmp_path, optimizer):
    """To 1e-2: activations have 11 bits, and ten updates add up their differences."""
    settings = TEN | {"optimizer": optimizer, "loss_scale": 64.0}  # at which nothing is clipped
    trainer_of(tmp_path / "fp32", seed, **settings).run("test")
    scaled = trainer_of(tmp_path / "fp16", seed, runtime=FP16, **settings)
    scaled.run("test")
    plain, half = column(tmp_path / "fp32"), column(tmp_path / "fp16")
    assert half == pytest.approx(plain, rel=1e-2)
    assert half != plain
    scales = column(tmp_path / "fp16", "loss_scale")
    assert len(set(scales)) > 1
    assert {after / before for before, after in pairwise(scales)} <= {0.5, 2.0}
    assert all(p.dtype == torch.float32 for p in scaled.state.parameters.values())
    assert "loss_scale" not in lines(tmp_path / "fp32")[0]


def test_the_stream_is_bf16_until_training_ends(seed, tmp_path):
    """The loss stays within 5 % of that of a float32 stream, which is the default outside of pretraining."""
    calls = {"auto": [], "bf16": []}
    for residual, seen in calls.items():
        trainer = trainer_of(tmp_path / residual, seed, residual=residual, runtime=BF16, **TEN)
        trainer.encoder.register_forward_hook(
            lambda module, inputs, out, seen=seen: seen.append((inputs[0], out.dtype))
        )
        trainer.run("test")
    assert {dtype for _, dtype in calls["auto"]} == {torch.float32}
    assert {dtype for _, dtype in calls["bf16"]} == {torch.bfloat16}
    wide, narrow = column(tmp_path / "auto"), column(tmp_path / "bf16")
    assert narrow == pytest.approx(wide, rel=0.05)
    assert narrow != wide
    assert {p.dtype for p in trainer.state.parameters.values()} == {torch.float32}
    with BF16.autocast():
        assert trainer.encoder(calls["bf16"][0][0]).dtype == torch.float32


@pytest.mark.parametrize(
    ("runtime", "settings"),
    [(FP16, {"loss_scale": 1.0, "optimizer": "lamb"}), (BF16, {"residual": "bf16"})],
    ids=["fp16", "bf16"],
)
def test_a_killed_run_goes_on_with_the_same_bits(seed, tmp_path, runtime, settings):
    settings |= {"runtime": runtime, "log_every": 2, "checkpoint_every": 2, "steps": 14, "dropout": 0.1}
    whole = trainer_of(tmp_path / "whole", seed, **settings)
    whole.run("test")
    resumed = killed_and_resumed(lambda: trainer_of(tmp_path / "stopped", seed, **settings))
    assert_same_bits(weights(whole), weights(resumed))
    assert lines(tmp_path / "stopped") == lines(tmp_path / "whole")
    if runtime is FP16:
        assert len(set(column(tmp_path / "whole", "loss_scale"))) > 2


def test_an_update_that_is_skipped_leaves_the_scale_alone(seed, tmp_path):
    trainer = trainer_of(tmp_path, seed, runtime=FP16, steps=6, log_every=1, on_spike="skip")
    judge, before = trainer.guard.judge_before_step, {}

    def all_but_the_third(step, *arguments):
        spike = judge(step, *arguments)
        if step == 2:
            before.update(weights(trainer), scale=torch.tensor(trainer.gradients.scaler.get_scale()))
            return Spike(step, {}, 0.0, 0.0, 0.0, 0.0)
        if step == 3:
            now = trainer.gradients.scaler.get_scale()
            assert_same_bits(before, weights(trainer) | {"scale": torch.tensor(now)})
        return spike

    trainer.guard.judge_before_step = all_but_the_third
    trainer.run("test")
    assert trainer.progress.step == 6
    assert before


def test_the_norm_and_clipping_know_no_scale(seed, tmp_path):
    settings = {"steps": 8, "log_every": 1, "clip": 0.05, "rate": 1e-4, "loss_scale": 64.0}
    for runtime in (RUNTIME, FP16):
        trainer_of(tmp_path / runtime.precision, seed, runtime=runtime, **settings).run("test")
    plain, scaled = (column(tmp_path / name, "gradient_norm") for name in ("fp32", "fp16"))
    assert min(plain) > 0.05
    assert scaled == pytest.approx(plain, rel=0.05)


@pytest.mark.parametrize("kind", [Lamb, Muon])
def test_an_optimizer_divides_by_the_scale_and_skips_where_it_must(seed, kind):
    """GradScaler's contract: grad_scale, and found_inf where the step is to be left out."""
    torch.manual_seed(seed)
    start, gradients = torch.randn(6, 4), torch.randn(3, 6, 4)
    plain, scaled = (torch.nn.Parameter(start.clone()) for _ in range(2))
    one, other = (kind([{"params": [p]}], lr=0.1, weight_decay=0.1) for p in (plain, scaled))
    for index, gradient in enumerate(gradients):
        scale = torch.tensor(2.0 ** (7 + index))
        plain.grad, scaled.grad = gradient.clone(), gradient * scale
        one.step()
        other.grad_scale = scale
        other.step()
        assert torch.equal(plain, scaled)
        other.found_inf = torch.tensor(1.0)
        states = {name: value.clone() for name, value in other.state[scaled].items()}
        scaled.grad = torch.full_like(scaled, torch.inf)
        other.step()
        del other.found_inf
        assert torch.equal(plain, scaled)
        assert_same_bits(states, other.state[scaled])


@pytest.mark.parametrize(
    ("precision", "settings", "message"),
    [
        ("fp32", {"loss_scale": 64.0}, r"trainer\.loss_scale"),
        ("bf16", {"loss_scale": 64.0}, r"trainer\.loss_scale"),
        ("fp16", {"loss_scale": 0.0}, r"trainer\.loss_scale"),
        ("fp16", {"loss_scale": 2.0**41}, r"trainer\.loss_scale"),
        ("fp32", {"residual": "bf16"}, r"trainer\.residual is bf16, .*precision bf16, not fp32"),
        ("fp16", {"residual": "bf16"}, r"trainer\.residual is bf16, .*precision bf16, not fp16"),
    ],
)
def test_what_another_precision_needs_is_refused(precision, settings, message):
    with pytest.raises(BrimfulError, match=message):
        Runtime.of(ALONE, precision, TrainerConfig(**settings))
    assert Runtime.of(ALONE, "bf16", TrainerConfig(residual="bf16")).precision == "bf16"


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
def test_pretraining_narrows_the_stream_by_default_on_a_gpu_in_bf16(
    tmp_path, monkeypatch, given, device, precision, resolved
):
    """The run's configuration, with which it also resumes, says what was chosen."""
    monkeypatch.setattr("brimful.precision.policy.has_fast_bf16", lambda device: True)
    settings = {"precision": precision, "trainer": TrainerConfig(residual=given)}
    config = PretrainConfig(data="data", out=str(tmp_path / "run"), **settings)
    found = resolve_pretraining(config, RunFolder(tmp_path, World(0, 1, torch.device(device))))
    assert found.trainer == TrainerConfig(residual=resolved)
