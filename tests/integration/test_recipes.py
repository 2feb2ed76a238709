"""Every recipe is a valid configuration, and runs: its own values with smaller sizes, on a toy corpus."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForMaskedLM

from brimful.base.config import build, read_yaml
from brimful.base.storage import read_json
from brimful.cli.main import load_schema
from brimful.commands.pretrain import pretrain
from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead
from brimful.train.metrics import read_metrics
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [("pretrain-two-phase-lamb", "sequences"), ("pretrain-modern-muon", "rows")]
)
def test_a_recipe_runs(corpus_dir: Path, tmp_path: Path, name: str, size: str) -> None:
    """In few updates, of a tiny model and short sequences."""
    values = read_yaml(FOLDER / f"{name}.yaml")
    phases = values.get("phases", [])
    for number, phase in enumerate(phases, 1):
        phase |= {"steps": 3, "max_length": 16 * number, "update_size": 16 // number}
    values |= {"model": "tiny", "recipe": "plain", "validation_tokens": 500, f"{size}_per_update": 16}
    values["packing"] = {"max_length": 32, "capacity": 128}
    values["trainer"] |= {"steps": 3 * max(1, len(phases)), "log_every": 1, "checkpoint_every": 3}
    summary = pretrain(**values, data=str(corpus_dir), out=str(tmp_path))
    told = [(phase["steps"], phase["max_length"]) for phase in summary["phases"]]
    assert told == ([(3, 16), (3, 32)] if phases else [(3, 32)])
    training = [line for line in read_metrics(tmp_path / "metrics.jsonl") if "loss.mlm" in line]
    assert len(training) == summary["steps"]
    assert all(math.isfinite(line["loss.mlm"]) for line in training)
    _, loading = AutoModelForMaskedLM.from_pretrained(tmp_path / "encoder", output_loading_info=True)
    assert not loading["missing_keys"]


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
