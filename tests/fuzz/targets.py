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
    for name, files in (("bert", "bert/*token*"), ("pickled", "pickled/*[!n]"), ("bpe", "bpe/*")):
        line = f"prepare docs.txt --read.split line --tokenizer {name} {end}"
        yield Target(f"prepare-tokenizer-{name}", group, line, (files,))
    line = f"prepare docs.txt --read.split line --tokenizer data --lexicon words.txt {end}"
    yield Target("prepare-lexicon", group, line, ("words.txt",))
    again = (
        "prepare {material}/docs.txt {material}/plain.txt --read.split line --out data --tokenizer train:250"
        " --workers 1 --validation-share 0.1 --json"
    )
    for part in ("text", "dedup", "shards"):
        yield Target(
            f"prepare-again-{part}",
            "prepare again",
            again,
            (f"data/{part}/*",),
            answer=("data/shards/*",),
            checked=True,
        )
    records = ("data/MANIFEST.json", "data/plan.json", "data/config.yaml", "data/token*")
    yield Target("prepare-again-records", "prepare again", again, records, answer=("data/shards/*",))


def _looks() -> Iterator[Target]:
    group = "inspect, pack"
    records = ("data/shards/*", "data/text/*", "data/dedup/*")
    yield Target("inspect-verify-corpus", group, "inspect data --verify --json", records, must_refuse=True)
    yield Target(
        "inspect-verify-checkpoints",
        group,
        "inspect half-run --verify --json",
        ("half-run/checkpoints/*/*",),
        must_refuse=True,
    )
    yield Target(
        "inspect-verify-export",
        group,
        "inspect export-hf --verify --json",
        ("export-hf/*",),
        must_refuse=True,
    )
    yield Target(
        "inspect-verify-trials",
        group,
        "inspect half-ft --verify --json",
        ("half-ft/trials/*/*/*/*/*", "half-ft/trials/*/*/result/*"),
    )
    yield Target("inspect-corpus", group, "inspect data --json", ("data/*/*",), checked=True)
    yield Target("inspect-records", group, "inspect data --json", ("data/*.json", "data/*.yaml"))
    yield Target("inspect-run", group, "inspect run --update 1 --json", ("run/*.*", "run/encoder/*.json"), 2)
    pack = "pack --data data --capacity 64 --max-length 32 --json"
    yield Target("pack", group, pack, ("data/shards/*", "data/*.json"))


def _pretrain() -> Iterator[Target]:
    group = "pretrain: shards, start, resume"
    new = f"--out out {PRETRAINING.replace('steps 3', 'steps 1')}"
    weights = ("out/encoder/model.safetensors",)
    shards = ("data/shards/*", "data/token*")
    tiny = NEW_MODEL
    yield Target(
        "pretrain-shards", group, f"pretrain --data data {tiny} {new}", shards, 2, weights, checked=True
    )
    yield Target("pretrain-records", group, f"pretrain --data data {tiny} {new}", ("data/*.json",), 1)
    yield Target(
        "pretrain-mixture", group, f"pretrain --data data:2 other:1 {tiny} {new}", ("other/shards/*",), 1
    )
    for name in ("run/encoder", "bert", "modern"):
        line = f"pretrain --data data --start-from {name} {new}"
        yield Target(f"pretrain-from-{name.split('/')[0]}", group, line, (f"{name}/*",), 2)
    resumed = ("half-run/encoder/model.safetensors",)
    yield Target(
        "pretrain-resume",
        group,
        "pretrain --resume half-run --json",
        ("half-run/checkpoints/*/*", "half-run/*/data/*"),
        3,
        resumed,
        checked=True,
    )
    yield Target(
        "pretrain-resume-start",
        group,
        "pretrain --resume half-run --json",
        ("half-run/start/*", "half-run/*.yaml"),
        2,
    )
    yield Target(
        "evaluate-text", group, "evaluate bert --text data --out out --json", ("data/shards/*", "bert/*"), 2
    )


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
    for name, options, train in (
        ("rows", "", "rows.csv"),
        ("numbers", "--task regression", "numbers.jsonl"),
        ("many", "--task multi-label", "many.jsonl"),
        ("spans", "--task token-classification", "spans.jsonl"),
        ("questions", "--task question-answering", "squad.json"),
    ):
        line = f"finetune --encoder bert --out out {options} --train {train} --test {train} {TRAINING}"
        yield Target(f"finetune-{name}", group, line, (train,), 1)
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
    yield Target("distil-teacher", group, line, ("export-hf/*",), 1, checked=True, answer=("out/model/*",))
    group = "finetune, distil: resume, cache"
    for verb, run in (("finetune", "half-ft"), ("distil", "half-student")):
        weights = (f"{run}/model/*.safetensors",)
        states = (f"{run}/*/*/*/checkpoints/*/*", f"{run}/*/*/*/result/*")
        yield Target(
            f"{verb}-resume", group, f"{verb} --resume {run} --json", states, 2, weights, checked=True
        )
        others = (f"{run}/start/*", f"{run}/*.*", f"{run}/*/*/*/metrics.jsonl")
        yield Target(f"{verb}-resume-records", group, f"{verb} --resume {run} --json", others, 1)
    line = (
        f"BRIMFUL_CACHE=cache finetune --encoder bert --out out --train rows.tsv --test rows.jsonl {TRAINING}"
    )
    yield Target("finetune-cache", group, line, ("cache/*/*",), 2, ("out/model/*.safetensors",), checked=True)
    group = "distil: unlabelled"
    for kind in ("txt", "jsonl", "csv"):
        line = f"distil --teacher export-hf --unlabelled plain.{kind} --out out {tables}"
        yield Target(f"distil-unlabelled-{kind}", group, line, (f"plain.{kind}",), 1)


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
    for model, files in inputs.items():
        for file in files.split():
            name, out = model.split("/")[0], f"out.{kinds.get(model, 'jsonl')}"
            line = f"predict --model {model} --input {file} --output {out} --json"
            yield Target(f"predict-{name}-{file}", "predict: inputs", line, (file,), answer=("out.*",))
    group = "predict: other models"
    for model in ("export-hf", "export-sentence-transformers"):
        line = f"predict --model {model} --input plain.jsonl --output out.parquet --json"
        yield Target(f"predict-{model}", group, line, (f"{model}/*",), 6, ("out.*",), checked=True)
    for model in (*FAMILIES, "pickled"):
        line = f"predict --model {model} --input plain.jsonl --output out.jsonl --json"
        yield Target(f"predict-{model}", group, line, (f"{model}/*",), answer=("out.*",))
    for model, file in (
        ("ft", "plain.txt"),
        ("numeric", "plain.csv"),
        ("several", "plain.txt"),
        ("tagger", "plain.txt"),
        ("reader", "questions.jsonl"),
    ):
        line = f"predict --model {model} --input {file} --output out.jsonl --json"
        yield Target(
            f"predict-{model}-model",
            group,
            line,
            (f"{model}/model/*", f"{model}/summary.json"),
            answer=("out.*",),
        )


def _ends() -> Iterator[Target]:
    group = "export"
    yield Target(
        "export-run",
        group,
        "export ft --out out --format hf --json",
        ("ft/model/*", "ft/*.*"),
        answer=("out/*",),
    )
    line = "export run --out out --format sentence-transformers --json"
    yield Target("export-encoder", group, line, ("run/encoder/*", "run/*.*"), answer=("out/*",))
    yield Target(
        "export-step",
        group,
        "export run --step 3 --out out --json",
        ("run/checkpoints/*/*",),
        3,
        ("out/*",),
        checked=True,
    )
    for name in ("bert", "modern"):
        yield Target(
            f"export-{name}", group, f"export {name} --out out --json", (f"{name}/*",), answer=("out/*",)
        )
    for name in ("pickled", "roberta", "electra"):
        yield Target(
            f"export-{name}", group, f"export {name} --out out --json", (f"{name}/*",), 2, ("out/*",)
        )
    for run in ("ft", "run", "student", "reader", "half-ft"):
        files = (f"{run}/*.*", f"{run}/*/*/*/metrics.jsonl", f"{run}/model/config.json")
        yield Target(f"report-{run}", "report", f"report {run} --out out.html --json", files, 2)
    yield Target("report-two", "report", "report ft run --out out.html --json", ("ft/*.*", "run/*.*"), 1)
    group = "--config"
    needs = {
        "prepare": "docs.txt data",
        "pretrain": "data",
        "finetune": "bert rows.tsv rows.jsonl",
        "distil": "ft",
        "predict": "ft plain.jsonl",
        "export": "ft",
        "report": "ft",
        "pack": "data",
    }
    dear = ("pretrain", "finetune", "distil")
    for verb, read in needs.items():
        dry = " --dry-run" if verb in dear else ""
        line = f"{verb} --config {verb}.yaml{dry} --json"
        weight = 8 if verb in dear else WEIGHT
        yield Target(f"config-{verb}", group, line, (f"{verb}.yaml",), weight, also=read)


def targets() -> dict[str, Target]:
    """All targets by name."""
    every = [*_prepare(), *_looks(), *_pretrain(), *_tables(), *_models(), *_predict(), *_ends()]
    found = {target.name: target for target in every}
    assert len(found) == len(every)
    return found
