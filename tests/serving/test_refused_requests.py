"""A request that cannot be answered gets its own error, one line of JSON, and disturbs no other one."""

import asyncio
import json
import threading
from typing import Any

import httpx2
import pytest

from brimful.base.errors import NotFiniteError
from brimful.serving.batch_model import BatchModel
from builders.http_app import Asked, asked
from builders.task_models import new_encoder, task_model

CLASSIFY, EMBEDDINGS = "/v1/classify", "/v1/embeddings"
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def server(quick):
    with asked(quick) as found:
        yield found


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b'{"text": "\xff\xfe"}', 400, "not UTF-8"),
        (b'{"text": ', 400, "not JSON"),
        (b"", 400, "not JSON"),
        (b"[" * 100_000, 422, "Expected `object`, got `array`"),
        (b'{"texts": ' + b"[" * 100_000, 422, "texts[0]"),
        (rb'{"text": "\ud800 w1"}', 400, "surrogate"),
        (b'{"text": "a", "text": "b"}', 422, "text is there twice"),
        ({}, 422, "one of text and texts is needed, not none"),
        ({"text": "a", "texts": ["a"]}, 422, "not both"),
        ({"text": "a", "colour": 1}, 422, "colour"),
        ({"text": 1}, 422, "Expected `str | null`, got `int` - at `$.text`"),
        ({"texts": ["a", None]}, 422, "Expected `str`, got `null` - at `$.texts[1]`"),
        ({"text": "a", "overflow": "wrap"}, 422, "wrap"),
        ({"text": "a", "abstain_below": 2}, 422, "abstain_below"),
        ({"text": "a", "text_b": "b"}, 422, "alone"),
        ({"texts": ["a"], "text_b": "b"}, 422, "text_b goes with text"),
        ({"text": "a", "text_b": "b", "texts_b": ["c"]}, 422, "texts_b with texts"),
        ({"texts": ["a"], "texts_b": []}, 422, "1 texts"),
        ({"text": "a", "model": "other"}, 404, "quick"),
        ({"texts": ["a"] * 10_000}, 422, "10,000"),
        ({"text": "w1 " * (5 * MEGABYTE // 3)}, 413, "characters"),
        ({"text": "w1 " * (10 * MEGABYTE // 3)}, 413, "bytes"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_bad_body_is_refused_in_one_line(server, body, status, said):
    found, message = server.refused(CLASSIFY, body)
    assert found == status
    assert said in message
    assert len(message) < 300


def test_a_mark_before_json_is_read(server):
    assert server.post(CLASSIFY, b'\xef\xbb\xbf{"text": "w1"}\r\n').status_code == 200
    for once in (b'{"text": "\\"text\\": 1"}', b'{"texts": ["text", "text", "texts"]}'):  # no field twice
        assert server.post(CLASSIFY, once).status_code == 200


def test_odd_texts_are_answered(server):
    for text in ("", "\x00", "a\x00b", "\u2028", "\U0010ffff"):
        assert server.ask(CLASSIFY, text=text)["results"][0]["prediction"] in "abc"


def test_paths_and_methods_are_refused_as_json(server):
    for path in ("/v2/classify", "/health/", "/../../etc/passwd"):  # no way to another address
        assert error_of(server.get(path)) == (404, "not_found")
    assert server.get(CLASSIFY).status_code == 405


def test_a_fault_of_the_server_is_json_too(server, monkeypatch, capsys):
    monkeypatch.setattr(server.service, "models", None)
    response = server.get("/v1/models")
    assert (response.status_code, response.json()["error"]["type"]) == (500, "internal")
    assert "AttributeError" in capsys.readouterr().err


QUESTION = {"text": "w1", "text_b": "w2", "model": "question-answering"}
CANNOT: list[tuple[str, dict[str, Any], str]] = [
    (CLASSIFY, {"text": "a", "model": "encoder"}, "vectors"),
    (CLASSIFY, {"text": "w1", "model": "question-answering"}, "text_b"),
    (CLASSIFY, {**QUESTION, "abstain_below": 0.5}, "abstain_below"),
    (CLASSIFY, {"text": "w1"}, "several models"),
    (EMBEDDINGS, {"input": "a", "dimensions": 49, "model": "encoder"}, "48 dimensions"),
    (EMBEDDINGS, {"input": "a", "inputs": "a", "model": "encoder"}, "unknown field `inputs`"),
    (EMBEDDINGS, {"input": [1, 2], "model": "encoder"}, "check_embedding_ctx_length=False"),
]


def test_what_a_model_cannot_do_is_said(tmp_path):
    new_encoder().save(tmp_path / "encoder")
    for task in ("question-answering", "token-classification"):
        task_model(task).save(tmp_path / task)
    with asked(*sorted(tmp_path.iterdir())) as server:
        for path, body, words in CANNOT:
            assert words in server.refused(path, body)[1]
        assert "token ids" not in server.refused(EMBEDDINGS, {"input": [None], "model": "encoder"})[1]
        # A first text without room for windows of the second: its own error, beside a good one.
        crowded = {**QUESTION, "text": "w1 " * 40, "text_b": "w2 " * 40}
        both = server.post_all(CLASSIFY, crowded, QUESTION)
        assert [response.status_code for response in both] == [422, 200]


def hold(server: Asked) -> threading.Event:
    """Keep the engine busy until the event is set."""
    release = threading.Event()
    server.service.queue.call(release.wait)
    return release


def error_of(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["type"]


def test_a_full_queue_and_a_draining_server_refuse_and_answer_what_they_accepted(quick):
    with asked(quick, queue_requests=2) as server:
        release, queue = hold(server), server.service.queue

        async def talk(client: Any) -> list[Any]:
            accepted = [asyncio.create_task(client.post(CLASSIFY, json={"text": "w1"})) for _ in range(2)]
            while queue.requests < 2:
                await asyncio.sleep(0.01)
            full = await client.post(CLASSIFY, json={"text": "w2"})
            queue.closed = True
            refused = await client.post(CLASSIFY, json={"text": "w2"})
            health = await client.get("/health")
            release.set()
            return [full, refused, health, *await asyncio.gather(*accepted)]

        full, refused, health, *answers = server.run(talk)
        assert (error_of(full), int(full.headers["retry-after"]) >= 1) == ((429, "overloaded"), True)
        assert error_of(refused) == (503, "draining")
        assert (health.status_code, health.json()) == (503, {"status": "draining"})
        assert [response.status_code for response in answers] == [200, 200]


def test_a_client_that_closes_hears_what_is_refused_after_its_body_was_read(quick):
    with asked(quick) as server:

        async def talk(client: Any) -> int:
            post = client.post(CLASSIFY, json={"nothing": "w1"}, headers={"Connection": "close"})
            return (await asyncio.wait_for(post, 30)).status_code

        assert server.run(talk) == 422


def test_an_answer_has_so_many_scores_at_most_and_the_likeliest_on_request(quick, monkeypatch):
    monkeypatch.setattr("brimful.serving.app.LARGE_ANSWER_NUMBERS", 2)  # written in another thread
    with asked(quick) as server:
        texts = [f"w{number}" for number in range(4)]
        every = server.ask(CLASSIFY, texts=texts)["results"]
        monkeypatch.setattr("brimful.serving.bodies.MAX_SCORES", 8)
        status, message = server.refused(CLASSIFY, {"texts": texts})
        assert status == 422
        assert "top_k" in message
        for row, full in zip(server.ask(CLASSIFY, texts=texts, top_k=2)["results"], every, strict=True):
            ranked = sorted(full["scores"].items(), key=lambda each: -each[1])
            assert list(row["scores"].items()) == ranked[:2]
            assert row | {"scores": 0} == full | {"scores": 0}
        assert server.ask(CLASSIFY, text="w1", top_k=9)["results"][0]["scores"] == every[1]["scores"]
        assert server.refused(CLASSIFY, {"texts": texts, "top_k": 0})[0] == 422


def test_a_deadline_passes_in_the_queue(quick):
    with asked(quick, deadline=0.05) as server:
        release = hold(server)

        async def talk(client: Any) -> Any:
            late = asyncio.create_task(client.post(CLASSIFY, json={"text": "w1"}))
            while not late.done():
                await asyncio.sleep(0.01)
                server.service.queue.expire()
            release.set()
            return [await late, await client.post(CLASSIFY, json={"text": "w1"})]

        late, next_one = server.run(talk)
        assert error_of(late) == (504, "timeout")
        assert next_one.status_code == 200


class PanicException(BaseException):
    """As of Rust code, which is no Exception."""


FAULTS = [
    (NotFiniteError("the model's outputs are NaN or infinite: its weights are damaged"), "NaN"),
    (MemoryError(), "out of memory"),
    (ValueError("w13 is in the message"), "ValueError in the model"),
]


@pytest.mark.parametrize(
    ("stage", "error", "said"),
    [
        ("read", PanicException("w13"), "PanicException in the model"),
        *(("outputs", *fault) for fault in FAULTS),
        *(("answer", *fault) for fault in FAULTS),
    ],
)
def test_a_batch_that_fails_fails_its_own_requests_alone(quick, monkeypatch, caplog, error, said, stage):
    real = getattr(BatchModel, stage)

    def fails(model: BatchModel, given: Any, *more: Any) -> Any:
        if "w13" in repr(given):
            raise error
        return real(model, given, *more)

    caplog.set_level("INFO")
    computed = 2 if stage == "read" else 3
    with asked(quick) as server:
        monkeypatch.setattr(BatchModel, stage, fails)
        release = hold(server)

        async def talk(client: Any) -> list[Any]:
            texts = ["w1", "w13", "w2"]
            tasks = [asyncio.create_task(client.post(CLASSIFY, json={"text": text})) for text in texts]
            while sum(map(len, server.service.queue._ready.values())) < computed:  # they are one batch
                await asyncio.sleep(0.01)
            release.set()
            return list(await asyncio.gather(*tasks))

        first, failed, last = server.run(talk)
        assert (first.status_code, failed.status_code, last.status_code) == (200, 500, 200)
        message = failed.json()["error"]["message"]
        assert said in message
        assert "w13" not in message
        assert "w13" not in caplog.text
        assert server.get("/health").status_code == 200
        queue = server.service.queue
        server.service.engine.call(lambda: None)  # between two batches
        assert (queue.requests, queue.tokens, queue._running) == (0, 0, {})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_engine_is_not_ready_and_answers_that(quick, monkeypatch):
    with asked(quick) as server:

        def dies(*_: Any) -> Any:
            raise SystemExit

        monkeypatch.setattr(BatchModel, "answer", dies)
        assert server.refused(CLASSIFY, {"text": "w1"})[0] == 500
        assert server.get("/health").status_code == 503
        assert server.get("/health/live").status_code == 200
        assert server.refused(CLASSIFY, {"text": "w1"})[0] == 503


def test_a_server_that_loads_says_that_it_loads(quick, monkeypatch):
    with asked(quick) as server:
        monkeypatch.setattr(server.service, "models", {})
        answer = server.post(CLASSIFY, {"text": "w1"})
        assert (error_of(answer), answer.headers["retry-after"]) == ((503, "loading"), "1")
        assert server.get("/health").json() == {"status": "loading"}


def test_a_swap_of_models_leaves_accepted_requests_with_theirs(quick, negative):
    texts = [f"w{i} w{i + 7}" for i in range(40)]
    with asked(quick) as server, asked(negative) as other:
        old, new = (each.ask(CLASSIFY, texts=texts)["results"] for each in (server, other))
        assert [each["prediction"] for each in old] != [each["prediction"] for each in new]

        async def talk(client: Any) -> list[Any]:
            release = hold(server)
            before = asyncio.create_task(client.post(CLASSIFY, json={"texts": texts}))
            while not server.service.queue.requests:
                await asyncio.sleep(0.01)
            server.service.use(other.service.models)
            after = asyncio.create_task(client.post(CLASSIFY, json={"texts": texts}))
            while server.service.queue.requests < 2:
                await asyncio.sleep(0.01)
            release.set()
            return [json.loads((await each).content)["results"] for each in (before, after)]

        assert server.run(talk) == [old, new]
