"""Who is let in: those with the token or, without one, those whom no foreign web page sends."""

from typing import Any

import pytest

from brimful.base.errors import BrimfulError
from brimful.serving.access import read_token
from builders.http_app import Asked, asked

CLASSIFY = "/v1/classify"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(quick):
    with asked(quick) as found:
        yield found


def post(server: Asked, headers: dict[str, str], method: str = "POST", path: str = CLASSIFY) -> Any:
    """The response to a body of one text."""
    sent = {"content": b'{"text": "w1"}'} if method == "POST" else {}
    return server.run(lambda client: client.request(method, path, headers=headers, **sent))


def test_a_token_guards_all_but_health_and_the_page(quick, monkeypatch):
    monkeypatch.setenv("BRIMFUL_TOKEN", "sesame")
    with asked(quick) as server:
        for path in ("/v1/models", "/metrics", CLASSIFY, "/nowhere"):
            assert server.get(path).status_code == 401
            assert server.get(path, authorization="Bearer open").status_code == 401
        assert server.get("/v1/models").json()["error"]["type"] == "unauthorized"
        for path in ("/", "/health", "/health/live"):
            assert server.get(path).status_code == 200
        allowed = server.get("/v1/models", authorization="Bearer sesame")
        assert (allowed.status_code, "sesame" in allowed.text) == (200, False)
        counts = server.get("/metrics", authorization="Bearer sesame").text
        assert 'brimful_requests_total{path="other",status="401"} 9.0' in counts
        for tokens in (["Bearer ses", "ame"], ["Bearer sesame"] * 2, ["Bearer sesame2"], ["sesame"]):
            headers = [("Authorization", token) for token in tokens]
            response = server.run(lambda client, headers=headers: client.get("/v1/models", headers=headers))
            assert response.status_code == 401
        headers = {"authorization": "bearer  sesame", "Host": "models.example.org", "Origin": "http://other"}
        assert post(server, headers).status_code == 200  # a token is enough


@pytest.mark.parametrize(
    ("given", "token"), [(" secret\n", b"secret"), ("secret\r\n", b"secret"), (None, b"")]
)
def test_space_around_a_token_is_no_part_of_it(monkeypatch, given, token):
    monkeypatch.delenv("BRIMFUL_TOKEN", raising=False)
    if given is not None:
        monkeypatch.setenv("BRIMFUL_TOKEN", given)
    assert read_token() == token


@pytest.mark.parametrize("given", ["", " \n", "a b", "a\nb", "a\x7f", "caf\u00e9", "a\udcff"])
def test_a_token_that_no_header_holds_is_refused(monkeypatch, given):
    monkeypatch.setenv("BRIMFUL_TOKEN", given)
    with pytest.raises(BrimfulError, match=r"^BRIMFUL_TOKEN "):
        read_token()


OWN = "localhost localhost:8080 LOCALHOST:1 127.0.0.1:65000 127.0.0.2 [::1]:8080 [::1] localhost:"
FOREIGN = """
rebind.example rebind.example:8080 localhost.example 127.0.0.1.example user@localhost localhost/x 192.168.0.1
[::1
"""


@pytest.mark.parametrize(
    ("host", "status"), [*((host, 200) for host in OWN.split()), *((host, 421) for host in FOREIGN.split())]
)
def test_a_server_of_this_machine_answers_to_its_own_names(server, host, status):
    found = [
        post(server, {"Host": host, **JSON}).status_code,
        *(post(server, {"Host": host}, "GET", path).status_code for path in ("/", "/v1/models", "/metrics")),
    ]
    assert found == [status] * 4


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:8080"}, 200),
        ({"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://models.example.org", "Sec-Fetch-Site": "same-origin"}, 200),  # behind a proxy
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://other.example"}, 403),
        ({"Origin": "http://localhost:9090", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://localhost:8080", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_servers_cannot_post(server, headers, status):
    assert post(server, {"Host": "localhost:8080", **JSON, **headers}).status_code == status
    get = post(server, {"Host": "localhost:8080", **headers}, "GET", "/v1/models")
    assert get.status_code == 200  # which the page cannot read


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "text/plain; application/json", "json"]
)
def test_what_is_not_called_json_is_refused_and_the_header_is_named(server, kind):
    response = post(server, {"Content-Type": kind} if kind else {})
    assert response.status_code == 415
    assert "Content-Type: application/json" in response.json()["error"]["message"]
    assert post(server, {"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 200


def test_a_compressed_body_is_refused_as_such(server):
    assert post(server, {"Content-Encoding": "identity", **JSON}).status_code == 200
    refused = post(server, {"Content-Encoding": "gzip", **JSON})
    assert refused.status_code == 415
    assert "without Content-Encoding" in refused.json()["error"]["message"]
