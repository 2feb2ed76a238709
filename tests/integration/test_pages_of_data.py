"""The commands of the pages of data, and of the pages of tasks, run in their order; their programs, too."""

import json
import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from brimful.cli.main import main
from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead
from builders.thin_encoders import thin_encoder
from builders.verbs import labelled_rows

DOCS = Path(__file__).parents[2] / "docs"
SHORTER = {"100000": "3", "90000:128": "2:128", "10000:512": "1:512", "mail/*.jsonl.gz": "crawl/*.txt"}
PIECE = re.compile(r"^ {4}brimful ((?:[^\n]*\\\n)*[^\n]*)$|^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUICK = {"finetune": ["--epochs", "1"], "evaluate": ["--epochs", ".5"], "distil": ["--logits.epochs", ".2"]}
TABLES = "table train test entities MNLI/train MNLI/dev_matched MNLI/dev_mismatched MNLI/test_matched"
COLUMNS = "text\tsentence\tsentence1\tentity\tsentence2\tlabel\topinion\tgold_label"


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


@pytest.mark.slow
def test_commands_of_tasks_run(chained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work" / "MNLI").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    lines, records = [COLUMNS], []
    for row in labelled_rows(150, seed=1):
        text, label = row["text"], "neutral" if row["label"] == "low" else "entailment"
        word = text.split()[0]
        lines.append("\t".join([text] * 3 + [word] * 2 + [label] * 3))
        spans, answers = [[0, len(word), label]], {"text": [word], "answer_start": [0]}
        records.append({"text": text, "spans": spans, "question": "?", "context": text, "answers": answers})
    files = {f"{name}.tsv": "\n".join(lines) for name in TABLES.split()}
    files |= dict.fromkeys(["reviews.txt", "news.txt", "new.txt"], "\n".join(row["text"] for row in records))
    files |= dict.fromkeys(["questions.json", "more.json"], json.dumps(records))
    for name, content in (files | {"spans.jsonl": "\n".join(map(json.dumps, records))}).items():
        Path(name).write_text(content, encoding="utf-8")
    shutil.copytree(chained, "data")
    encoder = thin_encoder(chained, hidden_size=192, layers=4, heads=4, max_length=384)
    for name in ("runs/pretrain", "runs/a", "runs/b", "downloaded-model", "../multilingual-e5-small", ""):
        save_model(Path(name, "encoder" if name[:4] in ("runs", "") else ""), encoder, MaskedLMHead(encoder))
    for page in ("choose", "finetune", "evaluate", "distil", "published-encoders"):
        for command, program in PIECE.findall((DOCS / f"{page}.md").read_text("utf-8")):
            arguments = shlex.split(command.replace("\\\n", " ").replace("--copies 20", "--copies 2"))
            exec(program, {})
            if "--resume" in arguments:
                Path(arguments[-1], "summary.json").unlink()
            elif "--out" in arguments:  # several pages make the same run
                shutil.rmtree(arguments[arguments.index("--out") + 1], ignore_errors=True)
                arguments += QUICK.get(arguments[0], [])
            assert not arguments or main(arguments) == 0, (page, arguments)
