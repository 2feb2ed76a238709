"""Two hosts on one machine: network namespaces, and between them a link of limited bandwidth.

Each host has a network of its own: a loopback device and one end of a veth pair, whose other end is on the
other host. A token bucket on each end limits the bandwidth, headers included, in both
directions at the same time. Only bandwidth is limited: the hosts share the machine's cores and memory, a
packet takes no time on its way, and there are no other hosts on the link. Only root may make namespaces.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

TOOLS = ("ip", "tc", "unshare")
BURST, BURST_SECONDS = 128 << 10, 1e-3
"""What a host may send at once after a pause: these bytes, or more if the link carries more in this time."""
QUEUED_MS = 50
"""Packets are dropped that would wait longer."""
_PROBE = (
    "ip link add name bf0 type veth peer name bf1"
    " && tc qdisc add dev bf0 root tbf rate 1mbit burst 10kb latency 1ms"
)


@dataclass(frozen=True)
class Host:
    """A network namespace.

    Attributes:
        name: of the namespace, and of its end of the link (the device).
        address: of this end, IPv4.
    """

    name: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """What stands before a command line that runs on this host."""
        return ["ip", "netns", "exec", self.name]


def missing() -> str | None:
    """Why this process cannot make hosts: one line; None if it can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"there is no `{tool}` here (Debian packages iproute2 and util-linux)"
    probe = subprocess.run(["unshare", "--net", "sh", "-c", _PROBE], capture_output=True, text=True)
    if probe.returncode:
        said = probe.stderr.strip().splitlines() or ["no message"]
        return f"this system makes no network namespaces with a slow link ({said[-1].strip()})"
    return None


@contextmanager
def two_hosts() -> Generator[tuple[Host, Host]]:
    """Two new hosts and a link without a limit. Afterwards they are gone; processes on them must end before.

    Raises:
        subprocess.CalledProcessError: a command failed, although `missing` found nothing.
    """
    unique = secrets.token_hex(4)
    a, b = hosts = Host(f"bf{unique}a", "10.231.0.1"), Host(f"bf{unique}b", "10.231.0.2")
    try:
        for host in hosts:
            _run(f"ip netns add {host.name}")
            _run(f"ip -n {host.name} link set lo up")
        _run(f"ip link add name {a.name} netns {a.name} type veth peer name {b.name} netns {b.name}")
        for host in hosts:
            _run(f"ip -n {host.name} addr add {host.address}/24 dev {host.name}")
            _run(f"ip -n {host.name} link set {host.name} up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)


def limit(hosts: Iterable[Host], mbit: float | None) -> None:
    """Limit the bandwidth of each host, in 10^6 bits a second; None = no limit.

    What waits to be sent is lost, and TCP sends it again: call it while the link is quiet.
    """
    for host in hosts:
        _run(f"tc -n {host.name} qdisc replace dev {host.name} root pfifo")  # so there is one to delete
        if mbit is None:
            _run(f"tc -n {host.name} qdisc del dev {host.name} root")
        else:
            burst = max(BURST, int(mbit * 1e6 / 8 * BURST_SECONDS))
            rule = f"tbf rate {round(mbit * 1e6)}bit burst {burst}b latency {QUEUED_MS}ms"
            _run(f"tc -n {host.name} qdisc replace dev {host.name} root {rule}")


def _run(line: str) -> None:
    subprocess.run(line.split(), check=True, capture_output=True, text=True)
