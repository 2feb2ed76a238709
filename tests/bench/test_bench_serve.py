"""bench.serve: the client counts what becomes of each request, and its latency from when it was due."""

import asyncio
import json
import socket
import threading
import time

import pytest
import torch

from bench.common.turns import Worker
from bench.serve.client import Load, Request
from bench.serve.overload import undeserved
from bench.serve.requests import BROKEN, GOOD, good
from brimful import TaskModel
from brimful.model.heads import SequenceHead
from brimful.tasks.classification import Classification
from builders.bench import bench
from builders.encoders import small, word_tokenizer

TEXTS = ["a b", "c", "d e"]
PAUSE = 0.2


def answer(connection: socket.socket, count: int) -> bool:
    """Read a request and answer it: the third with 429, others with right scores, the fifth not at all."""
    head = b""
    while b"\r\n\r\n" not in head:
        if not (read := connection.recv(1 << 16)):
            return False
        head += read
    head, _, body = head.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    if count == 5:
        return False
    text = json.loads(body)["text"]
    time.sleep(PAUSE)
    scores = {"yes": 0.9 - len(text) / 100, "no": 0.1 + len(text) / 100}
    content = json.dumps({"results": [{"prediction": "yes", "scores": scores}]}).encode()
    status = b"429 Too Many Requests" if count == 3 else b"200 OK"
    connection.sendall(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(content), content))
    return True


@pytest.fixture
def address():
    """A server that has one connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        listening.close()
        with connection:
            for count in range(1, 6):
                if not answer(connection, count):
                    break

    thread = threading.Thread(target=serve)
    thread.start()
    yield listening.getsockname()
    thread.join()


def test_each_request_has_an_outcome(address, tmp_path):
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    rows = [{"prediction": "yes", "probability": 0.9 - len(text) / 100} for text in TEXTS]
    expected = tmp_path / "rows.jsonl"
    expected.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Worker("bench.serve.client") as client:
        client.ask("setup", address=address, texts=str(tmp_path / "texts.json"), batch=1, seed=1)
        row = client.ask("closed", connections=1, duration=60.0, seed=1, most=6)
        assert row["outcomes"] == {GOOD: {"200": 3, "429": 1, "lost": 1, "refused": 1}}
        assert 1000 * PAUSE <= row["p50_ms"] < 2000 * PAUSE
        assert row["texts"] == 3
        found = client.ask("check", expected=[str(expected)], tolerance=1e-6)
        assert found["wrong"] == 0
        assert found["compared"] == found["same_label"] >= 1


def test_a_latency_counts_from_when_the_request_was_due(address):
    async def late() -> list[float]:
        load = Load(*address)
        (_, payload), *_ = good(TEXTS, 1, seed=1)
        load.dispatch(Request(GOOD, 0, payload, due=time.monotonic() - 5))
        await load.over()
        load.idle.pop().transport.abort()
        return list(load.latencies)

    (latency,) = asyncio.run(late())
    assert 5 + PAUSE <= latency < 7


def test_only_deserved_outcomes_pass():
    outcomes = {GOOD: {"200": 5, "429": 5, "503": 1}, "10 MB": {"413": 2, "lost": 1}, "not UTF-8": {"400": 1}}
    assert undeserved({"outcomes": outcomes}) == {GOOD: {"503": 1}, "10 MB": {"lost": 1}}
    assert undeserved({"outcomes": outcomes}, ends=True) == {}
    assert undeserved({"outcomes": {kind: {"200": 1} for kind in BROKEN}}).keys() == BROKEN.keys()


@pytest.mark.slow
def test_each_question_has_rows(tmp_path):
    torch.manual_seed(1)
    encoder = small("bert", vocabulary_size=95, layers=1)
    encoder.tokenizer = word_tokenizer()
    TaskModel(Classification(["a", "b"]), encoder, SequenceHead(encoder, 2), 32, pairs=False).save(
        tmp_path / "model"
    )
    test, out = tmp_path / "test.tsv", tmp_path / "serve.json"
    test.write_text("text\tlabel\n" + "".join(f"w{i} w{i + 1}\t{'ab'[i % 2]}\n" for i in range(80)))
    sizes = ("--rounds", "1", "--seconds", "1", "--overload-seconds", "2", "--texts", "400", "--batch", "32")
    done = bench("bench.serve", str(tmp_path / "model"), "--test", str(test), *sizes, "--out", str(out))
    assert done.returncode == 0, done.stderr
    rows: dict[str, list[dict]] = {}
    for row in json.loads(out.read_text())["rows"]:
        rows.setdefault(row["question"], []).append(row)
    assert [row["of"] for row in rows["cost"]] == ["predict", "serve 1", "serve 32"]
    assert all(
        row["cpu_per_1000"] > 0 for row in rows["cost"][1:]
    )  # a few texts cost predict less than noise
    assert [row["share"] for row in rows["latency"][:3]] == [0.5, 0.8, 0.95]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows["latency"])
    for (row,) in (rows["answers"], rows["overload"]):
        assert row["compared"] > row["wrong"] == 0
    assert rows["drain"][0]["exit"] == 0
