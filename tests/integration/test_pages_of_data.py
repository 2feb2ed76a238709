"""The commands of the pages from raw text to batches run, in their order; the program about packing, too."""

import json
import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from brimful.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
SHORTER = {"100000": "3", "90000:128": "2:128", "10000:512": "1:512"}
WORDS = ["the", "room", "was", "clean", "and", "quiet", "but", "of", "in", "to", "这个", "物流", "很好"]


@pytest.mark.slow
def test_commands_from_text_to_batches_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    monkeypatch.chdir(tmp_path)
    texts = [" ".join(rng.choices(WORDS, k=60)) + ". [edit]\nPage 3 of 9" for _ in range(300)]
    Path("crawl").mkdir()
    Path("mail").mkdir()
    for index, text in enumerate(texts[:200]):
        Path(f"crawl/{index}.txt").write_text(text, encoding="utf-8")
    lines = [json.dumps({"text": text}) + "\n" for text in texts[200:]]
    Path("mail/a.jsonl").write_text("".join(lines), encoding="utf-8")
    for page in ("prepare", "packing", "batches", "formats"):
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        for line in re.findall(r"^ {4}brimful (.+)$", text, re.MULTILINE):
            arguments = [SHORTER.get(word, word) for word in shlex.split(line.replace(".jsonl.gz", ".jsonl"))]
            if arguments[0] == "pretrain":
                arguments += ["--model", "tiny", "--validation-tokens", "500"]
                arguments += [] if "--trainer.steps" in arguments else ["--trainer.steps", "3"]
            if "web:9" in arguments:
                for name in ("web", "mine"):
                    shutil.copytree("data", name)
            assert main(arguments) == 0, line
    counts = json.loads(Path("data2/MANIFEST.json").read_text(encoding="utf-8"))["summary"]
    assert "edit" in str(counts), "the patterns of the page match"


def test_the_program_about_packing_runs() -> None:
    program = re.search(r"```python\n(.*?)```", (DOCS / "packing.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(program[1], names)
    assert sorted(map(sorted, names["rows"])) == [[0, 1, 2, 4], [3]]
