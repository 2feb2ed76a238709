"""Every recipe is a valid configuration, and runs: its own values with smaller sizes, on a toy corpus."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from brimful.base.config import build, read_yaml
from brimful.base.storage import read_json
from brimful.cli.main import load_schema
from brimful.commands.pretrain import pretrain
from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead
from brimful.optim.lamb import Lamb
from brimful.optim.muon import Muon
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer
from builders.thin_encoders import thin_encoder
from builders.verbs import labelled_rows, write_table

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
        for phase in phases:
            phase["steps"] = max(1, round(phase["steps"] / trainer["steps"] * STEPS))
            phase["max_length"] //= 8
            if "update_size" in phase:
                phase["update_size"] = phase["update_size"] * SEQUENCES // values["sequences_per_update"]
        trainer["steps"] = sum(phase["steps"] for phase in phases)
    else:
        trainer["steps"] = STEPS
    values |= {"model": "tiny", "recipe": "plain"}
    values |= {"rows_per_update": 4} if "rows_per_update" in values else {"sequences_per_update": SEQUENCES}
    values["packing"] = {"max_length": packing.get("max_length", 128) // 8}
    values["packing"]["capacity"] = packing.get("capacity", 1024) // 8
    trainer |= {"log_every": 1, "evaluate_every": 6, "checkpoint_every": 6}
    return values | {"validation_tokens": 2000} | changes


def run_toy(
    name: str, data: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], Trainer, list[float], str]:
    """Run a recipe. Return its summary, its trainer, its rates, and the type of its model in transformers."""
    trainers: list[Trainer] = []
    run = Trainer.run

    def noted(self: Trainer, *arguments: Any, **options: Any) -> Any:
        trainers.append(self)
        return run(self, *arguments, **options)

    monkeypatch.setattr(Trainer, "run", noted)
    summary = pretrain(**toy(name, data=str(data), out=str(out)))
    training = [line for line in read_metrics(out / "metrics.jsonl") if "loss.mlm" in line]
    assert len(training) == summary["steps"]
    assert all(math.isfinite(line["loss.mlm"]) for line in training)
    assert math.isfinite(summary["validation"]["loss"])
    model, loading = AutoModelForMaskedLM.from_pretrained(out / "encoder", output_loading_info=True)
    assert not loading["missing_keys"]
    assert isinstance(read_yaml(out / "config.yaml")["rows_per_micro_batch"], int)
    return summary, trainers[0], [line["learning_rate"] for line in training], model.config.model_type


@pytest.mark.slow
def test_two_phases_with_lamb(corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates of such phases: tests/optim/test_schedule.py."""
    summary, trainer, rates, kind = run_toy("pretrain-two-phase-lamb", corpus_dir, tmp_path, monkeypatch)
    assert kind == "bert"
    (lamb,) = trainer.state.optimizers
    assert isinstance(lamb, Lamb)
    assert {(group["betas"], group["eps"]) for group in lamb.param_groups} == {((0.9, 0.999), 1e-6)}
    assert summary["phases"] == [
        {"steps": 10, "max_length": 16, "sequences_per_update": 32},
        {"steps": 2, "max_length": 64, "sequences_per_update": 16},
    ]
    assert rates[0] == pytest.approx(6e-3 / 2.843)
    assert rates[2:] == pytest.approx(
        [6e-3 * (1 - k / 10) ** 0.5 for k in range(2, 10)] + [4e-3, 4e-3 * 0.5**0.5]
    )
    assert trainer.encoder.position is not None
    assert len(trainer.encoder.position.weight) == 64  # those beyond 16 are trained: test_phases


@pytest.mark.slow
def test_modern_with_muon(corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, trainer, rates, kind = run_toy("pretrain-modern-muon", corpus_dir, tmp_path, monkeypatch)
    assert kind == "modernbert"
    adam, muon = trainer.state.optimizers
    assert isinstance(adam, torch.optim.AdamW)
    assert isinstance(muon, Muon)
    assert rates[1:9] == pytest.approx([8e-4] * 8)
    assert rates[-2:] == pytest.approx([8e-4 * (1 - (1 - left / 2.352) ** 0.5) for left in (2, 1)], rel=0.1)
    for group in muon.param_groups:
        assert group["lr"] / 0.02 == pytest.approx(rates[-1] / 8e-4)


@pytest.mark.slow
def test_the_recipe_of_the_article_runs_each_step_once(chained: Path, tmp_path: Path) -> None:
    """recipes/distil-task.sh, and the same line once more, which changes nothing."""
    encoder = thin_encoder(chained, dropout=0.0)
    save_model(tmp_path / "encoder", encoder, MaskedLMHead(encoder))
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text, _ in labelled_rows(20, seed=3)))
    program = tmp_path / "bin" / "brimful"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m brimful "$@"\n')
    program.chmod(0o755)
    given = {"LAYERS": "1", "COPIES": "2", "LAYER_EPOCHS": "1", "OUTPUT_EPOCHS": "1"} | {
        "ENCODER": str(tmp_path / "encoder"),
        "DATA": str(chained),
        "TRAIN": write_table(tmp_path / "train.tsv", labelled_rows(24, seed=1)),
        "TEST": write_table(tmp_path / "test.tsv", labelled_rows(20, seed=2)),
        "UNLABELLED": str(tmp_path / "texts.txt"),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    out = tmp_path / "run"
    line = ["sh", str(FOLDER / "distil-task.sh"), str(out)]
    subprocess.run(line, env=os.environ | given, check=True, timeout=900)
    assert {"teacher", "student"} <= read_json(out / "student" / "summary.json").keys()
    assert (out / "labels" / "summary.json").is_file()
    assert (out / "report.html").is_file()
    weights = (out / "student" / "model" / "model.safetensors").read_bytes()
    (out / "student" / "summary.json").unlink()  # as after a kill before the last file
    subprocess.run(line, env=os.environ | given, check=True, timeout=900)
    assert (out / "student" / "model" / "model.safetensors").read_bytes() == weights
