"""Regression: the values of a table, the metrics against scipy's definitions, and every verb."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from brimful import BrimfulError, distil, finetune, predict
from brimful.base.storage import read_json
from brimful.data.example_batches import make_batch
from brimful.data.examples import Examples
from brimful.hf.folders import load_model, save_model
from brimful.model.heads import SequenceHead
from brimful.objectives.imitation import TEACHER, LogitDistillation
from brimful.objectives.supervised import Supervised
from brimful.tables.table import Table
from brimful.tasks.regression import Regression
from brimful.tasks.task_model import TaskModel, fold, load_task_model
from builders.tables import labelled
from builders.task_models import new_encoder
from builders.thin_encoders import thin_encoder

ALL = np.arange(8)
EPOCHS = {"epochs": 2.0, "learning_rate": 1e-3}


def table_of(labels: list[str]) -> Table:
    return Table(Path("train.tsv"), ["a"] * len(labels), None, labels)


def test_metrics(seed: int) -> None:
    random = np.random.default_rng(seed)
    outputs, labels = np.split(random.normal(size=(50, 2)).astype(np.float32), 2, axis=1)
    labels = labels[:, 0]
    data = labelled("label", labels)
    found = Regression().measure(outputs, data)
    assert found["n"] == 50
    assert found["pearson"] == pytest.approx(np.corrcoef(outputs[:, 0], labels)[0, 1])
    assert found["spearman"] == pytest.approx(stats.spearmanr(outputs[:, 0], labels).statistic)
    assert found["mse"] == pytest.approx(((outputs[:, 0] - labels) ** 2).mean())
    constant = Regression().measure(np.ones_like(outputs), data)
    assert (constant["pearson"], constant["spearman"]) == (0, 0)


@pytest.mark.parametrize(("unit", "zero"), [(1e-6, 0.0), (1e-3, 5.0), (10.0, 2e4)])
def test_unit_and_offset_of_the_labels_change_no_update(unit: float, zero: float) -> None:
    """Each update, and what is predicted and saved after it, in that unit."""
    random = np.random.default_rng(3)
    labels, theirs = random.normal(size=(2, 8))
    tokens = [random.integers(5, 90, length).astype(np.int32) for length in range(3, 11)]
    examples = Examples(tokens, [np.zeros(len(each), np.uint8) for each in tokens], {}, 32, 0)

    def train(unit: float, zero: float) -> tuple[list[float], np.ndarray, TaskModel]:
        task = Regression.from_table(table_of([str(label * unit + zero) for label in labels]))
        targets = {"label": labels * unit + zero, TEACHER: theirs[:, None] * unit + zero}
        targets = {name: values.astype(np.float32) for name, values in targets.items()}
        batch = make_batch(replace(examples, targets=targets), ALL)
        encoder = new_encoder()
        torch.manual_seed(1)
        head = task.new_head(encoder)
        optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
        terms = {"logits": LogitDistillation(head, task.imitation(1.0)), task.name: Supervised(task, head)}
        losses = []
        for _ in range(8):
            optimizer.zero_grad()
            loss = sum(each.loss(encoder, batch)[n] / each.normalizers(batch)[n] for n, each in terms.items())
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses, head(encoder(batch), batch)[:8].detach().numpy(), TaskModel(task, encoder, head, 32)

    (losses, values, _), (others, found, model) = train(1.0, 0.0), train(unit, zero)
    precision = 1e-4 + 1e-6 * abs(zero) / unit
    assert others == pytest.approx(losses, rel=100 * precision)
    assert losses[-1] < losses[0]
    np.testing.assert_allclose((found - zero) / unit, values, atol=20 * precision)
    fold(model.head)
    batch = make_batch(examples, ALL)
    kept = model.head(model.encoder(batch), batch)[:8].detach().numpy()
    np.testing.assert_allclose(kept, found, rtol=1e-5, atol=1e-4 * unit)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # a value far from 0 keeps its digits
        rounded = model.head(model.encoder(batch), batch)[:8].detach().float().numpy()
    np.testing.assert_allclose((rounded - zero) / unit, (found - zero) / unit, atol=0.1)


@pytest.fixture(scope="module")
def finetuned(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose tables say how often `good` stands in a text, in units of 10 from 50."""
    folder = tmp_path_factory.mktemp("regression")
    save_model(folder / "encoder", thin_encoder(corpus_dir, max_length=32, dropout=0.0))
    random = np.random.default_rng(1)
    for name, count in (("train", 200), ("test", 40)):
        rows = ["text\tlabel"]
        for good in random.integers(0, 7, count):
            words = random.permutation(["good"] * good + ["bad"] * (8 - good))
            rows.append(f"{' '.join(words)}\t{50 + 10 * good}")
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    options = {name: str(folder / f"{name}.tsv") for name in ("train", "test")}
    options |= {"encoder": str(folder / "encoder"), "out": str(folder / "run")}
    options |= {"learning_rates": [1e-4, 3e-3], "epochs": 6.0, "dropout": 0.0, "precision": "fp32"}
    finetune(task="regression", **options)
    return folder / "run"


def test_a_value_is_learned_and_predicted(finetuned: Path, tmp_path: Path) -> None:
    summary = read_json(finetuned / "summary.json")
    assert summary["task"] == "regression"
    assert "labels" not in summary
    assert summary["test"]["pearson"] > 0.9
    best = max(summary["trials"], key=lambda trial: trial["dev_pearson"])
    assert summary["learning_rate"] == best["learning_rate"]
    lines = [json.loads(line) for line in (finetuned / "predictions.jsonl").read_text().splitlines()]
    errors = [(line["gold"] - line["prediction"]) ** 2 for line in lines]
    assert summary["test"]["mse"] == pytest.approx(np.mean(errors))
    assert set(lines[0]) == {"row", "gold", "prediction"}
    predict(model=str(finetuned), input=str(finetuned.parent / "test.tsv"), output=str(tmp_path / "out.csv"))
    header, *rows = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "row,prediction"
    values = [float(row.split(",")[1]) for row in rows]
    assert values == pytest.approx([line["prediction"] for line in lines], rel=1e-4)


def test_values_have_a_ladder_too(finetuned: Path) -> None:
    pytest.importorskip("sklearn")
    rungs = read_json(finetuned / "summary.json")["baselines"]
    assert rungs["tfidf"]["pearson"] > max(0.6, rungs["majority"]["pearson"])


def test_a_student_imitates_the_values(finetuned: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    values = {"student_layers": 1, "layers": EPOCHS, "logits": EPOCHS, "precision": "fp32"}
    with pytest.raises(BrimfulError, match="temperature is 2"):
        distil(teacher=str(finetuned), out=str(run), temperature=2.0, **values)
    summary = distil(teacher=str(finetuned), out=str(run), **values)
    assert summary["task"] == "regression"
    assert summary["teacher"]["pearson"] == read_json(finetuned / "summary.json")["test"]["pearson"]
    assert set(summary["student"]) == {"pearson", "spearman", "mse", "n", "parameters"}
    assert load_model(run / "model")[1].classes == 1


def test_a_model_of_another_problem_is_refused(finetuned: Path, tmp_path: Path) -> None:
    encoder, *_ = load_model(finetuned / "model")
    save_model(tmp_path / "multi", encoder, SequenceHead(encoder, 3), problem_type="ordinal")
    with pytest.raises(BrimfulError, match="no task has the problem_type 'ordinal'"):
        load_task_model(tmp_path / "multi")
    save_model(tmp_path / "many", encoder, SequenceHead(encoder, 3), problem_type="regression")
    with pytest.raises(BrimfulError, match="3 outputs"):
        load_task_model(tmp_path / "many")
