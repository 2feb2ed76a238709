"""The client of OpenAI, and its types, against a server of an encoder."""

import base64

import httpx2
import numpy as np
import pytest

openai = pytest.importorskip("openai", reason="needs openai (pip install '.[dev]' in the clone)")
from openai.types import CreateEmbeddingResponse, Model  # noqa: E402
from openai.types.embedding_create_params import EmbeddingCreateParams  # noqa: E402
from openai.types.shared import ErrorObject  # noqa: E402

TEXTS = ["w1 w2", "\u8fd9\u672c\u4e66 w3", ""]


@pytest.fixture(scope="module")
def client(vectors):
    with openai.OpenAI(base_url=f"{vectors}v1", api_key="none", max_retries=0) as found:
        yield found


def test_its_vectors_are_those_of_the_server(client, vectors):
    body = {"input": TEXTS, "encoding_format": "float"}
    rows = httpx2.post(f"{vectors}v1/embeddings", json=body, timeout=30).json()["data"]
    expected = np.array([row["embedding"] for row in rows])
    width = expected.shape[1]
    for given in ({}, {"encoding_format": "float"}, {"user": "someone"}, {"dimensions": width}):
        answer = client.embeddings.create(model="vectors", input=TEXTS, **given)
        found = np.array([each.embedding for each in answer.data])
        if "dimensions" in given:
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert client.embeddings.create(model="vectors", input="w1").usage.total_tokens > 0


def test_every_field_of_its_request_is_read_and_answers_are_of_its_types(vectors):
    values = {"input": "w1", "model": "vectors", "dimensions": 4, "encoding_format": "base64", "user": "one"}
    assert values.keys() == EmbeddingCreateParams.__annotations__.keys()
    answer = httpx2.post(f"{vectors}v1/embeddings", json=values, timeout=30).json()
    (row,) = answer["data"]
    assert len(np.frombuffer(base64.b64decode(row["embedding"]), "<f4")) == 4
    answer = httpx2.post(f"{vectors}v1/embeddings", json={"input": TEXTS}, timeout=30).json()
    CreateEmbeddingResponse.model_validate(answer, strict=True)
    error = httpx2.post(f"{vectors}v1/embeddings", json={"input": 1}, timeout=30).json()["error"]
    ErrorObject.model_validate(error, strict=True)
    (model,) = httpx2.get(f"{vectors}v1/models", timeout=30).json()["data"]
    Model.model_validate(model, strict=True)


def test_models_are_listed_and_found(client):
    (listed,) = client.models.list().data
    assert listed == client.models.retrieve("vectors")
    assert listed.id == "vectors"
    with pytest.raises(openai.NotFoundError, match="vectors"):
        client.models.retrieve("other/model")


def test_as_many_texts_as_clients_send_are_answered(client):
    answer = client.embeddings.create(model="vectors", input=["w1"] * 2048)
    assert [each.index for each in answer.data] == list(range(2048))


def test_errors_are_its_errors(client):
    with pytest.raises(openai.UnprocessableEntityError, match="divide it"):
        client.embeddings.create(model="vectors", input=["w1"] * 2049)
    with pytest.raises(openai.UnprocessableEntityError, match="check_embedding_ctx_length=False") as found:
        client.embeddings.create(model="vectors", input=[[101, 2023], [102]])
    assert found.value.code == "422"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="w1")
