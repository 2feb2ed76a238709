"""What is mutated: small files of every format, corpora, models of all families, runs, exports."""

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zstandard

from builders.encoders import small
from builders.verbs import chained_documents, labelled_rows, made_up_words
from fuzz import server

TRAINING = "--precision fp32 --batch 8 --max-length 24 --epochs 1 --ladder none --learning-rates 1e-3 --json"
"""Options of a fine-tuning of a third of a second."""
NEW_MODEL = "--model tiny --architecture bert"
PRETRAINING = "--precision fp32 --packing.capacity 64 --packing.max-length 32 --trainer.steps 3 --json"
PREPARING = "--workers 1 --validation-share 0.1 --json"
FAMILIES = ("bert", "prenorm", "modern", "roberta", "electra")


def _texts() -> list[str]:
    return [*chained_documents(40, seed=1), 'He said "no"; a<b & c.', "Zwei Wörter, naïve.", "数据很好。good"]


def _rows() -> list[dict[str, Any]]:
    return labelled_rows(24, seed=3)


def _spans() -> list[dict[str, Any]]:
    return [
        {"text": row["text"], "spans": [[0, len(row["text"].split()[0]), row["label"]]]} for row in _rows()
    ]


def _questions() -> list[dict[str, Any]]:
    rows = []
    for number, row in enumerate(_rows()):
        context = f"{row['text']} is it"
        answer = context.split()[1]
        rows.append({
            "id": f"q{number}",
            "question": f"what {row['label']}",
            "context": context,
            "answers": {"text": [answer], "answer_start": [context.index(f" {answer} ") + 1]},
        })  # fmt: skip
    return rows


def _squad(rows: list[dict[str, Any]]) -> dict[str, Any]:
    paragraphs = []
    for row in rows:
        answer = {"text": row["answers"]["text"][0], "answer_start": row["answers"]["answer_start"][0]}
        question = {"id": row["id"], "question": row["question"], "answers": [answer]}
        paragraphs.append({"context": row["context"], "qas": [question]})
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def _conll() -> str:
    blocks = []
    for row in _rows():
        first, *rest = row["text"].split()
        blocks.append("\n".join([f"{first} B-{row['label']}", *(f"{word} O" for word in rest)]))
    return "\n\n".join(blocks) + "\n"


def _write_all(rows: Sequence[dict[str, Any]], stem: str, kinds: str = "jsonl csv tsv parquet") -> None:
    """A table in several formats, written by the libraries that people use."""
    import csv

    import pyarrow as pa
    import pyarrow.parquet as pq

    for kind in kinds.split():
        path = Path(f"{stem}.{kind}")
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(list(rows)), path)
        elif kind == "arrow":
            table = pa.Table.from_pylist(list(rows))
            with pa.ipc.new_file(str(path), table.schema) as out:
                out.write_table(table)
        elif kind == "jsonl":
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        elif kind == "json":
            path.write_text(json.dumps(list(rows), ensure_ascii=False, indent=1), "utf-8")
        else:
            with path.open("w", encoding="utf-8", newline="") as file:
                out = csv.writer(file, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
                out.writerow(rows[0])
                out.writerows(row.values() for row in rows)


def _write_files() -> None:
    texts, rows = _texts(), _rows()
    documents = [{"id": n, "text": text} for n, text in enumerate(texts)]
    _write_all(documents, "docs", "jsonl json csv tsv parquet arrow")
    body = "".join(f"<p class=x>{text}</p>\n" for text in texts)
    tnews = [
        {"label": f"10{n % 2}", "label_desc": "x", "sentence": row["text"]} for n, row in enumerate(rows)
    ]
    contents = {
        "docs.txt": "\n".join([*texts, ""]),
        "docs.html": f"<html><head><meta charset=utf-8></head><body>{body}</body></html>",
        "words.txt": "\n".join([*made_up_words()[:6], "Zwei Wörter", "腾讯(00700)", ""]),
        "plain.txt": "".join(row["text"] + "\n" for row in rows),
        "spans.conll": _conll(),
        "squad.json": json.dumps(_squad(_questions())),
        "cola.tsv": "".join(f"gj04\t{n % 2}\t\t{row['text']}\n" for n, row in enumerate(rows)),
        "tnews.json": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in tnews),
    }
    for name, content in contents.items():
        Path(name).write_text(content, "utf-8")
    Path("docs.txt.gz").write_bytes(gzip.compress(Path("docs.txt").read_bytes(), mtime=0))
    Path("docs.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(Path("docs.jsonl").read_bytes()))
    _write_all(rows, "rows")
    _write_all([{"text": row["text"]} for row in rows], "plain")
    _write_all([{**row, "text_b": row["text"][::-1]} for row in rows], "pairs")
    _write_all([{"text": row["text"], "label": len(row["text"]) / 7} for row in rows], "numbers")
    many = [{"text": row["text"], "label": [row["label"], "x"][: n % 3]} for n, row in enumerate(rows)]
    _write_all(many, "many", "jsonl parquet")
    _write_all(_spans(), "spans", "jsonl")
    _write_all(_questions(), "questions", "jsonl")


def _write_models() -> None:
    """A folder of each family, with a masked-LM head and a tokenizer in several forms."""
    import torch

    from brimful.corpus.text.tokenizer import load
    from brimful.hf.folders import load_model, save_model
    from brimful.model.heads import MaskedLMHead

    for family in FAMILIES:
        torch.manual_seed(1)
        tokenizer = load(Path("data"))
        shape = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 48, "max_length": 64}
        encoder = small(family, vocabulary_size=tokenizer.get_vocab_size(), **shape)
        encoder.tokenizer = tokenizer
        save_model(Path(family), encoder, MaskedLMHead(encoder))
    pickled = Path("pickled")
    encoder, head, _ = load_model("bert")
    save_model(pickled, encoder, head)
    from safetensors.torch import load_file

    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    vocabulary = encoder.tokenizer.get_vocab()
    (pickled / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n", "utf-8")
    (pickled / "tokenizer.json").unlink()
    (pickled / "tokenizer_config.json").write_text(
        '{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}'
    )
    bpe = Path("bpe")
    bpe.mkdir()
    letters = [chr(n) for n in range(33, 127)] + ["Ġ", "Ċ"]
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, "th", "Ġa"]
    (bpe / "vocab.json").write_text(json.dumps({name: n for n, name in enumerate(names)}), "utf-8")
    (bpe / "merges.txt").write_text("#version: 0.2\nt h\nĠ a\n", "utf-8")
    settings = {"tokenizer_class": "RobertaTokenizer", "cls_token": "<s>", "sep_token": "</s>"}
    settings |= {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    settings |= {"bos_token": "<s>", "eos_token": "</s>"}
    (bpe / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")


def _settings(name: str, text: str) -> None:
    Path(f"{name}.yaml").write_text(text, "utf-8")


def _write_settings() -> None:
    small_run = "  steps: 1\n  log_every: 1\n"
    _settings("prepare", "paths: [docs.txt]\nout: out\ntokenizer: data\nworkers: 1\nread:\n  split: line\n"
              "clean:\n  min_characters: 1\nvalidation_share: 0.1\n")  # fmt: skip
    _settings("pretrain", "data: data\nout: out\nmodel: tiny\narchitecture: bert\nprecision: fp32\nseed: 1\n"
              f"packing:\n  capacity: 64\n  max_length: 32\nmasking:\n  rate: 0.2\ntrainer:\n{small_run}"
              "optimizer:\n  learning_rate: 1e-3\nschedule:\n  warmup: 0.1\n")  # fmt: skip
    _settings("finetune", "encoder: bert\ntrain: rows.tsv\ntest: rows.jsonl\nout: out\nepochs: 1\nbatch: 8\n"
              "max_length: 24\nseed: [0]\nlearning_rates: [0.001]\nladder: none\nprecision: fp32\n"
              "columns:\n  text: text\n  label: label\ntrainer:\n  log_every: 1\n")  # fmt: skip
    _settings("distil", "teacher: [ft]\nout: out\nstudent_layers: 1\nseed: 0\nbatch: 8\nprecision: fp32\n"
              "layers:\n  epochs: 1\nlogits:\n  epochs: 1\n  loss: soft\n")  # fmt: skip
    _settings("predict", "model: ft\ninput: plain.jsonl\noutput: out.jsonl\nscores: true\nprecision: fp32\n"
              "max_length: 20\ncolumns:\n  text: text\n")  # fmt: skip
    _settings("export", "run: ft\nout: out\nformat: hf\n")
    _settings("report", "runs: [ft]\nout: out.html\n")
    _settings("pack", "data: data\ncapacity: 64\nmax_length: 32\nalgorithm: spfhp\n")


TASKS = {
    "ft": "--train rows.tsv --test rows.jsonl",
    "numeric": "--task regression --train numbers.csv --test numbers.jsonl",
    "several": "--task multi-label --train many.jsonl --test many.jsonl",
    "tagger": "--task token-classification --train spans.jsonl --test spans.conll",
    "reader": "--task question-answering --train questions.jsonl --test squad.json",
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
    _do(f"prepare docs.jsonl --out other --tokenizer data {PREPARING}")
    _write_models()
    _do(f"pretrain --data data --out run {NEW_MODEL} {PRETRAINING}")
    for name, options in TASKS.items():
        _do(f"finetune --encoder bert --out {name} {options} {TRAINING}")
    student = "--teacher ft --precision fp32 --batch 8 --json"
    _do(f"distil {student} --student-layers 1 --out student")
    for kind, source in (("hf", "ft"), ("sentence-transformers", "run"), ("onnx", "ft")):
        _do(f"export {source} --out export-{kind} --format {kind} --json")
    _do("predict --model student --input plain.csv --output warm.jsonl --json")
    _do("augment --input rows.tsv --output warm.tsv --encoder run --copies 1 --json")
    _do("report ft run --out warm.html --json")
    _do("inspect data --verify --json")
    _do("pack --data data --capacity 64 --max-length 32 --json")
    _do("evaluate bert --text data --out warm-eval --json")
    _do("export pickled --out warm --json")
    _killed(f"pretrain --data data --out half-run {NEW_MODEL} {PRETRAINING} --trainer.checkpoint-every 1",
            "*/checkpoints/step-2", said)  # fmt: skip
    _killed(f"finetune --encoder bert --out half-ft {TASKS['ft']} {TRAINING.replace('1e-3', '1e-3 3e-4')}"
            " --trainer.checkpoint-every 1", "*rate-0.0003/checkpoints/step-2", said)  # fmt: skip
    _killed(f"distil {student} --student-layers 1 --out half-student --trainer.checkpoint-every 1",
            "*logits/checkpoints/step-2", said)  # fmt: skip
    _write_settings()
