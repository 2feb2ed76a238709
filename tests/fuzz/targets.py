"""What is tried: a command line, the files of the material that it reads, and which of them are mutated."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz.material import FAMILIES, NEW_MODEL, PRETRAINING, TRAINING

WEIGHT = 4


@dataclass(frozen=True)
class Target:
    """A command line and what is mutated for it.

    Attributes:
        group: the line of the summary that counts it.
        line: arguments of `brimful`, with paths relative to the folder of the case; {material} is
            the folder of the files without mutations, which runs and corpora know by its path.
        mutated: globs of the files of which one is mutated.
        weight: how many cases it has for each of a target with weight 1; less where a case takes seconds.
        answer: globs of the files it writes or changes, which hold its answer beside stdout.
        checked: its inputs have checksums: a changed byte changes no answer without a word.
        must_refuse: any changed byte must be noticed.
        also: names of more files that it reads.
    """

    name: str
    group: str
    line: str
    mutated: tuple[str, ...]
    weight: int = WEIGHT
    answer: tuple[str, ...] = ()
    checked: bool = False
    must_refuse: bool = False
    also: str = ""

    def reads(self, material: Path) -> list[str]:
        """Names of the material that the command line or the globs mention: first parts of their paths."""
        words = [*f"{self.line} {self.also}".replace("=", " ").replace(":", " ").split(), *self.mutated]
        names = {word.split("/")[0] for word in words}
        return sorted(name for name in names if name and (material / name).exists())


def _prepare() -> Iterator[Target]:
    end = "--out out --workers 1 --validation-share 0.1 --json"
    for kind in ("txt", "jsonl", "json", "csv", "tsv", "parquet", "arrow", "html", "txt.gz", "jsonl.zst"):
        name = f"docs.{kind}"
        yield Target(f"prepare-{kind}", "prepare: formats", f"prepare {name} --tokenizer data {end}", (name,))
    group = "prepare: tokenizers, lexicon"
    lines = "prepare docs.txt --read.split line --tokenizer"
    for name, files in (("bert", "bert/*token*"), ("pickled", "pickled/*[!n]"), ("bpe", "bpe/*")):
        yield Target(f"prepare-tokenizer-{name}", group, f"{lines} {name} {end}", (files,))
    yield Target("prepare-lexicon", group, f"{lines} data --lexicon words.txt {end}", ("words.txt",))
    again = (
        "prepare {material}/docs.txt {material}/plain.txt --read.split line --out data --tokenizer train:250"
        " --workers 1 --validation-share 0.1 --json"
    )
    records = ("data/MANIFEST.json", "data/plan.json", "data/config.yaml", "data/token*")
    for part in ("text", "dedup", "shards", "records"):
        files = records if part == "records" else (f"data/{part}/*",)
        checked = part != "records"
        yield Target(
            f"prepare-again-{part}", "prepare again", again, files, answer=("data/shards/*",), checked=checked
        )


def _looks() -> Iterator[Target]:
    group = "inspect, pack"
    for name, folder, files in (
        ("corpus", "data", ("data/shards/*", "data/text/*", "data/dedup/*")),
        ("checkpoints", "half-run", ("half-run/checkpoints/*/*",)),
        ("export", "export-hf", ("export-hf/*",)),
        ("trials", "half-ft", ("half-ft/trials/*/*/*/*/*", "half-ft/trials/*/*/result/*")),
    ):
        line = f"inspect {folder} --verify --json"
        yield Target(f"inspect-verify-{name}", group, line, files, must_refuse=name != "trials")
    yield Target("inspect-corpus", group, "inspect data --json", ("data/*/*",), checked=True)
    yield Target("inspect-records", group, "inspect data --json", ("data/*.json", "data/*.yaml"))
    yield Target("inspect-run", group, "inspect run --update 1 --json", ("run/*.*", "run/encoder/*.json"), 2)
    pack = "pack --data data --capacity 64 --max-length 32 --json"
    yield Target("pack", group, pack, ("data/shards/*", "data/*.json"))


def _pretrain() -> Iterator[Target]:
    group = "pretrain: shards, start, resume"
    new = f"--out out {PRETRAINING.replace('steps 3', 'steps 1')}"
    line = f"pretrain --data data {NEW_MODEL} {new}"
    weights, shards = ("out/encoder/model.safetensors",), ("data/shards/*", "data/token*")
    yield Target("pretrain-shards", group, line, shards, 2, weights, checked=True)
    yield Target("pretrain-records", group, line, ("data/*.json",), 1)
    line = f"pretrain --data data:2 other:1 {NEW_MODEL} {new}"
    yield Target("pretrain-mixture", group, line, ("other/shards/*",), 1)
    for name in ("run/encoder", "bert", "modern"):
        line = f"pretrain --data data --start-from {name} {new}"
        yield Target(f"pretrain-from-{name.split('/')[0]}", group, line, (f"{name}/*",), 2)
    line = "pretrain --resume half-run --json"
    states, starts = (
        ("half-run/checkpoints/*/*", "half-run/*/data/*"),
        ("half-run/start/*", "half-run/*.yaml"),
    )
    weights = ("half-run/encoder/model.safetensors",)
    yield Target("pretrain-resume", group, line, states, 3, weights, checked=True)
    yield Target("pretrain-resume-start", group, line, starts, 2)
    line = "evaluate bert --text data --out out --json"
    yield Target("evaluate-text", group, line, ("data/shards/*", "bert/*"), 2)


def _tables() -> Iterator[Target]:
    group = "finetune, check, augment: tables"
    checks = {
        "": "rows.tsv rows.csv rows.jsonl rows.parquet pairs.csv pairs.tsv pairs.jsonl",
        "--task regression": "numbers.csv numbers.tsv numbers.jsonl numbers.parquet",
        "--task multi-label": "many.jsonl many.parquet",
        "--task token-classification": "spans.jsonl spans.conll",
        "--task question-answering": "questions.jsonl squad.json",
        "--layout glue/cola": "cola.tsv",
        "--layout clue/tnews": "tnews.json",
    }
    for options, files in checks.items():
        for file in files.split():
            yield Target(f"check-{file}", group, f"check {file} {options} --json", (file,), 3)
    for options, train in (
        ("", "rows.csv"),
        ("--task regression", "numbers.jsonl"),
        ("--task multi-label", "many.jsonl"),
        ("--task token-classification", "spans.jsonl"),
        ("--task question-answering", "squad.json"),
    ):
        line = f"finetune --encoder bert --out out {options} --train {train} --test {train} {TRAINING}"
        yield Target(f"finetune-{train}", group, line, (train,), 1)
    for file in ("rows.tsv", "pairs.csv", "rows.jsonl", "rows.parquet"):
        line = f"augment --input {file} --output out.{file.split('.')[1]} --encoder bert --copies 1 --json"
        yield Target(f"augment-{file}", group, line, (file,), 2)


def _models() -> Iterator[Target]:
    group = "finetune, distil, evaluate: models"
    for name in (*FAMILIES, "pickled"):
        line = f"evaluate {name} --text docs.txt --text-tokens 300 --out out --json"
        yield Target(f"evaluate-{name}", group, line, (f"{name}/*",), 2)
    for name in ("bert", "modern", "pickled"):
        line = f"finetune --encoder {name} --out out --train rows.tsv --test rows.tsv {TRAINING}"
        yield Target(f"finetune-from-{name}", group, line, (f"{name}/*",), 1)
    tables = "--train rows.tsv --test rows.jsonl --precision fp32 --batch 8 --json"
    line = f"distil --teacher export-hf --student electra --out out {tables}"
    yield Target("distil-student", group, line, ("electra/*",), 1)
    yield Target("distil-teacher", group, line, ("export-hf/*",), 1, ("out/model/*",), checked=True)
    group = "finetune, distil: resume, cache"
    for verb, run in (("finetune", "half-ft"), ("distil", "half-student")):
        line, weights = f"{verb} --resume {run} --json", (f"{run}/model/*.safetensors",)
        states = (f"{run}/*/*/*/checkpoints/*/*", f"{run}/*/*/*/result/*")
        yield Target(f"{verb}-resume", group, line, states, 2, weights, checked=True)
        others = (f"{run}/start/*", f"{run}/*.*", f"{run}/*/*/*/metrics.jsonl")
        yield Target(f"{verb}-resume-records", group, line, others, 1)
    finetune = "finetune --encoder bert --out out --train rows.tsv --test rows.jsonl"
    line, weights = f"BRIMFUL_CACHE=cache {finetune} {TRAINING}", ("out/model/*.safetensors",)
    yield Target("finetune-cache", group, line, ("cache/*/*",), 2, weights, checked=True)
    for kind in ("txt", "jsonl", "csv"):
        line = f"distil --teacher export-hf --unlabelled plain.{kind} --out out {tables}"
        yield Target(f"distil-unlabelled-{kind}", "distil: unlabelled", line, (f"plain.{kind}",), 1)


def _predict() -> Iterator[Target]:
    inputs = {
        "export-hf": "plain.txt plain.jsonl plain.csv plain.tsv plain.parquet",
        "numeric/model": "numbers.csv numbers.parquet",
        "several/model": "many.jsonl",
        "tagger/model": "spans.conll spans.jsonl plain.txt",
        "reader/model": "questions.jsonl squad.json",
        "bert": "plain.txt",
    }
    kinds = {"numeric/model": "tsv", "bert": "npy", "several/model": "parquet"}
    answer = ("out.*",)
    for model, files in inputs.items():
        for file in files.split():
            name, out = model.split("/")[0], f"out.{kinds.get(model, 'jsonl')}"
            line = f"predict --model {model} --input {file} --output {out} --json"
            yield Target(f"predict-{name}-{file}", "predict: inputs", line, (file,), answer=answer)
    group = "predict: other models"
    for model in ("export-hf", "export-sentence-transformers"):
        line = f"predict --model {model} --input plain.jsonl --output out.parquet --json"
        yield Target(f"predict-{model}", group, line, (f"{model}/*",), 6, answer, checked=True)
    runs = {"ft": "plain.txt", "numeric": "plain.csv", "several": "plain.txt", "tagger": "plain.txt"}
    runs["reader"] = "questions.jsonl"
    for model in (*FAMILIES, "pickled", *runs):
        file = runs.get(model, "plain.jsonl")
        mutated = (f"{model}/model/*", f"{model}/summary.json") if model in runs else (f"{model}/*",)
        line = f"predict --model {model} --input {file} --output out.jsonl --json"
        yield Target(f"predict-{model}-model", group, line, mutated, answer=answer)


def _ends() -> Iterator[Target]:
    group, answer = "export", ("out/*",)
    for source, options, files in (
        ("ft", "--format hf", ("ft/model/*", "ft/*.*")),
        ("run", "--format sentence-transformers", ("run/encoder/*", "run/*.*")),
        *((name, "", (f"{name}/*",)) for name in ("bert", "modern", "pickled", "roberta", "electra")),
    ):
        line = f"export {source} --out out {options} --json"
        yield Target(f"export-{source}", group, line, files, answer=answer)
    line, files = "export run --step 3 --out out --json", ("run/checkpoints/*/*",)
    yield Target("export-step", group, line, files, 3, answer, checked=True)
    for run in ("ft", "run", "student", "reader", "half-ft"):
        files = (f"{run}/*.*", f"{run}/*/*/*/metrics.jsonl", f"{run}/model/config.json")
        yield Target(f"report-{run}", "report", f"report {run} --out out.html --json", files, 2)
    yield Target("report-two", "report", "report ft run --out out.html --json", ("ft/*.*", "run/*.*"), 1)
    also = {"prepare": "docs.txt data", "pretrain": "data", "finetune": "bert rows.tsv rows.jsonl"}
    also |= {"distil": "ft", "predict": "ft plain.jsonl", "export": "ft", "report": "ft", "pack": "data"}
    for verb, files_read in also.items():
        is_training = verb in ("pretrain", "finetune", "distil")
        line = f"{verb} --config {verb}.yaml{' --dry-run' if is_training else ''} --json"
        weight = 8 if is_training else WEIGHT
        yield Target(f"config-{verb}", "--config", line, (f"{verb}.yaml",), weight, also=files_read)


def targets() -> dict[str, Target]:
    """All targets by name."""
    every = [*_prepare(), *_looks(), *_pretrain(), *_tables(), *_models(), *_predict(), *_ends()]
    by_name = {target.name: target for target in every}
    assert len(by_name) == len(every)
    return by_name
