"""A file of `brimful augment` is a table like any other: `distil` learns from each of its rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.base.storage import read_json
from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead
from builders.thin_encoders import thin_encoder
from builders.verbs import labelled_rows, write_table

RECIPE = Path(__file__).parents[2] / "recipes" / "distil-task.sh"


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
    given = {
        "ENCODER": str(tmp_path / "encoder"),
        "DATA": str(chained),
        "TRAIN": str(write_table(tmp_path / "train.tsv", labelled_rows(24, seed=1))),
        "TEST": str(write_table(tmp_path / "test.tsv", labelled_rows(20, seed=2))),
        "UNLABELLED": str(tmp_path / "texts.txt"),
        "LAYERS": "1",
        "COPIES": "2",
        "LAYER_EPOCHS": "1",
        "OUTPUT_EPOCHS": "1",
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    out = tmp_path / "run"
    line = ["sh", str(RECIPE), str(out)]
    subprocess.run(line, env=os.environ | given, check=True, timeout=900)
    summary = read_json(out / "student" / "summary.json")
    assert {"teacher", "student"} <= summary.keys()
    assert (out / "labels" / "summary.json").is_file()
    assert (out / "report.html").is_file()
    weights = (out / "student" / "model" / "model.safetensors").read_bytes()
    (out / "student" / "summary.json").unlink()  # as after a kill before the last file
    subprocess.run(line, env=os.environ | given, check=True, timeout=900)
    assert (out / "student" / "model" / "model.safetensors").read_bytes() == weights
