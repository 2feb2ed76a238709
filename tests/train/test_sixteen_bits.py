"""Training in 16 bits: a scaled loss in float16, a residual stream in bf16, weights; against float32."""

from itertools import pairwise

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.runs.folder import RunFolder
from brimful.stages.pretrain import resolve_pretraining
from brimful.stages.pretrain_config import PretrainConfig
from brimful.train.config import TrainerConfig
from brimful.train.gradients import Gradients
from brimful.train.guard import Spike
from brimful.train.objective import Runtime
from builders.training import BF16, FP16, RUNTIME, assert_same_bits, lines, trainer_of, weights

ALONE = RUNTIME.world
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
    plain_norms, norms = (column(tmp_path / name, "gradient_norm") for name in ("fp32", "fp16"))
    assert norms == pytest.approx(plain_norms, rel=0.05)  # without the scale
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


@pytest.mark.parametrize(
    ("precision", "settings", "message"),
    [
        ("bf16", {"loss_scale": 64.0}, r"trainer\.loss_scale"),
        ("fp16", {"loss_scale": 2.0**41}, r"trainer\.loss_scale"),
        ("bf16", {"weights": "fp16"}, r"trainer\.weights is fp16, which needs precision fp16, not bf16"),
        ("fp32", {"rounding": "kahan"}, "rounding is kahan, which float32 weights don't need"),
        ("fp16", {"residual": "bf16"}, r"trainer\.residual is bf16, .*precision bf16, not fp16"),
    ],
)
def test_what_another_precision_needs_is_refused(precision, settings, message):
    with pytest.raises(BrimfulError, match=message):
        Runtime.of(ALONE, precision, TrainerConfig(**settings))
    assert Runtime.of(ALONE, "bf16", TrainerConfig(residual="bf16")).precision == "bf16"
    assert Runtime.of(ALONE, "auto", TrainerConfig(weights="fp16")).precision == "fp16"


# Weights in 16 bits


@pytest.mark.parametrize("runtime", [BF16, FP16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_weights_and_gradients_have_16_bits_and_moments_32(seed, tmp_path, runtime, optimizer):
    settings = {"weights": runtime.precision, "optimizer": optimizer, "steps": 6, "log_every": 1, "batch": 24}
    trainer = trainer_of(tmp_path, seed, runtime=runtime, **settings)
    state, seen = trainer.state, set()
    step = trainer.gradients.step

    def look(optimizers):
        seen.update(p.grad.dtype for p in state.parameters.values() if p.grad is not None)
        step(optimizers)

    trainer.gradients.step = look
    saved = {p.dtype for p in state.parameters.values()}
    trainer.run("test")
    assert saved == seen == {runtime.dtype}
    for each in state.optimizers:
        for kept in each.state.values():
            assert {v.dtype for name, v in kept.items() if name != "roundings"} == {torch.float32}
            assert int(kept["roundings"]) == 6
    for parameter in state.parameters.values():  # wide again, and what 16 bits had, which is all there was
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, parameter.to(runtime.dtype).float())
    assert state.trained.encoder.embedding.weight.dtype == torch.float32


def test_many_micro_batches_are_not_lost_beside_their_sum():
    """In bfloat16 the sum of 2048 shares of 1 / 2048 ends at 2^-3, where half the spacing is a share."""
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    for mean, expected in ((True, 1.0), (False, 0.125)):
        gradients = Gradients(torch.nn.ParameterList([parameter]), ALONE, mean=mean)
        gradients.begin(range(2048), 2048)
        for _ in range(2048):
            gradients.backward(parameter.float().sum() / 2048)
        gradients.gather()
        assert parameter.grad.tolist() == [expected] * 3
        gradients.clear()


@pytest.mark.parametrize(
    ("device", "given", "resolved"),
    [
        ("cpu", {}, ("fp32", None, "fp32")),
        ("cuda", {}, ("bf16", "auto", "bf16")),
        ("cuda", {"precision": "fp16"}, ("fp16", "auto", "fp32")),
        ("cuda", {"trainer": TrainerConfig(residual="fp32")}, ("bf16", "auto", "fp32")),
        ("cpu", {"precision": "bf16"}, ("bf16", None, "fp32")),
        ("cpu", {"precision": "bf16", "trainer": TrainerConfig(residual="bf16")}, ("bf16", None, "bf16")),
        ("cpu", {"rows_per_micro_batch": "auto"}, ("fp32", "auto", "fp32")),
        ("cuda", {"rows_per_micro_batch": 2}, ("bf16", 2, "bf16")),
    ],
)
def test_a_pretraining_says_what_it_has_chosen_by_its_device(tmp_path, monkeypatch, device, given, resolved):
    """The run's configuration, with which it also resumes. The stream is narrow on a GPU in bf16 alone."""
    monkeypatch.setattr("brimful.precision.policy.has_fast_bf16", lambda device: device.type == "cuda")
    folder = RunFolder(tmp_path, World(0, 1, torch.device(device)))
    (tmp_path / "MANIFEST.json").touch()  # of a prepared folder
    config = PretrainConfig(data=str(tmp_path), out=str(tmp_path / "run"), **given)
    found = resolve_pretraining(config, folder)
    assert (found.precision, found.rows_per_micro_batch, found.trainer.residual) == resolved
