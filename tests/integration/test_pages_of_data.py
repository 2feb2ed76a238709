"""The commands of the pages from raw text to batches run, in their order; the program about packing, too."""

import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from brimful.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
SHORTER = {"100000": "3", "90000:128": "2:128", "10000:512": "1:512", "mail/*.jsonl.gz": "crawl/*.txt"}


@pytest.mark.slow
def test_commands_from_text_to_batches_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["the", "room", "was", "clean", "but", "of", "in", "to", "这个", "物流"]
    Path("crawl").mkdir()
    for seed in range(200):
        text = " ".join(random.Random(seed).choices(words, k=60))
        Path(f"crawl/{seed}.txt").write_text(f"{text}. [edit]\nPage 3 of 9", encoding="utf-8")
    names = ("prepare", "packing", "batches", "formats")
    pages = "".join((DOCS / f"{name}.md").read_text("utf-8") for name in names)
    for line in re.findall(r"^ {4}brimful (.+)$", pages, re.MULTILINE):
        arguments = [SHORTER.get(word, word) for word in shlex.split(line)]
        if arguments[0] == "pretrain":
            arguments += ["--model", "tiny"]
            arguments += [] if "3" in arguments else ["--trainer.steps", "3"]
        if "web:9" in arguments:
            shutil.copytree("data", "web")
            shutil.copytree("data", "mine")
        assert main(arguments) == 0, line
    assert "edit" in Path("data2/MANIFEST.json").read_text("utf-8"), "the patterns of the page match"


def test_the_program_about_packing_runs() -> None:
    names: dict = {}
    exec((DOCS / "packing.md").read_text("utf-8").split("```python\n")[1].split("```")[0], names)
    assert sorted(map(sorted, names["rows"])) == [[0, 1, 2, 4], [3]]
