"""Short trainings of `brimful distil`, and students that must be equal."""

import json
from pathlib import Path

import torch

from brimful import Encoder
from brimful.hf.folders import load_model

ROWS = [("good fine nice", "yes"), ("bad awful poor", "no"), ("nice and good", "yes"), ("poor and bad", "no")]
EPOCH = {"epochs": 1.0, "learning_rate": 1e-3}
CALM = {"layers": {"epochs": 0.0, "learning_rate": 0.0}, "logits": {"epochs": 2.0, "learning_rate": 1e-2}}
CALM |= {"batch": 2}


def weights(run: Path) -> dict[str, torch.Tensor]:
    encoder, head, _ = load_model(run / "model")
    return dict(torch.nn.ModuleDict({"encoder": encoder, "head": head}).named_parameters())


def assert_same(first: Path, second: Path, tolerance: float) -> None:
    """The numbers of each tensor differ by `tolerance` in the mean of squares.

    A single one says little: where its gradient is almost 0, Adam divides rounding by rounding.
    """
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    for name in ours:
        difference = (ours[name] - theirs[name]).detach()
        assert float(difference.square().mean().sqrt()) <= tolerance, name


def save_with_other_tokens(encoder_folder: Path, folder: Path) -> None:
    """The encoder, with a tokenizer that divides texts in another way."""
    encoder = Encoder.load(encoder_folder)
    state = json.loads(encoder.tokenizer.to_str())
    state["pre_tokenizer"] = None
    encoder.tokenizer = type(encoder.tokenizer).from_str(json.dumps(state))
    encoder.save(folder)
