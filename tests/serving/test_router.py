"""semantic-router's `http_classify`: requests as it sends them, answers checked as its contracts demand."""

import json
import math
import urllib.request
from typing import Any

import pytest

from builders.served import LABELS

TEXTS = [
    "w1 w2 w3",
    "",
    " \n\t ",
    "😀 w1 w2\r\n w3 👩🏽‍💻 w4 𝒳 w5\u2028w6",
    "王小明 w7 w8 Café e\u0301 w9",
    "<script>w1</script> \"w2\" 'w3' \\ w4 \x00 w5",
    "w80 w81 w82 w83 w84 w85 w86 w87 w88 w89",
    "😀 " + " ".join(f"w{n % 90}" for n in range(200)),
]
PATHS = ["classify", "v1/classify"]


def routed(url: str, text: str) -> Any:
    """The answer to the one request that the router sends."""
    body = json.dumps({"inputs": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200
        return json.load(response)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", TEXTS)
def test_label_distribution_v1(topics: str, path: str, text: str) -> None:
    answer = routed(topics + path, text)
    assert all(set(entry) == {"label", "score"} for entry in answer)
    assert sorted(entry["label"] for entry in answer) == sorted(LABELS)
    scores = [entry["score"] for entry in answer]
    assert all(type(score) is float and 0 <= score <= 1 for score in scores)
    assert math.isclose(sum(scores), 1, abs_tol=1e-5)
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", TEXTS)
def test_token_spans_v1(names: str, path: str, text: str) -> None:
    answer = routed(names + path, text)
    assert set(answer) <= {"spans", "truncated_at", "model"}
    assert answer["model"] == "names"
    read = answer.get("truncated_at", len(text))
    assert 0 <= read <= len(text)
    end = 0
    for span in answer["spans"]:
        assert set(span) == {"label", "start", "end", "text", "score"}
        assert span["label"] in ("PERSON", "PLACE")
        assert end <= span["start"] < span["end"] <= read  # in order, none overlaps, none is empty
        assert span["text"] == text[span["start"] : span["end"]]
        assert 0 <= span["score"] <= 1
        end = span["end"]
    assert answer["spans"] or "w" not in text  # the random weights find some: else this tests nothing
    assert ("truncated_at" in answer) == (len(text.split()) > 32)
