"""`brimful serve` as a process: signals, reloads, clients that are slow or leave, and what it loads."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from brimful.cli.main import main
from builders.sockets import JSON, READY, Running, answered, running, text_of

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
def folder(quick: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(quick, tmp_path / "quick"))


def test_a_graph_is_served_without_torch_and_its_texts_are_in_no_log(folder: Path) -> None:
    with running(folder, code=CODE) as found:
        status, answer = found.request("POST", "/v1/classify", {"text": "w1 secret"})
        assert (status, answer["results"][0]["prediction"] in "abc") == (200, True)
        assert found.request("GET", "/health") == (200, {"status": "ready"})
        assert found.request("POST", "/v1/classify", {"text": "w1 secret", "x": 1})[0] == 422
        out, err = found.end()
        assert out.splitlines() == ["stopped; 1 text answered", "[] 0"]
        assert err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_loses_nothing_that_was_accepted(folder: Path, number: signal.Signals) -> None:
    """Requests that go on while the signal comes: each is answered, refused as the server drains, or finds no
    server any more before it is sent."""
    found: list[int] = []
    lost: list[Exception] = []

    def ask(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        body = json.dumps({"texts": ["w1 w2"] * 200})
        while True:
            try:
                if connection.sock is None:
                    connection.connect()
            except OSError:
                connection.close()
                return  # it has ended
            try:
                connection.request("POST", "/v1/classify", body, JSON)
                response = connection.getresponse()
                answer = json.loads(response.read())
            except http.client.RemoteDisconnected:
                connection.close()
                return  # an idle connection was closed before this request was read
            except Exception as error:
                lost.append(error)
                return
            found.append(response.status)
            if response.status == 503:
                connection.close()
                return
            assert len(answer["results"]) == 200

    with running(folder, code=CODE) as process:
        threads = [threading.Thread(target=ask, args=(process.port,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        while len(found) < 20:
            time.sleep(0.01)
        process.end(number)
        for thread in threads:
            thread.join(30)
    assert lost == []
    assert set(found) <= {200, 503}


def test_a_reload_answers_with_the_new_model_and_a_bad_one_changes_nothing(
    folder: Path, negative: Path
) -> None:
    with running(folder, code=CODE) as process:
        ask = ("POST", "/v1/classify", {"texts": [f"w{i}" for i in range(50)]})
        _, before = process.request(*ask)
        shutil.rmtree(folder)
        folder.mkdir()
        process.process.send_signal(signal.SIGHUP)
        assert process.process.stderr is not None
        assert "the models stay as they are" in process.process.stderr.readline()
        assert process.request(*ask) == (200, before)
        folder.rmdir()
        shutil.copytree(negative, folder)
        process.process.send_signal(signal.SIGHUP)
        assert "loaded again: quick" in process.process.stderr.readline()
        _, after = process.request(*ask)
        assert [each["prediction"] for each in after["results"]] != [
            each["prediction"] for each in before["results"]
        ]
        process.end()


def test_signals_while_a_model_loads_have_it_loaded_again_and_a_panic_changes_nothing(
    folder: Path,
) -> None:
    for name in ("gate1", "gate4", "panic4"):
        (folder / name).touch()
    with running(folder, code=LOADING) as process:
        assert process.process.stderr is not None
        lines = iter(process.process.stderr.readline, "")
        assert next(lines) == "load 1\n"
        process.process.send_signal(signal.SIGHUP)
        assert next(lines) == "load 2\n"
        for _ in range(3):
            process.process.send_signal(signal.SIGHUP)
            time.sleep(0.05)
        (folder / "gate2").touch()
        assert [next(lines), next(lines)] == ["serve: loaded again: quick\n", "load 3\n"]
        (folder / "gate3").touch()
        assert next(lines) == "serve: loaded again: quick\n"
        process.process.send_signal(signal.SIGHUP)
        assert next(lines) == "load 4\n"
        assert "PanicException: a bug of Rust" in next(lines)
        (folder / "gate5").touch()
        process.process.send_signal(signal.SIGHUP)
        assert [next(lines), next(lines)] == ["load 5\n", "serve: loaded again: quick\n"]
        assert process.end()[1] == ""


@pytest.mark.parametrize(
    ("place", "status", "out", "err"),
    [
        ("early_checks.check_inputs", 143, "", "brimful: stopped by SIGTERM before the run"),
        ("server.ServerProcess.__init__", 143, "", "brimful: stopped by SIGTERM before the run"),
        ("server.open_models", 0, "stopped; 0 texts answered\n", ""),
    ],
)
def test_signals_while_it_starts(folder: Path, place: str, status: int, out: str, err: str) -> None:
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


def test_clients_that_read_nothing_do_not_hold_up_the_end(folder: Path) -> None:
    body = json.dumps({"texts": ["w1 w2"] * 1024}).encode()
    ask = ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with running(folder, code=CODE) as process:
        deaf = [process.connect(ask * 40) for _ in range(3)]
        assert process.request("POST", "/v1/classify", {"text": "w1"})[0] == 200
        process.end()
        for connection in deaf:
            connection.close()


def test_a_server_whose_engine_has_died_ends_with_an_error(folder: Path) -> None:
    command = [sys.executable, "-c", DYING, "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert Running(process).request("POST", "/v1/classify", {"text": "die"})[0] == 500
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the engine has stopped" in err


def status_of(connection: socket.socket) -> int:
    """The status of the next response, which is read to its end."""
    with http.client.HTTPResponse(connection) as response:
        response.begin()
        response.read()
        return response.status


def test_a_body_that_is_too_large_is_refused_before_and_while_it_is_sent(folder: Path) -> None:
    """The connection goes on behind the body, unless that is very large."""
    with running(folder, code=PATIENT) as process:
        for size, goes_on in ((10 << 20, True), (200 << 20, False)):
            with process.connect(ASK + b"Content-Length: %d\r\n\r\n" % size) as connection:
                assert status_of(connection) == 413
                if goes_on:
                    connection.sendall(b"a" * size + LIVE)
                    assert status_of(connection) == 200
                else:
                    with pytest.raises(OSError):  # reset, or a broken pipe
                        connection.sendall(b"a" * size)
        chunks = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
        chunked = ASK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 9 + b"0\r\n\r\n"
        with process.connect(chunked) as connection:
            assert status_of(connection) == 413
        with process.connect(ASK + b"Content-Length: %d\r\n\r\n" % (10 << 20)) as unsent:
            assert status_of(unsent) == 413
            process.end()  # a body that never comes holds up nothing


def test_a_client_that_still_sends_is_told_why_it_is_refused(folder: Path) -> None:
    with running(folder, code=PATIENT) as process:
        for path, status in ((b"/nothing", 404), (b"/health", 405)):
            head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % path
            body = b"Content-Length: %d\r\n\r\n" % (7 << 20) + b"a" * (7 << 20)
            assert text_of(process.connect(head + body)).startswith(f"HTTP/1.1 {status} ")
        process.end()


def test_a_busy_loop_accepts_all_connections_that_wait_and_gives_a_client_more_time(folder: Path) -> None:
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


SERVE = [sys.executable, "-m", "brimful", "serve"]


def test_what_is_wrong_is_one_line(folder: Path, tmp_path: Path) -> None:
    for name in ("other/quick", "bad\udcff"):
        shutil.copytree(folder, tmp_path / name)
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
            environment = {**os.environ, **({"BRIMFUL_TOKEN": token} if token else {})}
            line = [*SERVE, "--port", "0", *models]
            done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
            assert done.stderr.startswith("brimful: ")
            assert message in done.stderr


@pytest.mark.parametrize(
    ("host", "shown"), [("0.0.0.0", "0.0.0.0"), ("::", "[::]"), ("127.0.0.2", "127.0.0.2")]
)
def test_a_public_address_without_a_token_is_warned_about(folder: Path, host: str, shown: str) -> None:
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    command = [*SERVE, str(folder), "--port", "0", "--host", host]
    environment = {name: value for name, value in os.environ.items() if name != "BRIMFUL_TOKEN"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
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


def test_with_json_stdout_has_json_alone(folder: Path) -> None:
    command = [*SERVE, str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(READY)
            process.terminate()
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert json.loads(out) == {"texts": 0}
    assert err == ""


def test_a_server_whose_output_is_closed_ends_well(folder: Path) -> None:
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


def test_a_dry_run_measures_and_a_name_is_no_command_for_the_terminal(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(folder), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("dry run: quick (classification, fp32) reads ")
    odd = shutil.copytree(folder, tmp_path / "a\nb\x1b[31m")
    with subprocess.Popen([*SERVE, odd, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving a\\nb\\x1b[31m on http")
        process.terminate()
        assert process.wait(60) == 0
