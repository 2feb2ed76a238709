"""The commands and programs of the pages from choosing to distilling are run, in their order."""

import json
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
PIECE = re.compile(r"^ {4}brimful ((?:[^\n]*\\\n)*[^\n]*)$|^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUICK = {"finetune": ["--epochs", "1"], "evaluate": ["--epochs", ".5"], "distil": ["--logits.epochs", ".2"]}
FILES = {  # each name with its first line
    "train.tsv dev_matched.tsv dev_mismatched.tsv test_matched.tsv": "sentence1\tsentence2\tgold_label\n",
    "../entities.tsv": "sentence\tentity\topinion\n",
    "../table.tsv ../train.tsv ../test.tsv": "text\tentity\tlabel\n",
    "../reviews.txt ../news.txt ../new.txt": "",
}


def write_files(folder: Path) -> None:
    rows = [(row["text"], row["text"].split()[0], row["label"]) for row in labelled_rows(150, seed=1)]
    lines = ["\t".join(row).replace("low", "neutral").replace("high", "entailment") + "\n" for row in rows]
    spans = [{"text": text, "spans": [[0, len(word), label]]} for text, word, label in rows]
    answers = [{"text": [word], "answer_start": [0]} for _, word, _ in rows]
    texts = [{"question": "?", "context": row[0], "answers": a} for row, a in zip(rows, answers, strict=True)]
    (folder / "MNLI").mkdir(parents=True)
    for names, header in FILES.items():
        for name in names.split():
            text = "".join(lines) if header else "".join(lines).replace("\t", " ")
            (folder / "MNLI" / name).write_text(header + text, encoding="utf-8")
    (folder / "spans.jsonl").write_text("\n".join(map(json.dumps, spans)), encoding="utf-8")
    for name in ("questions", "more"):
        (folder / f"{name}.json").write_text(json.dumps(texts), encoding="utf-8")


@pytest.mark.slow
def test_commands_of_the_pages_run(chained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    shutil.copytree(chained, "data")
    encoder = thin_encoder(chained, hidden_size=192, layers=4, heads=4, max_length=384)
    runs = ("runs/pretrain/encoder", "runs/a/encoder", "runs/b/encoder")
    for name in ("encoder", "downloaded-model", "../multilingual-e5-small", *runs):
        save_model(Path(name), encoder, MaskedLMHead(encoder))
    for page in ("choose", "finetune", "evaluate", "distil", "published-encoders"):
        for command, program in PIECE.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
            arguments = shlex.split(command.replace("\\\n", " ").replace("--copies 20", "--copies 2"))
            exec(program, {})
            if "--resume" in arguments:
                Path(arguments[-1], "summary.json").unlink()
            elif "--out" in arguments:  # several pages make the same run
                shutil.rmtree(arguments[arguments.index("--out") + 1], ignore_errors=True)
                arguments += QUICK.get(arguments[0], [])
            assert not arguments or main(arguments) == 0, (page, arguments)
