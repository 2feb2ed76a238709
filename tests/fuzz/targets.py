"""What is tried: a command line, the files of the material that it reads, and which of them are mutated."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz.material import FAMILIES, FORMS, NEW_MODEL, PREPARING, PRETRAINING, ROWS, TRAINING

WEIGHTS = {"finetune": 1, "distil": 1, "pretrain": 2, "evaluate": 2, "augment": 2, "report": 2, "check": 3}
"""How many cases each target of a verb has for one of a fine-tuning; the others have four."""
ANSWERS = {
    "prepare": "data/shards/*",
    "pretrain": "*/encoder/model.safetensors",
    "finetune": "*/model/*.safetensors",
    "distil": "*/model/*.safetensors",
    "predict": "out.*",
    "export": "out/*",
}
"""Globs of the files that a verb writes or changes, which hold its answer beside stdout."""


@dataclass(frozen=True)
class Target:
    """A command line and what is mutated for it.

    Attributes:
        name: begins with the verb.
        line: arguments of `brimful`, with paths relative to the folder of the case; {material} is
            the folder of the files without mutations, which runs and corpora know by its path.
        mutated: globs of the files of which one is mutated.
        checked: its inputs have checksums: a changed byte changes no answer without a word.
        must_refuse: any changed byte must be noticed.
        also: names of more files that it reads.
    """

    name: str
    line: str
    mutated: tuple[str, ...]
    checked: bool = False
    must_refuse: bool = False
    also: str = ""

    @property
    def weight(self) -> int:
        return 8 if "--dry-run" in self.line else WEIGHTS.get(self.name.split("-")[0], 4)

    @property
    def answer(self) -> str | None:
        return ANSWERS.get(self.name.split("-")[0])

    def reads(self, material: Path) -> list[str]:
        """Names of the material that the command line or the globs mention: first parts of their paths."""
        words = [*f"{self.line} {self.also}".replace("=", " ").replace(":", " ").split(), *self.mutated]
        names = {word.split("/")[0] for word in words}
        return sorted(name for name in names if name and (material / name).exists())


def _list_corpus_targets() -> Iterator[Target]:
    end = f"--out out {PREPARING}"
    packed = ["docs.tsv", "docs.parquet", "docs.arrow", "docs.txt.gz", "docs.jsonl.zst"]
    for name in [*(path.name for path in FORMS.glob("corpus*")), *packed]:
        field = {"corpus-numbered.txt": "2", "corpus-sentences.json": "1"}.get(name, "text")
        line = f"prepare {name} --read.field {field} --tokenizer data {end}"
        yield Target(f"prepare-{name}", line, (name,))
    lines = "prepare docs.txt --read.split line --tokenizer"
    for name, files in (("bert", "bert/*token*"), ("pickled", "pickled/*[!n]"), ("bpe", "bpe/*")):
        yield Target(f"prepare-tokenizer-{name}", f"{lines} {name} {end}", (files,))
    yield Target("prepare-lexicon", f"{lines} data --lexicon lexicon.txt {end}", ("lexicon.txt",))
    again = "prepare {material}/docs.txt --read.split line --out data --tokenizer train:250 " + PREPARING
    for part in ("text", "dedup", "shards"):
        yield Target(f"prepare-again-{part}", again, (f"data/{part}/*",), checked=True)
    yield Target("prepare-again-records", again, ("data/*.json", "data/config.yaml", "data/token*"))
    inspections = {
        "data": ("data/shards/*", "data/text/*", "data/dedup/*"),
        "half-run": ("half-run/checkpoints/*/*",),
        "export-hf": ("export-hf/*[!d]",),  # README.md is the user's to edit
        "half-ft": ("half-ft/trials/*/*/*/*/*", "half-ft/trials/*/*/result/*"),
    }
    for folder, files in inspections.items():
        line = f"inspect {folder} --verify --json"
        yield Target(f"inspect-verify-{folder}", line, files, must_refuse=folder != "half-ft")
    yield Target("inspect-corpus", "inspect data --json", ("data/*/*",), checked=True)
    yield Target("inspect-records", "inspect data --json", ("data/*.json", "data/*.yaml"))
    yield Target("inspect-run", "inspect run --update 1 --json", ("run/*.*", "run/encoder/*.json"))
    pack = "pack --data data --capacity 64 --max-length 32 --json"
    yield Target("pack", pack, ("data/shards/*", "data/*.json"))


def _list_pretraining_targets() -> Iterator[Target]:
    new = f"--out out {PRETRAINING.replace('steps 3', 'steps 1')}"
    line = f"pretrain --data data {NEW_MODEL} {new}"
    yield Target("pretrain-shards", line, ("data/shards/*", "data/token*"), checked=True)
    yield Target("pretrain-records", line, ("data/*.json",))
    yield Target("pretrain-mixture", line.replace("data data", "data data:2 other:1"), ("other/shards/*",))
    for name in ("run/encoder", "bert", "modern"):
        line = f"pretrain --data data --start-from {name} {new}"
        yield Target(f"pretrain-from-{name.split('/')[0]}", line, (f"{name}/*",))
    line = "pretrain --resume half-run --json"
    yield Target("pretrain-resume", line, ("half-run/checkpoints/*/*", "half-run/*/data/*"), checked=True)
    yield Target("pretrain-resume-start", line, ("half-run/start/*", "half-run/*.yaml"))
    line = "evaluate bert --text data --out out --json"
    yield Target("evaluate-text", line, ("data/shards/*", "bert/*"))


def _list_table_targets() -> Iterator[Target]:
    tables = {
        "": ["classes.csv", "classes-doccano.jsonl", "pairs.csv", "docs.parquet"],
        "--columns.label sentiment": ["classes-label-studio.json"],
        "--task regression": ["values.csv"],
        "--task multi-label": ["labels.csv"],
        "--task token-classification": ["tags.conll", *(path.name for path in FORMS.glob("spans*"))],
        "--task question-answering": ["questions-squad.json", "questions-datasets.jsonl"],
        "--layout glue/cola": ["cola.tsv"],
        "--layout clue/ocnli": ["ocnli.json"],
    }
    for options, files in tables.items():
        for file in files:
            yield Target(f"check-{file}", f"check {file} {options} --json", (file,))
        if "--task" in options or not options:
            train = f"--train {files[0]} --test {files[0]} {TRAINING}"
            line = f"finetune --encoder bert --out out {options} {train}"
            yield Target(f"finetune-{files[0]}", line, (files[0],))
    for file in ("classes.csv", "classes-doccano.jsonl", "docs.parquet"):
        line = f"augment --input {file} --output out.{file.split('.')[1]} --encoder bert --copies 1 --json"
        yield Target(f"augment-{file}", line, (file,))


def _list_model_targets() -> Iterator[Target]:
    for name in FAMILIES:
        line = f"evaluate {name} --text data --text-tokens 300 --out out --json"
        yield Target(f"evaluate-{name}", line, (f"{name}/*",))
    train = f"--out out {ROWS}"
    for name in ("bert", "modern", "pickled"):
        yield Target(f"finetune-from-{name}", f"finetune --encoder {name} {train} {TRAINING}", (f"{name}/*",))
    cached = f"BRIMFUL_CACHE=cache finetune --encoder bert {train} {TRAINING}"
    yield Target("finetune-cache", cached, ("cache/*/*",), checked=True)
    rest = "--precision fp32 --batch 1 --json"
    line = f"distil --teacher export-hf --student electra {train} {rest}"
    yield Target("distil-student", line, ("electra/*",))
    yield Target("distil-teacher", line, ("export-hf/*",), checked=True)
    for kind in ("txt", "jsonl", "csv"):
        line = f"distil --teacher export-hf --unlabelled corpus.{kind} {train} {rest}"
        yield Target(f"distil-unlabelled-{kind}", line, (f"corpus.{kind}",))
    for verb, run in (("finetune", "half-ft"), ("distil", "half-student")):
        states = (f"{run}/*/*/*/checkpoints/*/*", f"{run}/*/*/*/result/*")
        yield Target(f"{verb}-resume", f"{verb} --resume {run} --json", states, checked=True)
        records = (f"{run}/start/*", f"{run}/*.*", f"{run}/*/*/*/metrics.jsonl")
        yield Target(f"{verb}-resume-records", f"{verb} --resume {run} --json", records)


def _list_prediction_targets() -> Iterator[Target]:
    inputs = {
        "export-hf": "corpus.txt corpus.jsonl corpus.csv docs.tsv docs.parquet",
        "numeric": "values.csv",
        "several": "corpus.txt labels.csv",
        "tagger": "corpus.txt tags.conll spans-doccano.jsonl",
        "reader": "questions-datasets.jsonl questions-squad.json",
        **dict.fromkeys((*FAMILIES, "pickled", "ft", "export-sentence-transformers"), "corpus.txt"),
    }
    kinds = {"numeric": "tsv", "bert": "npy", "several": "parquet", "export-sentence-transformers": "parquet"}
    for model, files in inputs.items():
        is_run = model in ("numeric", "several", "tagger", "reader", "ft")
        line = f"predict --model {model} --output out.{kinds.get(model, 'jsonl')} --json --input"
        for file in files.split():
            yield Target(f"predict-{model}-{file}", f"{line} {file}", (file,))
        mutated = (f"{model}/model/*", f"{model}/summary.json") if is_run else (f"{model}/*",)
        checked = model.startswith("export-")
        yield Target(f"predict-{model}", f"{line} {files.split()[0]}", mutated, checked=checked)


def _list_result_targets() -> Iterator[Target]:
    exported = {
        "ft --format hf": ("ft/model/*", "ft/*.*"),
        "run --format sentence-transformers": ("run/encoder/*", "run/*.*"),
        **{name: (f"{name}/*",) for name in ("bert", "modern", "pickled", "roberta", "electra")},
    }
    for source, files in exported.items():
        yield Target(f"export-{source.split()[0]}", f"export {source} --out out --json", files)
    line = "export run --step 3 --out out --json"
    yield Target("export-step", line, ("run/checkpoints/*/*",), checked=True)
    for run in ("ft", "run", "student", "reader", "half-ft"):
        files = (f"{run}/*.*", f"{run}/*/*/*/metrics.jsonl", f"{run}/model/config.json")
        yield Target(f"report-{run}", f"report {run} --out out.html --json", files)
    yield Target("report-two", "report ft run --out out.html --json", ("ft/*.*", "run/*.*"))
    also = {
        "prepare": "docs.txt data",
        "pretrain": "data",
        "finetune": "bert classes.csv classes-doccano.jsonl",
    }
    also |= {"distil": "ft", "predict": "ft corpus.jsonl", "export": "ft", "report": "ft", "pack": "data"}
    for verb, files_read in also.items():
        dry = " --dry-run" if verb in ("pretrain", "finetune", "distil") else ""
        line = f"{verb} --config {verb}.yaml{dry} --json"
        yield Target(f"{verb}-config", line, (f"{verb}.yaml",), also=files_read)


@functools.cache
def targets() -> dict[str, Target]:
    """All targets by name."""
    lists = (_list_corpus_targets, _list_pretraining_targets, _list_table_targets)
    lists += (_list_model_targets, _list_prediction_targets, _list_result_targets)
    every = [target for list_targets in lists for target in list_targets()]
    by_name = {target.name: target for target in every}
    assert len(by_name) == len(every)
    return by_name
