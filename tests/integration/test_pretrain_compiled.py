"""`brimful pretrain --trainer.compile True` in real processes: eager's losses; the same bits after a kill."""

from pathlib import Path

import pytest
import torch

from brimful.train.compilation import find_missing_compiler
from builders.verbs import SMALL, WEIGHTS, command, kill_when, run, sha256, start, steps_and_losses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_missing_compiler(torch.device("cpu")) is not None, reason="no C++ compiler"),
]


def test_a_compiled_run_resumes_and_has_the_losses_of_an_eager_one(chained, pretrained, tmp_path: Path):
    """1e-4: sums in another order, through 20 updates."""
    options = ("--data", chained, "--seed", 3, *SMALL, "--trainer.compile", "True")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run("pretrain", "--out", whole, *options)
    process = start(command("pretrain", "--out", killed, *options))
    kill_when(process, killed / "checkpoints" / "step-10")
    run("pretrain", "--resume", killed)
    assert sha256(killed / WEIGHTS) == sha256(whole / WEIGHTS)
    ours, theirs = steps_and_losses(whole), steps_and_losses(pretrained)
    assert steps_and_losses(killed) == ours
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for line, expected in zip(ours, theirs, strict=True):
        for name in ("loss.mlm", "validation.loss"):
            if name in expected:
                assert line[name] == pytest.approx(expected[name], rel=1e-4)
