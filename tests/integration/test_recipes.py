"""Every recipe is a valid configuration, and runs: its own values with smaller sizes, on a toy corpus."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from brimful.base.config import build, read_yaml
from brimful.cli.main import load_schema
from brimful.commands.finetune import finetune
from brimful.commands.prepare import prepare
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


def test_pre_norm_in_large_batches(corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = toy("pretrain-prenorm-large-batch", data=str(corpus_dir), out=str(tmp_path / "run"))
    run = Run(values, monkeypatch)
    (adam,) = run.optimizers
    assert isinstance(adam, torch.optim.AdamW)
    assert {(group["betas"], group["eps"]) for group in adam.param_groups} == {((0.9, 0.98), 1e-6)}
    assert run.kind == "megatron-bert"
    sizes = [(phase["steps"], phase["sequences_per_update"]) for phase in run.summary["phases"]]
    assert sizes == [(1, 8), (1, 16), (11, 32)]
    assert max(run.rates) <= 6e-4
    assert run.rates[-1] == pytest.approx(6e-4 / (13 * (1 - 0.048)))  # one schedule through all phases
    assert run.trainer.guard.policy == "skip"


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


@pytest.mark.slow
def test_long_sequences(corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(toy("pretrain-long", data=str(corpus_dir), out=str(tmp_path / "run")), monkeypatch)
    assert run.kind == "modernbert"
    lengths = [(phase["steps"], phase["max_length"]) for phase in run.summary["phases"]]
    assert lengths == [(10, 128), (2, 1024)]
    assert run.saved["packing"]["capacity"] == 1024
    assert run.rates[1:10] == [pytest.approx(8e-4)] * 9
    assert run.rates[-1] < run.rates[-2] <= run.rates[1]


@pytest.mark.parametrize(
    ("name", "kind"), [("pretrain-24-hours", "megatron-bert"), ("pretrain-laptop", "modernbert")]
)
def test_what_fits_in_some_hours(
    corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """At 60,000 times the speed: the clock ends the run, far from its last update."""
    run = Run(toy(name, data=str(corpus_dir), out=str(tmp_path / "run")), monkeypatch)
    assert run.kind == kind
    assert run.summary["steps"] < run.values["trainer"]["steps"] == 100_000
    seconds = 3600 * run.values["trainer"]["hours"]
    assert 0 < seconds < 2 < 2 + run.summary["seconds"]
    assert run.summary["seconds"] >= seconds


def test_mini(corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = toy("pretrain-mini", data=str(corpus_dir), out=str(tmp_path / "run"), rows_per_micro_batch=2)
    run = Run(values, monkeypatch)
    assert isinstance(run.optimizers[1], Muon)
    assert max(run.rates) == pytest.approx(2e-3)
    assert run.saved["masking"]["rate"] == 0.3


@pytest.fixture(scope="module")
def model(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT that has seen two updates of general text."""
    out = tmp_path_factory.mktemp("model") / "run"
    brief = {"steps": 2, "checkpoint_every": 0}
    packing = {"max_length": 64, "capacity": 128}
    pretrain(
        data=str(corpus_dir), out=str(out), model="tiny", architecture="bert", packing=packing, trainer=brief
    )
    return out


@pytest.mark.slow
def test_a_chinese_domain(
    corpus_dir: Path, raw_texts: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its first lines have it: the model's tokenizer, a lexicon, and nine tokens of the domain to one."""
    domain, draw = tmp_path / "domain.txt", random.Random(1)
    han = [c for c in raw_texts.read_text(encoding="utf-8") if "\u4e00" <= c <= "\u9fff"]
    term, words = "".join(han[:3]), ["bondamarket", "gilderate", "dandelion", *han[3:20]]
    texts = [" ".join([*draw.choices(words, k=12), term]) for _ in range(150)]
    domain.write_text("\n".join(texts) + "\n", encoding="utf-8")
    (tmp_path / "terms.txt").write_text(f"{term}\n")
    settings = {"workers": 1, "read": {"split": "line"}, "validation_share": 0.1}  # at 0.05 maybe none
    lexicon = str(tmp_path / "terms.txt")
    mine, replay = tmp_path / "mine", tmp_path / "replay"
    prepare(paths=[domain], out=mine, tokenizer=str(model / "encoder"), lexicon=lexicon, **settings)
    prepare(paths=[raw_texts], out=replay, tokenizer=str(mine), **settings)
    data = [f"{mine}:9", f"{replay}:1"]
    values = toy("pretrain-chinese-domain", data=data, start_from=str(model), out=str(tmp_path / "run"))
    run = Run(values, monkeypatch)
    tokens = run.trainer.stream.tokens_by_source(run.trainer.progress.cursor)
    assert tokens["mine"] == pytest.approx(9 * tokens["replay"], abs=9 * 256)
    assert run.kind == "bert"
    for when in ("validation_at_start", "validation"):
        assert {"loss.mine", "loss.replay"} < run.summary[when].keys()
    assert run.summary["validation"]["loss.mine"] < run.summary["validation_at_start"]["loss.mine"]


@pytest.mark.slow
def test_a_careful_fine_tuning(model: Path, tmp_path: Path) -> None:
    words = ("one", "two", "three", "four", "five", "six", "seven")  # texts alike but for a number are one
    rows = ["text\tlabel", *(f"word {words[i % 7]} here\t{'ab'[i % 2]}" for i in range(40))]
    table = tmp_path / "table.tsv"
    table.write_text("\n".join(rows) + "\n")
    values = read_yaml(FOLDER / "finetune-classification.yaml") | {"epochs": 0.5}
    summary = finetune(
        encoder=str(model), train=str(table), test=str(table), out=str(tmp_path / "run"), **values
    )
    saved = read_yaml(tmp_path / "run" / "config.yaml")
    assert (saved["learning_rates"], saved["seed"]) == ([1e-4, 2e-4, 4e-4], [0, 1, 2])
    assert summary["test"]
