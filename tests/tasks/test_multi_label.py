"""Multi-label classification: files, targets, the loss, metrics by scikit-learn."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from brimful.base.errors import BrimfulError
from brimful.data.example_batches import make_batch
from brimful.tables.table import Table
from brimful.tasks.multi_label import MultiLabel, unpack_labels
from builders.tables import bits_of, labelled

TASK = MultiLabel(["a", "b", "c"])


def test_lists_of_labels_are_read(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\nx\ta| c\ny\t\n")
    table = MultiLabel.read(path, labelled=True)
    assert table.labels == [["a", "c"], []]
    assert MultiLabel.from_table(table).labels == ["a", "c"]
    assert unpack_labels(TASK.targets(table)["labels"], 3).tolist() == [[True, False, True], [False] * 3]
    with pytest.raises(BrimfulError, match="no text has a label"):
        MultiLabel.from_table(table.take([1]))


def test_metrics_are_those_of_scikit_learn(seed: int):
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    wanted = random.integers(0, 2, (30, 3)).astype(np.float32)
    answers = random.normal(size=(30, 3)).astype(np.float32)
    data = labelled("labels", bits_of(wanted))
    found = TASK.measure(answers, data)
    for kind in ("micro", "macro"):
        expected = metrics.f1_score(wanted, answers > 0, average=kind, zero_division=0)
        assert found[f"{kind}_f1"] == pytest.approx(expected)
    assert found["exact"] == pytest.approx(metrics.accuracy_score(wanted, answers > 0))


@pytest.mark.parametrize("labels", [7, 8, 1000])
def test_targets_are_held_as_bits(seed: int, labels: int):
    random = np.random.default_rng(seed)
    wanted = random.random((500, labels)) < 0.01
    names = [str(label) for label in range(labels)]
    given = [[names[label] for label in np.flatnonzero(row)] for row in wanted]
    table = Table(Path("a.tsv"), ["a"] * 500, None, given)
    bits = MultiLabel(names).targets(table)["labels"]
    assert bits.nbytes <= 500 * (labels / 8 + 1)
    assert (bits == bits_of(wanted)).all()
    assert (unpack_labels(bits, labels) == wanted).all()
    outputs = torch.from_numpy(random.normal(size=(6, labels)))
    batch = make_batch(labelled("labels", bits).examples, np.arange(4), 6, 6)
    expected = F.binary_cross_entropy_with_logits(outputs[:4], torch.from_numpy(wanted[:4]).double())
    torch.testing.assert_close(MultiLabel(names).losses(outputs, batch)["multi-label"] / 4, expected)
