"""Every recipe is a valid configuration, and runs: its own values with smaller sizes, on a toy corpus."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from brimful.base.config import build, read_yaml
from brimful.cli.main import load_schema
from brimful.commands.pretrain import pretrain
from brimful.optim.lamb import Lamb
from brimful.optim.muon import Muon
from brimful.stages import pretrain as work
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer

FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipe_is_a_valid_configuration(path: Path) -> None:
    verb = path.name.split("-")[0]
    config = build(load_schema(verb), read_yaml(path))
    assert f"brimful {verb} --config recipes/{path.name}" in path.read_text()
    assert config != build(load_schema(verb), {})


STEPS, SEQUENCES = 12, 32


def toy(name: str, **changes: Any) -> dict[str, Any]:
    """A recipe's values: an eighth of its lengths, about 12 updates of at most 32 sequences, a tiny model.

    Phases keep their shares of the updates, and of the sequences of one.
    """
    values = read_yaml(FOLDER / f"{name}.yaml")
    trainer, packing = values["trainer"], values.get("packing", {})
    if phases := values.get("phases"):
        shares = [phase["steps"] / trainer["steps"] for phase in phases]
        for phase, share in zip(phases, shares, strict=True):
            phase["steps"] = max(1, round(share * STEPS))
            if "max_length" in phase:
                phase["max_length"] //= 8
            if "update_size" in phase:
                phase["update_size"] = phase["update_size"] * SEQUENCES // values["sequences_per_update"]
        trainer["steps"] = sum(phase["steps"] for phase in phases)
    elif "hours" not in trainer:
        trainer["steps"] = STEPS
    if "hours" in trainer:
        trainer["hours"] /= 60_000  # seconds
    if "model" in values:
        values |= {"model": "tiny", "recipe": "plain"}
    if "sequences_per_update" in values:
        values["sequences_per_update"] = SEQUENCES
    else:
        values["rows_per_update"] = 4
    values["packing"] = {
        "max_length": packing.get("max_length", 128) // 8,
        "capacity": packing.get("capacity", 1024) // 8,
    }
    trainer |= {"log_every": 1, "evaluate_every": 6, "checkpoint_every": 6}
    return values | {"validation_tokens": 2000} | changes


class Run:
    """What a recipe made: its trainer, its summary, its rates, and the size of its encoder."""

    def __init__(self, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[Trainer] = []

        class Kept(Trainer):
            def __init__(self, *arguments, **keywords) -> None:
                super().__init__(*arguments, **keywords)
                made.append(self)

        monkeypatch.setattr(work, "Trainer", Kept)
        self.values = values
        self.summary = pretrain(**values)
        (self.trainer,) = made
        self.optimizers = self.trainer.state.optimizers
        out = Path(values["out"])
        lines = read_metrics(out / "metrics.jsonl")
        training = [line for line in lines if "loss.mlm" in line]
        assert len(training) == self.summary["steps"]
        assert all(math.isfinite(line["loss.mlm"]) for line in training)
        assert math.isfinite(self.summary["validation"]["loss"])
        self.lines = lines
        self.rates = [line["learning_rate"] for line in training]
        model, loading = AutoModelForMaskedLM.from_pretrained(out / "encoder", output_loading_info=True)
        assert not loading["missing_keys"]
        self.kind = model.config.model_type
        self.saved = read_yaml(out / "config.yaml")
        assert isinstance(self.saved["rows_per_micro_batch"], int)


@pytest.mark.slow
def test_two_phases_with_lamb(corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = toy("pretrain-two-phase-lamb", data=str(corpus_dir), out=str(tmp_path / "run"))
    run = Run(values, monkeypatch)
    (lamb,) = run.optimizers
    assert isinstance(lamb, Lamb)
    assert {(group["betas"], group["eps"]) for group in lamb.param_groups} == {((0.9, 0.999), 1e-6)}
    assert run.kind == "bert"
    assert run.summary["phases"] == [
        {"steps": 10, "max_length": 16, "sequences_per_update": 32},
        {"steps": 2, "max_length": 64, "sequences_per_update": 16},
    ]
    first = [min((k + 1) / 2.843, 1.0) if k + 1 < 2.843 else (1 - k / 10) ** 0.5 for k in range(10)]
    second = [(1 - k / 2) ** 0.5 for k in range(2)]
    expected = [6e-3 * rate for rate in first] + [4e-3 * rate for rate in second]
    assert run.rates[2:] == pytest.approx(expected[2:])
    assert run.rates[0] == pytest.approx(6e-3 / 2.843)
    assert run.trainer.encoder.position is not None
    assert len(run.trainer.encoder.position.weight) == 64  # those beyond 16 are trained: test_phases


@pytest.mark.slow
def test_modern_with_muon(corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = toy("pretrain-modern-muon", data=str(corpus_dir), out=str(tmp_path / "run"))
    run = Run(values, monkeypatch)
    adam, muon = run.optimizers
    assert isinstance(adam, torch.optim.AdamW)
    assert isinstance(muon, Muon)
    assert run.kind == "modernbert"
    peak, decaying = run.rates[1], run.rates[-2:]
    assert peak == pytest.approx(8e-4)
    assert run.rates[1:9] == [peak] * 8
    assert decaying == pytest.approx([8e-4 * (1 - (1 - left / 2.352) ** 0.5) for left in (2, 1)], rel=0.1)
    for group in muon.param_groups:
        assert group["lr"] / 0.02 == pytest.approx(run.rates[-1] / 8e-4)
