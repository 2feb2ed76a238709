"""Golden values: what an earlier commit computed, in tests/golden.json.

Integers (shards, vocabularies, plans, batches, masks) are kept as SHA-256 hashes, numbers of whole runs in
float64 as they are. They may change only where a commit says so; then
`BRIMFUL_WRITE_GOLDENS=1 pytest tests/integration/test_golden.py` (without -n) writes them anew.

Nearly everything goes through the public verbs. Batches, logits and hidden states are caught by a forward
hook, and float64 is torch's default dtype, in which its generator draws the same weights on all processors.
"""

import csv
import gzip
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import golden_texts
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

import brimful
from brimful.hf.folders import load_pretrained, save_model
from brimful.model.encoder import Encoder
from builders.verbs import write_table

GOLDENS = Path(__file__).parents[1] / "golden.json"
OLD = Path(__file__).parents[1] / "data" / "old"
WRITES = os.environ.get("BRIMFUL_WRITE_GOLDENS") == "1"
SHARD_PARTS = ("tok", "word.bits", "sent.bits", "idx", "src")
BATCH_PARTS = ("tokens", "positions", "segments", "offsets", "mlm_positions", "mlm_labels")
"""The tensors of a batch that are hashed; so are its lengths and targets."""

EXACT = 1e-9
"""Largest relative difference of what is computed in float64."""
TOLERANCES = {
    "gradient_norm": 1e-6,  # it is measured in float32
    "accuracy": 1e-6,  # and so is this
    "muon": 1e-4,  # its iteration computes in float32
}
"""Other tolerances, for all values below such a key."""


def differences(found: Any, golden: Any, where: str, tolerance: float = EXACT) -> list[str]:
    """Where two JSON values are not the same; floats may differ a little."""
    if isinstance(found, dict) and isinstance(golden, dict) and found.keys() == golden.keys():
        lines = []
        for key in golden:
            allowed = TOLERANCES.get(key.split(" ")[0], tolerance)
            lines += differences(found[key], golden[key], f"{where}.{key}", allowed)
        return lines
    if isinstance(found, list) and isinstance(golden, list) and len(found) == len(golden):
        lines = []
        for index, pair in enumerate(zip(found, golden, strict=True)):
            lines += differences(*pair, f"{where}[{index}]", tolerance)
        return lines
    if isinstance(found, float) and isinstance(golden, float):
        same = math.isclose(found, golden, rel_tol=tolerance, abs_tol=tolerance / 1000)
    else:
        same = found == golden
    return [] if same else [f"{where}: {found!r} and not {golden!r}"]


def compare(name: str, found: dict[str, Any]) -> None:
    """Compare a section of the golden values with what was found, or write what was found."""
    goldens = json.loads(GOLDENS.read_text(encoding="utf-8")) if GOLDENS.exists() else {}
    if WRITES:
        values = dict(sorted({**goldens, name: found}.items()))
        GOLDENS.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        return
    assert not differences(found, goldens[name], name)


def sha256(*values: Any) -> str:
    """A hash of arrays (with dtype and shape), bytes and JSON values."""
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, Tensor):
            value = value.detach().cpu().numpy()
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str} {value.shape}".encode())
            value = np.ascontiguousarray(value).tobytes()
        digest.update(value if isinstance(value, bytes) else json.dumps(value).encode())
    return digest.hexdigest()


def hashes_of_corpus(folder: Path) -> dict[str, Any]:
    """The hashes of a prepared folder's shards and vocabulary."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    hashes = {"vocabulary": sha256(sorted(tokenizer.get_vocab().items()))}
    for path in sorted((folder / "shards").glob("*.tok")):
        hashes |= {f"{path.stem}.{p}": sha256(path.with_suffix(f".{p}").read_bytes()) for p in SHARD_PARTS}
    return hashes


@dataclass
class Watched:
    """What models did: the batches of training, and the outputs of models that were not in training."""

    batches: list[Any] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    last: Tensor | None = None
    at_first_batch: Callable[[], None] = lambda: None

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(module, Encoder):
            if module.training:
                if not self.batches:
                    self.at_first_batch()
                self.batches.append(inputs[0])
            else:
                self.hidden.append(output.detach().clone())
        if isinstance(output, Tensor) and not module.training:
            self.last = output.detach().clone()

    def hashes(self) -> dict[str, str]:
        """A hash of each part of all batches."""
        parts = {part: sha256(*(getattr(batch, part) for batch in self.batches)) for part in BATCH_PARTS}
        parts["lengths"] = sha256([[*batch.lengths, batch.real_sequences] for batch in self.batches])
        for name in sorted(self.batches[0].targets):
            parts[f"target {name}"] = sha256(*(batch.targets[name] for batch in self.batches))
        return parts


@contextmanager
def watched() -> Iterator[Watched]:
    """Watch all models within the context."""
    watcher = Watched()
    handle = nn.modules.module.register_module_forward_hook(watcher)
    try:
        yield watcher
    finally:
        handle.remove()


def exact_angles(encoder: Encoder) -> None:
    """Rotary tables as float64 has them: processors differ in float32's cosines."""
    shape = encoder.config
    positions, steps = torch.arange(shape.max_length), torch.arange(0, shape.head_dim, 2)
    for table in encoder.buffers():
        thetas = (shape.rope_theta, shape.rope_theta_local)
        angles = [positions[:, None] * theta ** -(steps / shape.head_dim) for theta in thetas]
        exact = [values for angle in angles for values in (angle.cos(), angle.sin())]
        table.data = min(exact, key=lambda values: float((values - table).abs().max()))


@pytest.fixture
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """During the test, new models are float64, and one thread computes."""
    begin = Encoder.__init__

    def begin_exactly(encoder: Encoder, *arguments: Any, **options: Any) -> None:
        begin(encoder, *arguments, **options)
        exact_angles(encoder)

    monkeypatch.setattr(Encoder, "__init__", begin_exactly)
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)


def metrics_of(path: Path) -> dict[str, list[float]]:
    """The losses, accuracies, rates, norms and evaluations of a metrics.jsonl."""
    columns: dict[str, list[float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        for name, value in json.loads(line).items():
            if name.startswith(("loss.", "validation.")) or name in ("learning_rate", "gradient_norm"):
                key = "accuracy of validation" if "accuracy" in name else name
                columns.setdefault(key, []).append(value)
    return columns


@pytest.fixture(scope="module")
def golden_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared folder of 220 made-up documents; its name decides masks."""
    folder = tmp_path_factory.mktemp("golden")
    text = "\n".join(golden_texts.documents(220, seed=1)) + "\n"
    (folder / "texts.txt").write_text(text, encoding="utf-8")
    out = folder / "data"
    settings = {"tokenizer": "train:400", "lowercase": True, "validation_share": 0.1, "workers": 1}
    brimful.prepare(paths=[str(folder / "texts.txt")], out=str(out), read={"split": "line"}, **settings)
    return out


def test_shards(golden_corpus: Path) -> None:
    compare("shards", hashes_of_corpus(golden_corpus))


def test_shards_of_many_formats(golden_corpus: Path, tmp_path: Path) -> None:
    """HTML, JSON, tables and compressed text, with repetitions, entities and dirt, by another tokenizer."""
    folder = tmp_path / "raw"
    folder.mkdir()
    texts = golden_texts.documents(60, seed=2)
    page = "".join(f"<p>{text.replace('.', ' &amp; so on.')}</p>\n<!-- no -->" for text in texts[:20])
    menu = "<nav><a href='/'>Home</a> <a href='/x'>About us</a></nav><script>var a = 1 < 2;</script>"
    (folder / "page.html").write_text(
        f"<html><head><title>Kettles</title></head><body>{menu}<h1>烧水&nbsp;壶</h1>{page}</body></html>",
        encoding="utf-8",
    )
    lines = [*texts[20:40], texts[20], f"{texts[21]} 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"]
    lines += ["e\u0301te\u00ad\u200b", "x"]
    records = [json.dumps({"text": t, "number": n}, ensure_ascii=n % 2 == 0) for n, t in enumerate(lines)]
    (folder / "records.jsonl").write_text("\n".join(records) + "\n", encoding="utf-8")
    with open(folder / "table.csv", "w", encoding="utf-8", newline="") as file:
        rows = [[number, f'"{text}"\n{text}'] for number, text in enumerate(texts[40:50])]
        csv.writer(file).writerows([["id", "text"], *rows])
    with gzip.open(folder / "more.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n\n".join([*texts[50:], texts[20]]))
    found = {}
    for name, options in {
        "given": {"tokenizer": str(golden_corpus / "tokenizer.json"), "shard_tokens": 2000},
        "bpe": {"tokenizer": "train:600", "model": "bpe", "lowercase": False, "han": "pieces"},
    }.items():
        settings = options | {"read": {"split": "paragraph"}, "validation_share": 0.1, "workers": 1}
        brimful.prepare(paths=[str(folder)], out=str(tmp_path / name), **settings)
        found[name] = hashes_of_corpus(tmp_path / name)
    compare("formats", found)


RUNS: dict[str, dict[str, Any]] = {
    "masked tokens": {"architecture": "bert", "masking": {"unit": "tokens"}},
    "whole words": {
        "architecture": "modern",
        "masking": {"unit": "words", "final_rate": 0.3},
        "schedule": {"shape": "cosine"},
    },
    "pairs": {
        "architecture": "bert",
        "sequences": {"kind": "nsp", "short_share": 0.1},
        "masking": {"unit": "words", "together": True},
        "rows_per_micro_batch": 2,
        "trainer": {"steps": 10},
    },
    "phases": {
        "architecture": "prenorm",
        "phases": [
            {"steps": 6, "max_length": 24},
            {"steps": 8, "max_length": 64, "update_size": 8, "learning_rate": 2e-3, "warmup": 2},
        ],
        "rows_per_update": 20,
        "loss_mean": "sequences",
        "optimizer": {"name": "lamb"},
        "trainer": {"steps": 14},
        "rows_per_micro_batch": 4,
    },
    "muon": {
        "architecture": "modern",
        "sequences": {"kind": "chunks"},
        "sequences_per_update": 12,
        "optimizer": {"name": "muon"},
        "schedule": {"shape": "wsd"},
        "trainer": {"steps": 5},
    },
}
"""Short pretraining runs, each with another stream."""

DRAWN = {"attention": "random", "vocabulary": "random"}
"""Weights from the data may be rounded differently on other processors."""


def pretrain(corpus: Path, out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Pretrain a tiny model; return its batches, the plan of its first block, and its metrics."""
    values: dict[str, Any] = {"rows_per_micro_batch": 1, "recipe": "plain", "precision": "fp32", "seed": 3}
    if "sequences_per_update" not in options:
        values["rows_per_update"] = 4
    if "start_from" not in options:
        values |= {"model": "tiny", "initial": DRAWN}
    trainer = {"steps": 20, "log_every": 1, "clip": 0.0} | options.get("trainer", {})
    plan: dict[str, str] = {}

    def hash_plan() -> None:
        for path in sorted((out / "blocks").rglob("epoch-0000-block-00000*")):
            if path.suffix != ".json":
                plan[path.name] = sha256(path.read_bytes())

    with watched() as models:
        models.at_first_batch = hash_plan
        packing = {"max_length": 48, "capacity": 128}
        given = values | options | {"packing": packing, "trainer": trainer}
        brimful.pretrain(data=str(corpus), out=str(out), **given)
    assert plan
    return {"plan": plan, "batches": models.hashes(), **metrics_of(out / "metrics.jsonl")}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", RUNS)
def test_pretraining(golden_corpus: Path, tmp_path: Path, name: str) -> None:
    compare(f"pretrain, {name}", {name: pretrain(golden_corpus, tmp_path / "run", RUNS[name])})


TABLES = (("train", 64, 3), ("test", 20, 4))
"""Names, rows and seeds."""
TEXTS = [
    "The small kettle waters a garden.",
    "安静的河流记得高山。",
    "ugly 推荐 The heavy market follows a notebook.",
    "x",
]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_from_encoder_to_export(golden_corpus: Path, tmp_path: Path, architecture: str) -> None:
    """Fine-tuning, distillation, prediction and export, one after the other."""
    encoder, teacher, student, folder = (str(tmp_path / name) for name in ("encoder", "a", "b", "deployed"))
    common = {"precision": "fp32", "trainer": {"log_every": 1, "clip": 0.0, "checkpoint_every": 0}}
    pretrain(golden_corpus, Path(encoder), {"architecture": architecture, "trainer": {"steps": 3}})
    tables = {}
    for name, count, seed in TABLES:
        rows = [{"text": text, "label": label} for text, label in golden_texts.labelled(count, seed)]
        tables[name] = write_table(tmp_path / f"{name}.tsv", rows)
    with watched() as models:
        options = {"epochs": 2.5, "dropout": 0.0, "seed": (5,), "ladder": "none"}
        brimful.finetune(encoder=encoder, out=teacher, **tables, **options, **common)
    tokens = sha256(*(batch.tokens for batch in models.batches))
    found: dict[str, Any] = {"finetune": {"tokens": tokens, **metrics_of(Path(teacher, "metrics.jsonl"))}}
    with watched() as models:
        whole, head = load_pretrained(encoder)
        save_model(tmp_path / "start", whole.keep_layers([whole.config.layers - 1]), head)
        options = {"student": str(tmp_path / "start"), "batch": 16, "temperature": 2.0}
        options |= {"layers": {"epochs": 1.5, "learning_rate": 5e-4}, "seed": 6}
        options |= {"logits": {"epochs": 1.5, "learning_rate": 3e-4}}
        brimful.distil(teacher=teacher, out=student, **options, **common)
    tokens = sha256(*(batch.tokens for batch in models.batches))
    stages = {path.parent.name: metrics_of(path) for path in Path(student, "stages").rglob("metrics.jsonl")}
    found["distil"] = {"tokens": tokens, **stages}
    brimful.export(run=student, out=folder)
    found["export"] = outputs_of(folder, tmp_path)
    compare(f"tasks, {architecture}", found)


def hidden_of(folder: str) -> list[float]:
    """Return one number for each of the first 32 tokens of the texts, from its hidden state."""
    with watched() as models:
        brimful.Encoder.load(folder).embed(TEXTS)
    hidden = torch.cat(models.hidden)
    assert hidden.dtype == torch.float64
    return (hidden[:32] @ torch.linspace(-1, 1, hidden.shape[1])).tolist()


def outputs_of(folder: str, scratch: Path) -> dict[str, Any]:
    """Hidden states, logits and labels of four texts."""
    (scratch / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    with watched() as models:
        brimful.predict(model=folder, input=str(scratch / "texts.txt"), output=str(scratch / "labels.jsonl"))
    assert models.last is not None
    lines = (scratch / "labels.jsonl").read_text(encoding="utf-8").splitlines()
    labels = [json.loads(line)["prediction"] for line in lines]
    logits = models.last[: len(TEXTS)].tolist()
    return {"hidden": hidden_of(folder), "logits": logits, "labels": labels}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the folders that an earlier commit wrote; see their README."""
    shutil.copytree(OLD, tmp_path / "old")
    return tmp_path / "old"


def test_old_folders_are_whole(old: Path) -> None:
    assert brimful.inspect(directory=str(old), verify=True)["records"] >= 8


@pytest.mark.usefixtures("float64")
def test_an_old_corpus_trains_an_old_encoder(old: Path, tmp_path: Path) -> None:
    options = {"start_from": str(old / "pretrain"), "trainer": {"steps": 4}}
    compare("old corpus", pretrain(old / "corpus", tmp_path / "run", options))


@pytest.mark.usefixtures("float64")
def test_old_models_give_the_same_answers(old: Path, tmp_path: Path) -> None:
    brimful.export(run=str(old / "pretrain"), out=str(tmp_path / "step"), step=10)
    found = {
        "export": outputs_of(str(old / "export"), tmp_path),
        "finetune": outputs_of(str(old / "finetune" / "model"), tmp_path),
        "encoder": hidden_of(str(old / "pretrain" / "encoder")),
        "checkpoint": hidden_of(str(tmp_path / "step")),
    }
    compare("old models", found)
