"""What is mutated: small files of every format, corpora, models of all families, runs, exports."""

import gzip
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
import zstandard
from safetensors.torch import load_file

from brimful.base.storage import write_json
from brimful.corpus.text.tokenizer import load
from brimful.hf.folders import load_model, save_model
from brimful.model.heads import MaskedLMHead
from builders.encoders import small
from builders.records import read_named_records
from builders.verbs import chained_documents
from fuzz import server

TESTS = Path(__file__).parents[1]
FORMS, LAYOUTS = TESTS.parent / "docs/examples", TESTS / "tables" / "layout_records.txt"
TRAINING = "--precision fp32 --batch 1 --max-length 24 --epochs 2 --ladder none --learning-rates 1e-3 --json"
"""Options of a fine-tuning of a third of a second."""
NEW_MODEL = "--model tiny --architecture bert"
PRETRAINING = "--precision fp32 --packing.capacity 64 --packing.max-length 32 --trainer.steps 3 --json"
PREPARING = "--workers 1 --validation-share 0.1 --json"
FAMILIES = ("bert", "prenorm", "modern", "roberta", "electra")


def _write_files() -> None:
    """The example of each documented form, a corpus in other formats, and two layouts."""
    shutil.copytree(FORMS, ".", dirs_exist_ok=True)
    texts = chained_documents(40, seed=1)
    texts += ['He said "no"; a<b & c.', "Zwei Wörter, naïve.", "数据很好。good"]
    lines = "".join(f"{text}\n" for text in texts)
    Path("docs.txt").write_text(lines, "utf-8")
    Path("docs.txt.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    Path("docs.tsv").write_text("text\n" + lines, "utf-8")
    Path("docs.jsonl.zst").write_bytes(zstandard.compress(Path("corpus.jsonl").read_bytes()))
    table = pa.table({"text": texts, "label": ["ab"[n % 2] for n in range(len(texts))]})
    pq.write_table(table, "docs.parquet")
    with pa.ipc.new_file("docs.arrow", table.schema) as out:
        out.write_table(table)
    layouts = read_named_records(LAYOUTS)
    Path("cola.tsv").write_text(layouts["glue/cola"][0], "utf-8")
    Path("ocnli.json").write_text(layouts["clue/ocnli"][0], "utf-8")


def _write_models() -> None:
    """A folder of each family, with a masked-LM head and a tokenizer in several forms."""
    for family in FAMILIES:
        torch.manual_seed(1)
        tokenizer = load(Path("data"))
        shape = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 48, "max_length": 64}
        encoder = small(family, vocabulary_size=tokenizer.get_vocab_size(), **shape)
        encoder.tokenizer = tokenizer
        save_model(Path(family), encoder, MaskedLMHead(encoder))
    # One more with its weights as a pickle and its tokenizer as a list of pieces.
    folder = Path("pickled")
    encoder, head, _ = load_model("bert")
    save_model(folder, encoder, head)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    vocabulary = encoder.tokenizer.get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n", "utf-8")
    (folder / "tokenizer.json").unlink()
    settings = {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}
    write_json(folder / "tokenizer_config.json", settings)
    # And a tokenizer of byte-level BPE.
    folder = Path("bpe")
    folder.mkdir()
    letters = [chr(n) for n in range(33, 127)] + ["Ġ", "Ċ"]
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, "th", "Ġa"]
    write_json(folder / "vocab.json", {name: n for n, name in enumerate(names)})
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nĠ a\n", "utf-8")
    ends = {"cls_token": "<s>", "sep_token": "</s>", "bos_token": "<s>", "eos_token": "</s>"}
    others = {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    settings = {"tokenizer_class": "RobertaTokenizer", **ends, **others}
    write_json(folder / "tokenizer_config.json", settings)


SETTINGS = {
    "prepare": "{paths: [docs.txt], out: out, tokenizer: data, workers: 1, read: {split: line},"
    " clean: {min_characters: 1}, validation_share: 0.1}",
    "pretrain": "{data: data, out: out, model: tiny, architecture: bert, precision: fp32, seed: 1,"
    " packing: {capacity: 64, max_length: 32}, masking: {rate: 0.2}, trainer: {steps: 1, log_every: 1},"
    " optimizer: {learning_rate: 1e-3}, schedule: {warmup: 0.1}}",
    "finetune": "{encoder: bert, train: classes.csv, test: classes-doccano.jsonl, out: out, epochs: 1,"
    " batch: 8, max_length: 24, seed: [0], learning_rates: [0.001], ladder: none, precision: fp32,"
    " columns: {text: text, label: label}, trainer: {log_every: 1}}",
    "distil": "{teacher: ft, out: out, student_layers: 1, seed: 0, batch: 8, precision: fp32,"
    " layers: {epochs: 1}, logits: {epochs: 1}}",
    "predict": "{model: ft, input: corpus.jsonl, output: out.jsonl, scores: true, precision: fp32,"
    " max_length: 20, columns: {text: text}}",
    "export": "{run: ft, out: out, format: hf}",
    "report": "{runs: [ft], out: out.html}",
    "pack": "{data: data, capacity: 64, max_length: 32, algorithm: spfhp}",
}
"""A file of settings of each verb."""
ROWS = "--train classes.csv --test classes-doccano.jsonl"
TASKS = {
    "ft": ROWS,
    "numeric": "--task regression --train values.csv --test values.csv",
    "several": "--task multi-label --train labels.csv --test labels.csv",
    "tagger": "--task token-classification --train spans-brimful.jsonl --test tags.conll",
    "reader": "--task question-answering --train questions-datasets.jsonl --test questions-squad.json",
}


def _do(line: str) -> None:
    if (code := server.call(line)) != 0:
        raise RuntimeError(f"brimful {line}: exit code {code}")


def _killed(line: str, place: str, said: Path) -> None:
    ended = server.run(line, Path.cwd(), said, killed_at=place)
    if ended.code != 137:
        raise RuntimeError(f"brimful {line} was not killed at {place}: {ended.error[-2000:]}")


def build(folder: Path, said: Path) -> None:
    """Make everything in `folder`, in this process, which has then loaded what children need."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    os.environ["BRIMFUL_CACHE"] = "cache"
    _write_files()
    _do(f"prepare docs.txt --read.split line --out data --tokenizer train:250 {PREPARING}")
    _do(f"prepare docs.tsv --out other --tokenizer data {PREPARING}")
    _write_models()
    _do(f"pretrain --data data --out run {NEW_MODEL} {PRETRAINING}")
    for name, options in TASKS.items():
        _do(f"finetune --encoder bert --out {name} {options} {TRAINING}")
    student = "--teacher ft --precision fp32 --batch 1 --json"
    _do(f"distil {student} --student-layers 1 --out student")
    for kind, source in (("hf", "ft"), ("sentence-transformers", "run"), ("onnx", "ft")):
        _do(f"export {source} --out export-{kind} --format {kind} --json")
    _do("predict --model student --input corpus.csv --output warm.jsonl --json")
    _do("augment --input classes.csv --output warm.csv --encoder run --copies 1 --json")
    _do("report ft run --out warm.html --json")
    _do("inspect data --verify --json")
    _do("pack --data data --capacity 64 --max-length 32 --json")
    _do("evaluate bert --text data --out warm-eval --json")
    _do("export pickled --out warm --json")
    _killed(f"pretrain --data data --out half-run {NEW_MODEL} {PRETRAINING} --trainer.checkpoint-every 1",
            "*/checkpoints/step-2", said)  # fmt: skip
    two_rates = TRAINING.replace("1e-3", "1e-3 3e-4").replace("batch 1", "batch 8")
    _killed(f"finetune --encoder bert --out half-ft --train docs.parquet --test docs.parquet {two_rates}"
            " --trainer.checkpoint-every 1", "*rate-0.0003/checkpoints/step-2", said)  # fmt: skip
    _killed(f"distil {student} --student-layers 1 --out half-student --trainer.checkpoint-every 1",
            "*logits/checkpoints/step-2", said)  # fmt: skip
    for verb, settings in SETTINGS.items():
        Path(f"{verb}.yaml").write_text(yaml.safe_dump(yaml.safe_load(settings), sort_keys=False), "utf-8")
