"""The accuracy of training: that of the scores, however they are computed, and at no step a wait."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from brimful.base.types import IGNORED
from brimful.kernels import linear_cross_entropy as module
from brimful.model.cross_entropy import count_hits
from brimful.model.linear_cross_entropy import linear_cross_entropy
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer
from builders.scores import never_small
from builders.training import trainer_of
from builders.uneven import uneven_trainer


@pytest.fixture
def tiles(monkeypatch):
    never_small(monkeypatch)
    monkeypatch.setattr(module, "MIN_ROWS", 16)
    for name in ("GROUP_BYTES", "TILE_BYTES"):
        monkeypatch.setattr(module, name, 1)


@pytest.mark.usefixtures("tiles")
def test_a_label_that_shares_the_highest_score_counts():
    """Scores 0, 1 ... 32, but for three that are the highest, in several tiles."""
    weight = torch.arange(33.0)[:, None]
    weight[32] = weight[31] = weight[3] = 40
    labels = torch.tensor([3, 31, 32, 30, IGNORED])
    found = linear_cross_entropy(torch.ones(5, 1), weight, None, labels)[1]
    assert int(found) == 3
    assert int(count_hits(weight.T.expand(5, -1), labels)) == 3


def test_masked_lm_in_training(seed, tiles, tmp_path):
    """Lines over three updates of several micro-batches, against the logits of the weights before each."""
    trainer = uneven_trainer(tmp_path, seed, steps=6, log_every=3)
    encoder, head = trainer.encoder, trainer.objective.head
    step, expected = trainer.train_step, []

    def count_and_step(update):
        right = predictions = 0
        for batch in update.batches:
            with torch.no_grad():
                classes = head(encoder(batch), batch.mlm_positions).argmax(1)
            right += int((classes == batch.mlm_labels).sum())
            predictions += int((batch.mlm_labels != IGNORED).sum())
        expected.append(right / predictions)
        return step(update)

    trainer.train_step = count_and_step
    trainer.run("test")
    found = [line["accuracy"] for line in read_metrics(tmp_path / "metrics.jsonl") if "accuracy" in line]
    assert found == pytest.approx([sum(expected[:3]) / 3, sum(expected[3:]) / 3], abs=1e-6)


class Reads(TorchDispatchMode):
    """Remembers after how many updates a value was read, which waits for the device."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.trainer = trainer
        self.steps: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            self.steps.add(self.trainer.progress.step)
        return function(*args, **(kwargs or {}))


# On a CPU, where nobody waits, LAMB reads norms.
@pytest.mark.parametrize(("policy", "optimizer"), [("stop", "adamw"), ("stop", "muon"), ("skip", "adamw")])
def test_only_lines_and_checkpoints_wait_for_the_device(seed, tmp_path, policy, optimizer, monkeypatch):
    settings = {"spike": 30.0, "on_spike": policy, "optimizer": optimizer}
    trainer = trainer_of(tmp_path, seed, steps=11, log_every=4, checkpoint_every=6, **settings)
    assert trainer.objective.watched == ("accuracy",)
    reads = Reads(trainer)
    tolist = torch.Tensor.tolist

    def read_all(tensor):
        if tensor.is_floating_point():  # the loader reads integers, on the host
            reads.steps.add(trainer.progress.step)
        return tolist(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", read_all)  # which no dispatch mode sees
    with reads:
        trainer.run("test")
    assert reads.steps == (set(range(12)) if policy == "skip" else {4, 6, 8, 11})
