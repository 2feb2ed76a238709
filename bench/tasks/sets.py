"""The public sets of docs/results/scores.md: their files, as `brimful finetune` takes them.

Most are read as their repositories have them. Two are cut here, by rules that do not depend on the machine:
news by company, and questions by article.
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEST_SHARE = 0.2
"""The share of companies, and of articles, whose rows are test."""


@dataclass(frozen=True)
class TaskSet:
    """A public set.

    Attributes:
        language: en or zh.
        source: the repository on GitHub that its files are from.
        files: train, test and, if there is one, dev: paths below the folder of all sets.
        options: options of `brimful finetune`.
        seeds: trainings of each encoder, with seeds from 0.
    """

    language: str
    source: str
    files: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    seeds: int = 1


def place(folder: str, **files: str) -> dict[str, str]:
    """Return the paths of files by part, below the folder of all sets."""
    return {part: f"{folder}/{file}" for part, file in files.items()}


FEW_CLUE = {"train": "train_few_all.json", "dev": "dev_few_all.json", "test": "test_public.json"}
RESUME = {"train": "train.char.bmes", "dev": "dev.char.bmes", "test": "test.char.bmes"}
WNUT17 = {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}
NEWS = {"columns.text": "标题", "columns.text-b": "公司", "columns.label": "正负面"}
NAMES = {"task": "token-classification", "max-length": 128}
SETS = {
    "ocnli": TaskSet(
        "zh",
        "CLUEbenchmark/OCNLI",
        place("ocnli", train="train.10k.json", test="dev.json"),
        {"layout": "clue/ocnli", "max-length": 128, "epochs": 3},
        seeds=3,
    ),
    "tnews": TaskSet(
        "zh",
        "CLUEbenchmark/FewCLUE",
        place("fewclue/tnews", **FEW_CLUE),
        {"layout": "clue/tnews", "max-length": 64, "epochs": 8},
    ),
    "eprstmt": TaskSet(
        "zh",
        "CLUEbenchmark/FewCLUE",
        place("fewclue/eprstmt", **FEW_CLUE),
        {"columns.text": "sentence", "max-length": 128, "epochs": 20},
        seeds=3,
    ),
    "hotels": TaskSet(
        "zh",
        "SophonPlus/ChineseNlpCorpus",
        place("hotel_reviews", train="ChnSentiCorp_htl_all.csv"),
        {"columns.text": "review", "max-length": 128, "epochs": 3},
    ),
    "news": TaskSet(
        "zh",
        "wwwxmu/Dataset-of-financial-news-sentiment-classification",
        {"train": "news-train.csv", "test": "news-test.csv"},
        NEWS | {"max-length": 64, "epochs": 8},
        seeds=3,
    ),
    "cmrc": TaskSet(
        "zh",
        "ymcui/cmrc2018",
        {"train": "cmrc-train.json", "test": "cmrc-test.json"},
        {"layout": "clue/cmrc", "max-length": 384, "epochs": 4},
        seeds=3,
    ),
    "resume": TaskSet(
        "zh", "jiesutd/LatticeLSTM", place("resume_ner", **RESUME), NAMES | {"epochs": 6}, seeds=3
    ),
    "mrpc": TaskSet(
        "en",
        "wasiahmad/paraphrase_identification",
        place("mrpc", train="msr_paraphrase_train.txt", test="msr_paraphrase_test.txt"),
        {"layout": "glue/mrpc", "max-length": 128, "epochs": 4},
        seeds=3,
    ),
    "cola": TaskSet(
        "en",
        "nyu-mll/CoLA-baselines",
        place("cola", train="in_domain_train.tsv", test="in_domain_dev.tsv"),
        {"layout": "glue/cola", "max-length": 64, "epochs": 4},
    ),
    "sst2": TaskSet(
        "en",
        "clairett/pytorch-sentiment-classification",
        place("sst2", train="train.tsv", dev="dev.tsv", test="test.tsv"),
        {"columns.text": "1", "columns.label": "2", "max-length": 64, "epochs": 3},
    ),
    "banking77": TaskSet(
        "en",
        "PolyAI-LDN/task-specific-datasets",
        place("banking77", train="train.csv", test="test.csv"),
        {"columns.label": "category", "max-length": 64, "epochs": 6},
    ),
    "wnut17": TaskSet(
        "en", "leondz/emerging_entities_17", place("wnut17", **WNUT17), NAMES | {"epochs": 4}, seeds=3
    ),
}


def is_test(key: str) -> bool:
    """Whether a company or an article is test: by a hash of its name."""
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:4], "big") < TEST_SHARE * 2**32


def write_table(path: Path, names: Sequence[str], rows: Iterable[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def cut_news(data: Path, out: Path) -> None:
    """Cut the financial news by company: its titles with the company, positive or negative."""
    with (data / "financial_news/test_data.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    names = ("标题", "公司", "正负面")
    write_table(out / "news-train.csv", names, (row for row in rows if not is_test(row["公司"])))
    write_table(out / "news-test.csv", names, (row for row in rows if is_test(row["公司"])))


def cut_questions(data: Path, out: Path) -> None:
    """Cut CMRC's dev set by article."""
    whole = json.loads((data / "cmrc2018/squad-style/cmrc2018_dev.json").read_text(encoding="utf-8"))
    parts: dict[str, list[Any]] = {"cmrc-train.json": [], "cmrc-test.json": []}
    for article in whole["data"]:
        parts["cmrc-test.json" if is_test(article["title"]) else "cmrc-train.json"].append(article)
    for name, articles in parts.items():
        text = json.dumps({"version": whole["version"], "data": articles}, ensure_ascii=False)
        (out / name).write_text(text, encoding="utf-8")


def find_files(name: str, data: Path, work: Path) -> dict[str, Path]:
    """Return the tables of a set by part, after cutting those that are cut here."""
    work.mkdir(parents=True, exist_ok=True)
    if name == "news":
        cut_news(data, work)
    elif name == "cmrc":
        cut_questions(data, work)
    files = {}
    for part, file in SETS[name].files.items():
        files[part] = work / file if (work / file).is_file() else data / file
    return files


def hash_sources(name: str, data: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that a set is made of, by its path in the folder of all sets."""
    sources = {"news": ["financial_news/test_data.csv"], "cmrc": ["cmrc2018/squad-style/cmrc2018_dev.json"]}
    hashes = {}
    for file in sources.get(name, SETS[name].files.values()):
        hashes[file] = hashlib.sha256((data / file).read_bytes()).hexdigest()
    return hashes
