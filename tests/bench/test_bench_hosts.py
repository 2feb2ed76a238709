"""Two hosts in namespaces: the link between them, what remains of them, and the bench that trains on them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.common import hosts as networks
from bench.common.hosts import Host, limit, missing, two_hosts
from bench.hosts import __main__ as bench
from builders.verbs import ROOT

RECEIVE = """
import socket, sys, time
with socket.create_server((sys.argv[1], 29556)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    started, size = None, 0
    while read := connection.recv(1 << 20):
        started, size = started or time.perf_counter(), size + len(read)
    print(size / (time.perf_counter() - started))
"""
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 29556)) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
"""


@pytest.fixture
def root():
    if reason := missing():
        pytest.skip(reason)


def namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^bf[0-9a-f]{8}[ab]\b", listed, re.MULTILINE))


def bytes_per_second(sender: Host, receiver: Host, size: int) -> float:
    line = [*receiver.prefix, sys.executable, "-c", RECEIVE, receiver.address]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as receiving:
        try:
            assert receiving.stdout
            assert receiving.stdout.readline() == "ready\n"
            line = [*sender.prefix, sys.executable, "-c", SEND, receiver.address, str(size)]
            subprocess.run(line, check=True, timeout=60)
            return float(receiving.stdout.readline())
        finally:
            receiving.kill()


@pytest.mark.usefixtures("root")
def test_the_link_is_as_slow_as_asked_and_both_hosts_go():
    others = namespaces()
    with pytest.raises(KeyboardInterrupt), two_hosts() as (a, b):  # noqa: PT012
        assert namespaces() - others == {a.name, b.name}
        limit((a, b), 40)
        assert bytes_per_second(a, b, 2_000_000) < 1.15 * 40e6 / 8  # 128 KiB pass at once
        assert bytes_per_second(b, a, 2_000_000) < 1.15 * 40e6 / 8
        limit((a, b), None)
        limit((a, b), None)
        assert bytes_per_second(a, b, 20_000_000) > 3 * 40e6 / 8
        raise KeyboardInterrupt
    assert not {a.name, b.name} & namespaces()


@pytest.mark.usefixtures("root")
def test_hosts_that_cannot_be_finished_go(monkeypatch):
    made = []
    run = networks._run

    def fails(line: str) -> None:
        made.extend(re.findall(r"netns add (\S+)", line))
        run("false" if line.startswith("ip link add") else line)

    monkeypatch.setattr(networks, "_run", fails)
    with pytest.raises(subprocess.CalledProcessError), two_hosts():
        pass
    assert len(made) == 2
    assert not set(made) & namespaces()


def test_without_root_it_says_so_in_a_line(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit) as ended:
        bench.main(["--quick"])
    assert ended.value.code == "bench.hosts: skipped: only root makes network namespaces"


def test_without_tc_it_says_so_in_a_line(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "ip").touch(mode=0o755)
    assert missing() == "there is no `tc` here (Debian packages iproute2 and util-linux)"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.usefixtures("root")
def test_the_bench_counts_what_the_link_carried(tmp_path: Path):
    out = tmp_path / "hosts.json"
    line = [sys.executable, "-m", "bench.hosts", "--quick", "--mbit", "20", "none", "--out", str(out)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    plain, packed, fast, _ = record["rows"]
    # A rank of two sends 4 bytes for each number, and headers; in 16 bits half of that.
    assert 1.0 < plain["sent"] / (4 * record["parameters"]) < 1.15
    assert 0.45 < packed["sent"] / plain["sent"] < 0.6
    assert plain["floor"] == pytest.approx(plain["sent"] * 8 / 20e6 * 1514 / 1448)
    # Up to 128 KiB pass at once.
    assert plain["update"] > plain["floor"] - (128 << 10) * 8 / 20e6
    assert fast["floor"] is None
    assert "20 Mbit/s" in done.stdout
    assert "no limit" in done.stdout


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bench_that_is_stopped_leaves_nothing(number):
    """The signal reaches the bench alone, and not its ranks."""
    others = namespaces()
    line = [sys.executable, "-m", "bench.hosts", "--quick", "--updates", "1000"]
    with subprocess.Popen(
        line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            process.stdout.readline()  # the ranks have joined
            own = namespaces() - others
            inside = [_processes(name) for name in own]
            time.sleep(1)
            process.send_signal(number)
            assert process.wait(timeout=60) != 0
        finally:
            process.kill()
    assert len(own) == 2
    assert all(inside)
    assert not own & namespaces()
    assert not any(Path("/proc", each).exists() for host in inside for each in host)


def _processes(namespace: str) -> list[str]:
    """Their ids."""
    line = ["ip", "netns", "pids", namespace]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
