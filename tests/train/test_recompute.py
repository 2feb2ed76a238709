"""`trainer.recompute=layers`: the same bits, and less memory."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.common.memory import saved_bytes
from brimful.data.example_stream import ExampleStream
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig
from builders.training import VOCABULARY, assert_same_bits, examples_of, trainer_of, weights


def test_training_gives_the_same_bits(tmp_path: Path, seed: int):
    plain, recomputed = (
        trainer_of(tmp_path / name, seed, dropout=0.1, recompute=name) for name in ("none", "layers")
    )
    assert (plain.encoder.recomputes, recomputed.encoder.recomputes) == (False, True)
    recomputed.run("test")
    plain.run("test")
    assert_same_bits(weights(recomputed), weights(plain))
    assert not recomputed.encoder.recomputes, "a trained encoder is as others are"


def encoder_and_batch(recomputes: bool, architecture: str, dropout: float):
    torch.manual_seed(3)
    size = {"vocabulary_size": VOCABULARY, "hidden_size": 64, "layers": 6, "heads": 2, "max_length": 20}
    size |= {"intermediate_size": 128, "dropout": dropout, "attention_dropout": dropout}
    encoder = Encoder(EncoderConfig(architecture=architecture, **size))
    encoder.recomputes = recomputes
    stream = ExampleStream(examples_of(50, 1), sequences=30, tokens=400, seed=1)
    (batch, *_), _ = stream.take(stream.start())
    return encoder.train(), batch


def gradients(recomputes: bool, architecture: str, *, compiled: bool = False) -> list[Tensor]:
    encoder, batch = encoder_and_batch(recomputes, architecture, 0.2)
    layout = encoder.prepare(batch)
    forward = torch.compile(encoder, fullgraph=True, dynamic=False) if compiled else encoder
    torch.manual_seed(5)
    hidden = forward(batch, layout)
    hidden.square().sum().backward()
    return [hidden.detach(), *(p.grad for p in encoder.parameters() if p.grad is not None)]


@pytest.mark.parametrize("architecture", ["bert", "prenorm", "modern"])
def test_gradients_are_the_same_with_dropout(architecture: str):
    plain, again = (gradients(recomputes, architecture) for recomputes in (False, True))
    assert len(plain) == len(again) > 10
    assert all(map(torch.equal, plain, again))


def test_fewer_bytes_are_saved():
    saved = {}
    for recomputes in (False, True):
        encoder, batch = encoder_and_batch(recomputes, "bert", 0.0)
        saved[recomputes] = saved_bytes(lambda: encoder(batch), encoder.parameters())  # noqa: B023
    assert saved[True] < saved[False] / 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_step_computes_the_same():
    plain, again = (gradients(recomputes, "bert", compiled=True) for recomputes in (False, True))
    for ours, theirs in zip(again, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
