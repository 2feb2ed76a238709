"""What docs/serve.md shows is run: its Python, its curl lines, its way to wait after 429."""

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builders.scripted_server import Answer, scripted_server
from builders.served import LABELS

PAGE = (Path(__file__).parents[2] / "docs/serve.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
CURL = re.findall(r"^ {4}(curl .+)$", PAGE, re.MULTILINE)


def run(code: str, url: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is defined after code of the page has run against a server."""
    names = {} if names is None else names
    exec(code.replace(ADDRESS, url.rstrip("/")), names)
    return names


def test_texts_are_classified(topics, capsys):
    answer = run(CODE[0], topics)["answer"]
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [label for label, _ in printed] == [result["prediction"] for result in answer["results"]]
    assert all(label in LABELS and 1 / 3 <= float(probability) <= 1 for label, probability in printed)


def test_two_vectors_are_compared(vectors, capsys):
    ask = CODE[0].partition("\nanswer = ")[0]
    run(CODE[1], vectors, run(ask, vectors))
    name, cosine = capsys.readouterr().out.split()
    assert name == "cosine"
    assert -1.000001 <= float(cosine) <= 1.000001


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_lines(topics, vectors):
    assert [re.findall(r"/v1/\w+", line) for line in CURL] == [["/v1/classify"], ["/v1/embeddings"]]
    for line, url in zip(CURL, (topics, vectors), strict=True):
        said = subprocess.run(
            ["bash", "-c", line.replace(ADDRESS, url.rstrip("/"))], capture_output=True, check=True
        )
        answer = json.loads(said.stdout)
        if "/v1/classify" in line:
            (shown,) = re.findall(r"^```json\n(.*)\n```", PAGE, re.MULTILINE)
            assert answer.keys() == json.loads(shown).keys()
            assert answer["results"][0].keys() == json.loads(shown)["results"][0].keys()
        else:
            assert len(answer["data"]) == 2


def test_the_metrics(topics):
    with urllib.request.urlopen(f"{topics}metrics") as response:
        metrics = response.read().decode()
    served = set(re.findall(r"^# TYPE (brimful_\w+) ", metrics, re.MULTILINE))
    named = set(re.findall(r"`(brimful_\w+)(?:\{[\w, ]+\})?`", PAGE))
    assert named == {name for name in served if not name.endswith("_created")}


def test_patience(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    full = Answer({"error": {"message": "the queue is full", "code": 429}}, 429, {"Retry-After": "3"})

    def busy(path: str, headers: Mapping[str, str], body: Any) -> Answer:
        return full if len(server.asked) < 4 or body == {"text": "never"} else Answer({"results": []})

    with scripted_server(busy) as server:
        ask = CODE[0].partition("\nanswer = ")[0]
        patient = run(CODE[2], server.url, run(ask, server.url))["ask_patiently"]
        assert patient("/v1/classify", {"text": "a"}) == {"results": []}
        assert len(waits) == 3
        assert all(3 <= wait <= 6 for wait in waits)
        assert len(set(waits)) == 3
        with pytest.raises(RuntimeError, match="the queue is full"):
            patient("/v1/classify", {"text": "never"}, tries=2)
