"""Every recipe is a valid configuration, and runs: its own values with smaller sizes, on a toy corpus."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForMaskedLM

from brimful import prepare, pretrain
from brimful.base.config import build, read_yaml
from brimful.base.storage import read_json
from brimful.cli.main import load_schema
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


def run_recipe(name: str, out: Path, given: dict[str, str]) -> None:
    """Run a recipe of the shell; its `brimful` is this environment's."""
    program = out.parent / "bin" / "brimful"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m brimful "$@"\n')
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    subprocess.run(
        ["sh", str(FOLDER / name), str(out)], env=os.environ | given | path, check=True, timeout=900
    )


@pytest.mark.slow
def test_the_recipe_of_the_article_runs_each_step_once(chained: Path, tmp_path: Path) -> None:
    """recipes/distil-task.sh, and the same line once more, which changes nothing."""
    encoder = thin_encoder(chained, dropout=0.0)
    save_model(tmp_path / "encoder", encoder, MaskedLMHead(encoder))
    (tmp_path / "texts.txt").write_text("".join(f"{row['text']}\n" for row in labelled_rows(20, seed=3)))
    given = {"LAYERS": "1", "COPIES": "2", "LAYER_EPOCHS": "1", "OUTPUT_EPOCHS": "1"} | {
        "ENCODER": str(tmp_path / "encoder"),
        "DATA": str(chained),
        "TRAIN": write_table(tmp_path / "train.tsv", labelled_rows(24, seed=1)),
        "TEST": write_table(tmp_path / "test.tsv", labelled_rows(20, seed=2)),
        "UNLABELLED": str(tmp_path / "texts.txt"),
    }
    out = tmp_path / "run"
    run_recipe("distil-task.sh", out, given)
    assert {"teacher", "student"} <= read_json(out / "student" / "summary.json").keys()
    assert (out / "labels" / "summary.json").is_file()
    assert (out / "report.html").is_file()
    weights = (out / "student" / "model" / "model.safetensors").read_bytes()
    (out / "student" / "summary.json").unlink()  # as after a kill before the last file
    run_recipe("distil-task.sh", out, given)
    assert (out / "student" / "model" / "model.safetensors").read_bytes() == weights


@pytest.mark.slow
def test_a_domain_is_learnt_from_crawled_pages_to_scores(tmp_path: Path) -> None:
    """recipes/chinese-domain.sh at toy size: scripts leave the pages, both models have scores."""
    pages, general, model = tmp_path / "crawl", tmp_path / "general", tmp_path / "model"
    sentences = [f"宁德时代第{number}季度营业收入增长{number}个百分点。" for number in range(60)]
    for folder, texts in ((pages, sentences), (general, sentences[::-1])):
        folder.mkdir()
        for number in range(0, len(texts), 6):
            body = "".join(f"<p>{text}</p>" for text in texts[number : number + 6])
            page = f"<html><head><script>var a = 1</script></head><body>{body}</body></html>"
            (folder / f"{number}.html").write_text(page, encoding="utf-8")
    (tmp_path / "terms.txt").write_text("宁德时代\n", encoding="utf-8")
    prepare(paths=[str(general)], out=str(tmp_path / "data"), tokenizer="train:100", validation_share=0.2)
    lengths = {"packing": {"max_length": 512, "capacity": 2048}, "trainer": {"steps": 2}}
    pretrain(data=str(tmp_path / "data"), out=str(model), model="tiny", rows_per_update=1, **lengths)
    rows = [{"text": text, "label": ("down", "up")[number % 2]} for number, text in enumerate(sentences)]
    given = {
        "MODEL": str(model / "encoder"),
        "PAGES": str(pages),
        "GENERAL": str(general),
        "STEPS": "2",
        "SEEDS": "0",
    } | {
        "TERMS": str(tmp_path / "terms.txt"),
        "TRAIN": write_table(tmp_path / "train.tsv", rows[:40]),
        "TEST": write_table(tmp_path / "test.tsv", rows[40:]),
    }
    out = tmp_path / "run"
    run_recipe("chinese-domain.sh", out, given)
    before, after = (read_json(out / name / "summary.json") for name in ("before", "after"))
    assert before["test"]["n"] == after["test"]["n"] == 20
    assert {"tfidf", "majority"} <= after["baselines"].keys()
    assert read_json(out / "continued" / "summary.json")["validation_at_start"].keys() >= {"loss.domain"}
    text = pq.read_table(next((out / "domain").rglob("*.parquet")), columns=["text"])["text"].to_pylist()
    assert "var a" not in "".join(text)
