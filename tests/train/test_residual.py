"""Training with a residual stream in bf16."""

import pytest
import torch

from brimful.distributed import World
from brimful.errors import BrimfulError
from brimful.train.config import TrainerConfig
from brimful.train.objective import Runtime
from builders.training import assert_same_bits, killed_and_resumed, lines, trainer_of, weights

CPU = torch.device("cpu")
BF16 = Runtime(World(0, 1, CPU), "bf16")


def test_the_stream_is_bf16_until_training_ends(seed, tmp_path):
    """The loss stays within 5 % of that of a float32 stream."""
    settings = {"steps": 10, "log_every": 1, "batch": 24, "rate": 1e-4, "runtime": BF16}
    trainer_of(tmp_path / "wide", seed, **settings).run("test")
    trainer = trainer_of(tmp_path / "narrow", seed, residual="bf16", **settings)
    seen = []
    trainer.encoder.register_forward_hook(lambda module, given, out: seen.append((given[0], out.dtype)))
    trainer.run("test")
    assert {dtype for _, dtype in seen} == {torch.bfloat16}
    wide, narrow = ([line["loss.classification"] for line in lines(tmp_path / n)] for n in ("wide", "narrow"))
    assert narrow == pytest.approx(wide, rel=0.05)
    assert narrow != wide
    assert {p.dtype for p in trainer.state.parameters.values()} == {torch.float32}
    with BF16.autocast():
        assert trainer.encoder(seen[0][0]).dtype == torch.float32


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
