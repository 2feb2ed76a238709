"""`brimful serve` as a process: signals, reloads, clients that are slow or leave, and what it loads."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from brimful.cli.main import main
from brimful.serving.config import ServeConfig
from brimful.serving.queue import RefusedError
from brimful.serving.server import ServerProcess
from builders.sockets import HEAD, JSON, LIVE, Running, answered, running, text_of

CODE = """
import sys
from brimful.cli.main import main
from brimful.serving import server
server.REQUEST_SECONDS = 1
code = main(sys.argv[1:])
print(sorted({"torch", "scipy", "pyarrow", "rich"} & set(sys.modules)), code)
"""
PATIENT = CODE.replace("REQUEST_SECONDS = 1", "REQUEST_SECONDS = 60")

DYING = """
import sys
from brimful.serving.batch_model import BatchModel
from brimful.cli.main import main
compute = BatchModel.answer
def answer(self, texts):
    if texts[0].text == "die":
        raise SystemExit
    return compute(self, texts)
BatchModel.answer = answer
sys.exit(main(sys.argv[1:]))
"""


LOADING = """
import sys
import time
from pathlib import Path
from brimful.cli.main import main
from brimful.serving import server
opened, loads = server.open_models, []
def open_models(openings, call):
    loads.append(1)
    print("load", len(loads), file=sys.stderr, flush=True)
    while not Path(openings[0].model, f"gate{len(loads)}").exists():
        time.sleep(0.01)
    return opened(openings, call)
server.open_models = open_models
sys.exit(main(sys.argv[1:]))
"""
"""A server whose loads of models wait for a file."""


@pytest.fixture
def folder(quick, tmp_path):
    return Path(shutil.copytree(quick, tmp_path / "quick"))


def test_a_graph_is_served_without_torch_and_its_texts_are_in_no_log(folder):
    with running(folder, code=CODE) as found:
        status, answer = found.request("POST", "/v1/classify", {"text": "w1 secret"})
        assert (status, answer["results"][0]["prediction"] in "abc") == (200, True)
        assert found.request("GET", "/health") == (200, {"status": "ready"})
        assert found.request("POST", "/v1/classify", {"text": "w1 secret", "x": 1})[0] == 422
        out, err = found.end()
        assert out.splitlines() == ["stopped; 1 text answered", "[] 0"]
        assert err == ""


def ask_until_it_drains(port: int, statuses: list[int]) -> None:
    """Ask on one connection until the server refuses, or has ended before a request was sent."""
    body = json.dumps({"texts": ["w1 w2"] * 200})
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        while 503 not in statuses[-1:]:
            try:
                connection.sock or connection.connect()
            except OSError:
                return
            try:
                connection.request("POST", "/v1/classify", body, JSON)
                response = connection.getresponse()
                answer = json.loads(response.read())
            except http.client.RemoteDisconnected:
                return  # an idle connection was closed before this request was read
            statuses.append(response.status)
            assert response.status == 503 or len(answer["results"]) == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_loses_nothing_that_was_accepted(folder, number):
    """Each request is answered, refused as the server drains, or finds no server before it is sent."""
    statuses: list[list[int]] = [[] for _ in range(8)]
    with running(folder, code=CODE) as process, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask_until_it_drains, process.port, each) for each in statuses]
        while sum(map(len, statuses)) < 20:
            time.sleep(0.01)
        process.end(number)
        for each in asked:
            each.result(30)
    assert {status for each in statuses for status in each} <= {200, 503}


def reload(process: Running) -> str:
    """What a server says after SIGHUP."""
    process.process.send_signal(signal.SIGHUP)
    assert process.process.stderr is not None
    return process.process.stderr.readline()


@pytest.mark.slow
def test_models_are_loaded_again_at_a_signal_and_a_bad_one_changes_nothing(folder, negative):
    """Signals while a model loads have it loaded once more."""
    ask = ("POST", "/v1/classify", {"texts": [f"w{i}" for i in range(50)]})
    for name in ("gate1", "gate4", "gate5"):
        (folder / name).touch()
    with running(folder, code=LOADING) as process:
        assert process.process.stderr is not None
        lines = iter(process.process.stderr.readline, "")
        assert next(lines) == "load 1\n"
        assert reload(process) == "load 2\n"
        for _ in range(3):
            process.process.send_signal(signal.SIGHUP)
            time.sleep(0.05)
        (folder / "gate2").touch()
        assert [next(lines), next(lines)] == ["serve: loaded again: quick\n", "load 3\n"]
        (folder / "gate3").touch()
        assert next(lines) == "serve: loaded again: quick\n"
        before = process.request(*ask)
        (folder / "config.json").rename(folder / "moved.json")
        assert reload(process) == "load 4\n"
        assert "the models stay as they are" in next(lines)
        assert process.request(*ask) == before
        shutil.copytree(negative, folder, dirs_exist_ok=True)
        assert [reload(process), next(lines)] == ["load 5\n", "serve: loaded again: quick\n"]
        assert process.request(*ask) != before
        assert process.end()[1] == ""


@pytest.mark.slow
def test_clients_that_read_nothing_do_not_hold_up_the_end(folder):
    body = json.dumps({"texts": ["w1 w2"] * 1024}).encode()
    ask = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with running(folder, code=CODE) as process:
        deaf = [process.connect(ask * 40) for _ in range(3)]
        assert process.request("POST", "/v1/classify", {"text": "w1"})[0] == 200
        process.end()
        for connection in deaf:
            connection.close()


@pytest.mark.slow
def test_a_server_whose_engine_has_died_ends_with_an_error(folder):
    command = [sys.executable, "-c", DYING, "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert Running(process).request("POST", "/v1/classify", {"text": "die"})[0] == 500
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the engine has stopped" in err


@pytest.mark.slow
def test_a_body_that_is_too_large_is_refused_before_and_while_it_is_sent(folder):
    """The connection goes on behind the body, unless that is very large. Who still sends is told why."""
    with running(folder, code=PATIENT) as process:
        for size, goes_on in ((10 << 20, True), (200 << 20, False)):
            with process.connect(HEAD + b"Content-Length: %d\r\n\r\n" % size) as connection:
                assert answered(connection)[0] == 413
                if goes_on:
                    connection.sendall(b"a" * size + LIVE)
                    assert answered(connection)[0] == 200
                else:
                    with pytest.raises(OSError):  # reset, or a broken pipe
                        connection.sendall(b"a" * size)
        chunks = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
        chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 9 + b"0\r\n\r\n"
        with process.connect(chunked) as connection:
            assert answered(connection)[0] == 413
        with process.connect(HEAD + b"Content-Length: %d\r\n\r\n" % (10 << 20)) as unsent:
            assert answered(unsent)[0] == 413
            for path, status in ((b"/nothing", 404), (b"/health", 405)):
                head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % path
                body = b"Content-Length: %d\r\n\r\n" % (7 << 20) + b"a" * (7 << 20)
                assert text_of(process.connect(head + body)).startswith(f"HTTP/1.1 {status} ")
            process.end()  # a body that never comes holds up nothing


def test_what_is_wrong_is_one_line(folder, tmp_path, monkeypatch, capsys):
    for name in ("other/quick", "bad\udcff"):
        shutil.copytree(folder, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for models, token, message in (
            (["nothing"], None, "nothing holds no model"),
            (["red\x1b[31m"], None, "red\\x1b[31m holds no model"),
            (["quick", "other/quick"], None, "called quick"),
            (["bad\udcff"], None, "bad\\udcff has a name that is not UTF-8"),
            (["quick"], "a b", "BRIMFUL_TOKEN"),
            (["quick", "--port", port], None, f"--port {port}: Address already in use"),
        ):
            if token:
                monkeypatch.setenv("BRIMFUL_TOKEN", token)
            assert main(["serve", "--port", "0", *models]) == 1
            monkeypatch.delenv("BRIMFUL_TOKEN", raising=False)
            out, err = capsys.readouterr()
            assert (out, err.count("\n"), err.startswith("brimful: ")) == ("", 1, True)
            assert message in err
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # until it can load its models again


@pytest.mark.parametrize(("host", "is_public"), [("0.0.0.0", True), ("::", True), ("127.0.0.2", False)])
def test_a_public_address_without_a_token_is_warned_about(monkeypatch, capsys, host, is_public):
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    monkeypatch.delenv("BRIMFUL_TOKEN", raising=False)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)  # else that of all tests
    server = ServerProcess(ServeConfig(models=("quick",), host=host, port=0))
    with server.listener:
        asked = "127.0.0.1" if is_public else host  # :: is every address, of IPv4 too
        socket.create_connection((asked, server.listener.getsockname()[1]), timeout=60).close()
    server.service.queue.stop(RefusedError(503, "the test is over"))
    assert ("BRIMFUL_TOKEN is not set" in capsys.readouterr().err) is is_public


@pytest.mark.slow
def test_with_json_stdout_has_json_alone_and_a_name_is_no_command_for_the_terminal(folder, tmp_path):
    odd = shutil.copytree(folder, tmp_path / "a\nb\x1b[31m")
    command = [sys.executable, "-m", "brimful", "serve", "--port", "0", odd, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("serving a\\nb\\x1b[31m on http")
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert (json.loads(out), err) == ({"texts": 0}, "")


@pytest.mark.slow
def test_a_server_whose_output_is_closed_ends_well(folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = f"exec {sys.executable} -m brimful serve '{folder}' --port {port} >&- 2>&-"
    with subprocess.Popen(command, shell=True) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(LIVE)
                assert answered(connection)[0] == 200
                break
            time.sleep(0.1)
        process.terminate()
        assert process.wait(60) == 0


def test_a_dry_run_measures(folder, capsys):
    assert main(["serve", str(folder), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("dry run: quick (classification, fp32) reads ")
