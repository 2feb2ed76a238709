"""Training with weights in 16 bits: what is kept in which format, after a kill, and on two ranks."""

import pytest
import torch

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.train.config import TrainerConfig
from brimful.train.gradients import Gradients
from brimful.train.objective import Runtime
from builders.training import assert_same_bits, killed_and_resumed, trainer_of, weights

CPU = torch.device("cpu")


def narrow_trainer(directory, seed, format="bf16", **settings):
    return trainer_of(directory, seed, runtime=Runtime(World(0, 1, CPU), format), weights=format, **settings)


@pytest.mark.parametrize("format", ["bf16", "fp16"])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_weights_and_gradients_have_16_bits_and_moments_32(seed, tmp_path, format, optimizer):
    trainer = narrow_trainer(tmp_path, seed, format, optimizer=optimizer, steps=6, log_every=1, batch=24)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[format]
    state, seen = trainer.state, set()
    step = trainer.gradients.step

    def look(optimizers):
        seen.update(p.grad.dtype for p in state.parameters.values() if p.grad is not None)
        step(optimizers)

    trainer.gradients.step = look
    saved = {p.dtype for p in state.parameters.values()}
    trainer.run("test")
    assert saved == seen == {dtype}
    for each in state.optimizers:
        for kept in each.state.values():
            assert {v.dtype for name, v in kept.items() if name != "roundings"} == {torch.float32}
            assert int(kept["roundings"]) == 6
    for parameter in state.parameters.values():  # wide again, and what 16 bits had, which is all there was
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, parameter.to(dtype).float())
    assert state.trained.encoder.embedding.weight.dtype == torch.float32


@pytest.mark.parametrize("rounding", ["stochastic", "kahan", "master", "nearest"])
@pytest.mark.parametrize("format", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(seed, tmp_path, rounding, format):
    settings = {"rounding": rounding, "checkpoint_every": 3, "steps": 9, "dropout": 0.1}
    whole = narrow_trainer(tmp_path / "whole", seed, format, **settings)
    whole.run("test")
    resumed = killed_and_resumed(lambda: narrow_trainer(tmp_path / "stopped", seed, format, **settings))
    assert_same_bits(weights(whole), weights(resumed))


def test_many_micro_batches_are_not_lost_beside_their_sum():
    """In bfloat16 the sum of 2048 shares of 1 / 2048 ends at 2^-3, where half the spacing is a share."""
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    for mean, expected in ((True, 1.0), (False, 0.125)):
        gradients = Gradients(torch.nn.ParameterList([parameter]), World(0, 1, CPU), mean=mean)
        gradients.begin(range(2048), 2048)
        for _ in range(2048):
            gradients.backward(parameter.float().sum() / 2048)
        gradients.gather()
        assert parameter.grad.tolist() == [expected] * 3
        gradients.clear()


def test_the_precision_follows_the_weights():
    def resolve(precision: str) -> str:
        return Runtime.of(World(0, 1, CPU), precision, TrainerConfig(weights="fp16")).precision

    assert resolve("auto") == resolve("fp16") == "fp16"
    for precision in ("fp32", "bf16"):
        with pytest.raises(
            BrimfulError, match=f"weights is fp16, which needs precision fp16, not {precision}"
        ):
            resolve(precision)
    with pytest.raises(BrimfulError, match="rounding is kahan, which float32 weights don't need"):
        TrainerConfig(steps=1, rounding="kahan")
