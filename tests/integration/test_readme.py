"""The commands of README.md and docs/quickstart.md are run, in their order, on a small corpus."""

import json
import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from brimful.cli.main import main

ROOT = Path(__file__).parents[2]
GOOD, BAD = ("很好", "满意", "great"), ("很差", "失望", "awful")
FILLER = ["这个", "东西", "物流", "质量", "book", "hotel", "价格", "服务", "the", "room"]


def commands(page: str) -> list[list[str]]:
    """The `brimful` command lines of a page's indented blocks."""
    lines = re.findall(r"^ {4}(?:\.venv/bin/)?brimful (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.M)
    return [shlex.split(line.split("  #")[0]) for line in lines]


def review(rng: random.Random) -> tuple[str, str]:
    label = rng.choice(("pos", "neg"))
    words = [*rng.choices(FILLER, k=rng.randint(3, 20)), rng.choice(GOOD if label == "pos" else BAD)]
    rng.shuffle(words)
    return "".join(words) + "。", label


def write_texts(folder: Path, rng: random.Random, words: str = "") -> None:
    """Files of reviews, each behind some of these words."""
    folder.mkdir()
    for index in range(300):
        text = " ".join(rng.choices(words.split(), k=30)) if words else ""
        (folder / f"{index}.txt").write_text(text + review(rng)[0], encoding="utf-8")


def shorten(arguments: list[str]) -> list[str]:
    if "--trainer.steps" in arguments:
        arguments[arguments.index("--trainer.steps") + 1] = "3"
    return arguments


@pytest.mark.slow
def test_commands_of_continued_pretraining_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path / "general", rng, "the a of in to and book room price")
    write_texts(tmp_path / "reviews", rng, "nice awful hotelroom")
    for arguments in commands("docs/continued-pretraining.md"):
        assert main(shorten(arguments)) == 0, arguments
    summary = json.loads((tmp_path / "runs/reviews/summary.json").read_text(encoding="utf-8"))
    for figures in ("validation_at_start", "validation"):
        assert {"loss.reviews", "loss.replay"} <= summary[figures].keys()


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_commands_of_the_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(page)
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path / "reviews", rng)
    for name in ("table", "train", "test"):
        rows = "".join(f"{text}\t{label}\n" for text, label in (review(rng) for _ in range(120)))
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + rows, encoding="utf-8")
    (tmp_path / "new.txt").write_text("".join(review(rng)[0] + "\n" for _ in range(5)), encoding="utf-8")

    verbs = set()
    for arguments in map(shorten, commands(page)):
        if arguments[0] == "demo":
            continue  # minutes; it has a slow test of its own
        if "--resume" in arguments:
            run = tmp_path / arguments[arguments.index("--resume") + 1]
            (run / "summary.json").unlink()
        elif arguments[0] == "pretrain":
            arguments += ["--rows-per-update", "8", "--validation-tokens", "500"]
        if arguments[0] == "serve":
            arguments += ["--dry-run", "--port", "0"]  # it would serve until a signal ends it
        if "downloaded-model" in arguments:
            shutil.copytree("runs/pretrain/encoder", "downloaded-model")
        assert main(arguments) == 0, arguments
        verbs.add(arguments[0])
    assert {"prepare", "pretrain", "finetune", "distil", "predict", "export", "report", "serve"} <= verbs
    assert len((tmp_path / "labels.tsv").read_text(encoding="utf-8").splitlines()) == 6
    assert (tmp_path / "deploy" / "config.json").exists()
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
