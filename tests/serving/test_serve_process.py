"""`brimful serve` as a process: signals, reloads, clients that are slow or leave, and what it loads."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from brimful.cli.main import main
from builders.sockets import JSON, Running, answered, running, text_of

ASK = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
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
class PanicException(BaseException):
    pass
def open_models(openings, call):
    loads.append(1)
    print("load", len(loads), file=sys.stderr, flush=True)
    while not Path(openings[0].model, f"gate{len(loads)}").exists():
        time.sleep(0.01)
    if Path(openings[0].model, f"panic{len(loads)}").exists():
        raise PanicException("a bug of Rust")
    return opened(openings, call)
server.open_models = open_models
sys.exit(main(sys.argv[1:]))
"""
"""A server whose loads of models wait for a file, and fail as only code of Rust can if there is another."""

SIGNALLED = """
import os
import signal
import sys
from brimful.cli.main import main
from brimful.cli import early_checks
from brimful.serving import server
where, _, name = os.environ["PLACE"].rpartition(".")
where = eval(where)
real = getattr(where, name)
def signalled(*given):
    os.kill(os.getpid(), signal.Signals[os.environ["SIGNAL"]])
    return real(*given)
setattr(where, name, signalled)
sys.exit(main(sys.argv[1:]))
"""
"""A server that gets a signal as it starts, at a place."""

BUSY = """
import asyncio
import sys
import time
from brimful.cli.main import main
from brimful.serving import server
look, made = server.ServerProcess._watch, server.Connection.connection_made
counts = [0]
server.REQUEST_SECONDS = 0.5
async def look_while_busy(self):
    def turn():
        time.sleep(0.2)
        counts.append(0)
        loop.call_soon(turn)
    loop = asyncio.get_running_loop()
    turn()
    await look(self)
def count(self, transport):
    counts[-1] += 1
    made(self, transport)
server.ServerProcess._watch, server.Connection.connection_made = look_while_busy, count
code = main(sys.argv[1:])
print(max(counts), code)
"""
"""A server whose loop takes long for a turn. It prints the most connections that it accepted in one."""


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


@pytest.mark.slow
def test_a_reload_answers_with_the_new_model_and_a_bad_one_changes_nothing(folder, negative):
    ask = ("POST", "/v1/classify", {"texts": [f"w{i}" for i in range(50)]})
    with running(folder, code=CODE) as process:
        before = process.request(*ask)
        shutil.rmtree(folder)
        folder.mkdir()
        assert "the models stay as they are" in reload(process)
        assert process.request(*ask) == before
        folder.rmdir()
        shutil.copytree(negative, folder)
        assert "loaded again: quick" in reload(process)
        answers = [
            [row["prediction"] for row in each["results"]] for _, each in (before, process.request(*ask))
        ]
        assert answers[0] != answers[1]
        process.end()


def reload(process: Running) -> str:
    """What a server says after SIGHUP."""
    process.process.send_signal(signal.SIGHUP)
    assert process.process.stderr is not None
    return process.process.stderr.readline()


@pytest.mark.slow
def test_signals_while_a_model_loads_have_it_loaded_again_and_a_panic_changes_nothing(folder):
    for name in ("gate1", "gate4", "panic4"):
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
        assert reload(process) == "load 4\n"
        assert "PanicException: a bug of Rust" in next(lines)
        (folder / "gate5").touch()
        assert [reload(process), next(lines)] == ["load 5\n", "serve: loaded again: quick\n"]
        assert process.end()[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "status", "out", "err"),
    [
        ("early_checks.check_inputs", 143, "", "brimful: stopped by SIGTERM before the run"),
        ("server.ServerProcess.__init__", 143, "", "brimful: stopped by SIGTERM before the run"),
        ("server.open_models", 0, "stopped; 0 texts answered\n", ""),
    ],
)
def test_signals_while_it_starts(folder, place, status, out, err):
    """SIGHUP does no harm, since the folders are read later or once more; SIGTERM ends it with a line."""
    with running(folder, code=SIGNALLED, PLACE=place, SIGNAL="SIGHUP") as process:
        assert process.request("POST", "/v1/classify", {"text": "w1"})[0] == 200
        process.end()
    command = [sys.executable, "-c", SIGNALLED, "serve", str(folder), "--port", "0"]
    environment = {**os.environ, "PLACE": place, "SIGNAL": "SIGTERM"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (status, out)
    assert ended.stderr.startswith(err)
    assert ended.stderr.count("\n") == (err != "")


@pytest.mark.slow
def test_clients_that_read_nothing_do_not_hold_up_the_end(folder):
    body = json.dumps({"texts": ["w1 w2"] * 1024}).encode()
    ask = ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body
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
    """The connection goes on behind the body, unless that is very large."""
    with running(folder, code=PATIENT) as process:
        for size, goes_on in ((10 << 20, True), (200 << 20, False)):
            with process.connect(ASK + b"Content-Length: %d\r\n\r\n" % size) as connection:
                assert answered(connection)[0] == 413
                if goes_on:
                    connection.sendall(b"a" * size + LIVE)
                    assert answered(connection)[0] == 200
                else:
                    with pytest.raises(OSError):  # reset, or a broken pipe
                        connection.sendall(b"a" * size)
        chunks = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
        chunked = ASK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 9 + b"0\r\n\r\n"
        with process.connect(chunked) as connection:
            assert answered(connection)[0] == 413
        with process.connect(ASK + b"Content-Length: %d\r\n\r\n" % (10 << 20)) as unsent:
            assert answered(unsent)[0] == 413
            process.end()  # a body that never comes holds up nothing


@pytest.mark.slow
def test_a_client_that_still_sends_is_told_why_it_is_refused(folder):
    with running(folder, code=PATIENT) as process:
        for path, status in ((b"/nothing", 404), (b"/health", 405)):
            head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % path
            body = b"Content-Length: %d\r\n\r\n" % (7 << 20) + b"a" * (7 << 20)
            assert text_of(process.connect(head + body)).startswith(f"HTTP/1.1 {status} ")
        process.end()


@pytest.mark.slow
def test_a_busy_loop_accepts_all_connections_that_wait_and_gives_a_client_more_time(folder):
    with running(folder, code=BUSY) as process:
        request = LIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        connections = [process.connect(request) for _ in range(100)]
        assert all(text_of(each).startswith("HTTP/1.1 200 ") for each in connections)
        body = json.dumps({"text": "w1 " * 400_000}).encode()
        with process.connect(ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body) as connection:
            assert b"a text has 1,200,000 characters" in answered(connection)[1]
        most, code = process.end()[0].splitlines()[-1].split()
    assert int(most) >= 20
    assert code == "0"


def start(*options: str | Path, **pipes: int) -> subprocess.Popen[str]:
    """`brimful serve` at a free port, without a token."""
    environment = {name: value for name, value in os.environ.items() if name != "BRIMFUL_TOKEN"}
    command = [sys.executable, "-m", "brimful", "serve", "--port", "0", *map(str, options)]
    return subprocess.Popen(command, env=environment, text=True, **pipes)  # type: ignore[call-overload]


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "0.0.0.0"), ("::", "[::]"), ("127.0.0.2", "127.0.0.2")]
)
def test_a_public_address_without_a_token_is_warned_about(folder, host, shown):
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with start(folder, "--host", host, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert f"on http://{shown}:" in ready
        asked = shown if shown == "127.0.0.2" else "127.0.0.1"  # :: is every address, of IPv4 too
        port = ready.strip().rpartition(":")[2]
        with urllib.request.urlopen(f"http://{asked}:{port}/health/live", timeout=60) as response:
            assert response.status == 200
        process.terminate()
        _, err = process.communicate(timeout=60)
    is_public = host != "127.0.0.2"
    assert ("BRIMFUL_TOKEN is not set" in err) is is_public
    assert err.count("\n") == is_public


@pytest.mark.slow
def test_with_json_stdout_has_json_alone_and_a_name_is_no_command_for_the_terminal(folder, tmp_path):
    odd = shutil.copytree(folder, tmp_path / "a\nb\x1b[31m")
    with start(odd, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
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
