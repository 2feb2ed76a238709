"""The commands and programs of the pages from choosing to distilling are run, in their order."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from brimful.cli.main import main
from builders.verbs import labelled_rows

DOCS = Path(__file__).parents[2] / "docs"
PIECE = re.compile(r"^ {4}brimful ((?:[^\n]*\\\n)*[^\n]*)$|^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUICK = {"finetune": ["--epochs", "1"], "evaluate": ["--epochs", ".5"], "distil": ["--logits.epochs", ".2"]}


def write_files(folder: Path) -> None:
    """The files that the pages name, all of the same texts."""
    (folder / "MNLI").mkdir()
    labels = {"low": "neutral", "high": "entailment"}
    rows = [(row["text"], row["text"].split()[0], labels[row["label"]]) for row in labelled_rows(150, seed=1)]
    lines = ["\t".join(row) for row in rows]
    for name in ("MNLI/train", "MNLI/dev_matched", "MNLI/dev_mismatched", "MNLI/test_matched"):
        (folder / f"{name}.tsv").write_text("\n".join(["sentence1\tsentence2\tgold_label", *lines, ""]))
    (folder / "entities.tsv").write_text("\n".join(["sentence\tentity\topinion", *lines, ""]))
    for name in ("table", "train", "test"):
        lines = ["text\tlabel", *(f"{text}\t{label}" for text, _, label in rows), ""]
        (folder / f"{name}.tsv").write_text("\n".join(lines))
    for name in ("reviews", "news", "new"):
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text, *_ in rows))
    spans = [{"text": text, "spans": [[0, len(word), label]]} for text, word, label in rows]
    (folder / "spans.jsonl").write_text("\n".join(map(json.dumps, spans)))
    answers = [
        {"question": "What?", "context": text, "answers": {"text": [word], "answer_start": [0]}}
        for text, word, _ in rows
    ]
    for name in ("questions", "more"):
        (folder / f"{name}.json").write_text(json.dumps(answers))


@pytest.mark.slow
def test_commands_of_the_pages_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "work").mkdir()
    monkeypatch.chdir(folder)
    write_files(folder)
    assert main(shlex.split("prepare reviews.txt --read.split line --out data --tokenizer train:400")) == 0
    model = "--model mini --packing.max-length 384 --trainer.steps 2 --rows-per-update 4"
    assert main(shlex.split(f"pretrain --data data --out runs/pretrain {model}")) == 0
    for name in ("encoder", "downloaded-model", "../multilingual-e5-small", "runs/a", "runs/b"):
        shutil.copytree("runs/pretrain" if name.startswith("runs") else "runs/pretrain/encoder", name)
    for page in ("choose", "finetune", "evaluate", "distil", "published-encoders"):
        for command, program in PIECE.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
            if program:
                exec(program, {})
                continue
            arguments = shlex.split(command.replace("\\\n", " ").replace("--copies 20", "--copies 2"))
            if "--resume" in arguments:
                Path(arguments[-1], "summary.json").unlink()
            else:
                arguments += QUICK.get(arguments[0], [])
                if "--out" in arguments:  # several pages make the same run
                    shutil.rmtree(arguments[arguments.index("--out") + 1], ignore_errors=True)
            assert main(arguments) == 0, (page, arguments)
