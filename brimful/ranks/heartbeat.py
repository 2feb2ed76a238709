"""Ranks tell each other what they do, so that one that is missing has a name.

A thread of each rank writes a sign of life (brimful/activity.py) to the store of the process group once a
second. While the main thread waits in a collective, the thread also reads the signs of the others. A rank
that has entered fewer collectives is missing. After a while one line names it; after the limit, the process
ends. A missing rank whose thread is alive in a stage that may take any time (compilation, evaluation,
checkpoint ...) is not held against the limit.

The hot path writes attributes only, and a second thread judges, so that a store that does not answer is
noticed too. All times are durations by the clock of one host.
"""

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from types import FrameType, TracebackType
from typing import NoReturn, Self

import torch.distributed as dist

from brimful.activity import PATIENT, Activity, now
from brimful.errors import BrimfulError
from brimful.ranks.flight import Trace, first_disagreement, own_trace

BEAT = 1.0
"""Seconds between two signs of life."""
SILENT = 5.0
"""Seconds without a sign of life after which a rank counts as ended, once a connection has broken."""
NOTICE = 60.0
"""Seconds in a collective after which a line names the missing rank; half the limit, if that is less."""
NAMED = 3
"""The most missing ranks that a line names."""

_ON_DEVICE = frozenset({"forward", "backward", "communication", "clip", "optimizer"})
"""Stages in which the host may wait for a device."""
_LOST = re.compile(r"gloo/transport|[Cc]onnection (closed|reset) by|DistBackendError")
_GAVE_UP = "it has lost another rank"


@dataclass(frozen=True)
class Sign:
    """A sign of life.

    Attributes:
        beat: counts the signs of a rank; 0 if there is none yet.
        seconds: since the stage began.
        collective, collectives: see `Activity`.
        ended: why the process has ended; "" while it runs.
    """

    rank: int
    host: str = "?"
    beat: int = 0
    update: int = 0
    stage: str = "start-up"
    seconds: float = 0.0
    collective: str = ""
    collectives: int = 0
    ended: str = ""

    @property
    def name(self) -> str:
        """Rank and host."""
        return f"rank {self.rank} ({self.host})"

    @property
    def place(self) -> str:
        """What it was doing."""
        return f"update {self.update} ({self.stage})" if self.update else self.stage


@dataclass(frozen=True)
class Peer:
    """What is known of a rank.

    Attributes:
        sign: its last sign.
        heard: when that came, by this process's `time.monotonic`.
        excused: when it was last alive in a patient stage; 0.0 = never.
    """

    sign: Sign
    heard: float
    excused: float = 0.0

    def after(self, sign: Sign, clock: float) -> "Peer":
        """What is known after a look at the store, which may show the same sign as before."""
        if sign.beat == self.sign.beat and sign.ended == self.sign.ended:
            return self
        return Peer(sign, clock, clock if sign.stage in PATIENT and not sign.ended else self.excused)


def missing(own: Sign, peers: Mapping[int, Peer]) -> list[Peer]:
    """The ranks that have not come to the collective in which this rank waits."""
    return [peer for peer in peers.values() if peer.sign.collectives < own.collectives]


def waited(peer: Peer, entered: float, clock: float) -> float:
    """Seconds for which a missing rank has kept this one waiting without an excuse."""
    return clock - max(entered, peer.excused)


def description(own: Sign, peers: Mapping[int, Peer], seconds: float, clock: float) -> str:
    """A line that says for whom this rank waits.

    Args:
        peers: the other ranks.
        seconds: that it has waited.
        clock: the time now.
    """
    if not own.collective:
        return f"{own.name} has been in {own.place} for {seconds:.0f} s: its device does not answer"
    line = f"{own.name} has waited {seconds:.0f} s in {own.collective} of {own.place}"
    absent = missing(own, peers)
    if absent:
        said = "; ".join(_absence(peer, clock) for peer in absent[:NAMED])
        more = f"; and {len(absent) - NAMED} more ranks" if len(absent) > NAMED else ""
        return f"{line} for {said}{more}"
    others = [p for p in peers.values() if p.sign.collectives == own.collectives]
    other = next((p.sign for p in others if p.sign.collective not in ("", own.collective)), None)
    if other is not None:
        return f"{line}, but {other.name} is in {other.collective} of {other.place}"
    return f"{line}, although all ranks have come: the network or a device stands still"


def _absence(peer: Peer, clock: float) -> str:
    sign, silence = peer.sign, clock - peer.heard
    if sign.ended:
        return f"{sign.name}, which ended in {sign.place}: {sign.ended}"
    if silence > 3 * BEAT:
        return f"{sign.name}: its last sign, at least {silence:.0f} s ago, came from {sign.place}"
    at = f" in {sign.collective}" if sign.collective else ""
    return f"{sign.name}, which is alive{at} in {sign.place}, for {sign.seconds + silence:.0f} s"


def is_lost_connection(error: BaseException) -> bool:
    """Whether a collective failed because another process has ended."""
    return isinstance(error, RuntimeError) and bool(_LOST.search(f"{type(error).__name__}: {error}"))


class Heartbeat:
    """The signs of this rank and those of the others.

    Args:
        connect: opens a connection to the store of all ranks, which no other thread uses.
        prefix: of the keys in it; the same on all ranks.
        keeper: who keeps the store.
        activity: of this process.
        device: whether ranks compute on devices, which run behind the main thread: then the flight recorder's
            records are compared, and a main thread that waits for its device is watched too.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        connect: Callable[[], dist.Store],
        prefix: str,
        keeper: str,
        *,
        activity: Activity = now,
        device: bool,
    ) -> None:
        self.rank = rank
        self.size = size
        self.activity = activity
        self.device = device
        self.peers = {n: Peer(Sign(n), time.monotonic()) for n in range(size) if n != rank}
        self._connect = connect
        self._prefix = prefix
        self._keeper = keeper
        self._host = socket.gethostname()
        self._beat = 0
        self._ended = ""
        self._heard = time.monotonic()  # when the store last answered
        self._looking = False  # whether `peers` is kept up to date
        self._lost = False
        self._others: dict[int, Trace] = {}
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"heartbeat {name}", daemon=True)
            for name, work in (("talk", self._talk), ("judge", self._judge))
        ]

    def __enter__(self) -> Self:
        """Begin to beat."""
        for thread in self._threads:
            thread.start()
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Tell the others how this process ends, and stop.

        Raises:
            BrimfulError: another rank has ended, and `error` is a consequence.
            SystemExit: the same, and a third rank says so.
        """
        lost = None
        if error is not None and is_lost_connection(error):
            lost = self._loss(error)
            self._ended = _GAVE_UP
        else:
            self._ended = "done" if error is None else _first_line(error)
        self._stop.set()
        self._hurry.set()
        for thread in self._threads:
            thread.join(5.0)
        if signal.getsignal(signal.SIGTERM) == self._terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if lost:
            raise BrimfulError(lost) from error
        if lost is not None:
            raise SystemExit(1) from error

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """End by SIGTERM, as without a handler; but not while a rank that torchrun ends, because another one
        has ended, finds out which one that is."""
        error = sys.exc_info()[1]
        if self._lost or (error is not None and is_lost_connection(error)):
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def sign(self) -> Sign:
        """What this rank does now."""
        doing = self.activity
        return Sign(
            rank=self.rank,
            host=self._host,
            beat=self._beat,
            update=doing.update,
            stage=doing.stage,
            seconds=time.monotonic() - doing.began,
            collective=doing.collective,
            collectives=doing.collectives,
            ended=self._ended,
        )

    def _loss(self, error: BaseException) -> str:
        """A line about the rank that has ended; "" on all ranks but one of those that are left.

        It takes a few seconds to be sure which rank that is.
        """
        began, place = time.monotonic(), self.sign().place
        self._lost = self._looking = True
        self._hurry.set()
        what = f"a connection to another rank broke in {place} ({_first_line(error)})"
        while (clock := time.monotonic()) - began < 3 * SILENT:
            known = [p.sign for p in self.peers.values() if p.sign.ended not in ("", "done", _GAVE_UP)]
            known += [p.sign for p in self.peers.values() if not p.sign.ended and clock - p.heard > SILENT]
            if clock - self._heard > SILENT:
                what = f"{what}, and {self._keeper}, which keeps the store of the ranks, does not answer"
                break
            if known and clock - began > SILENT:
                if {sign.rank for sign in known}.union({self.rank}).issuperset(range(self.rank)):
                    sign = known[0]
                    what = f"{sign.name} ended in {sign.place}: {sign.ended}"
                    if not sign.ended:
                        what = f"{sign.name} is gone; its last sign of life came from {sign.place}"
                    break
                return ""
            time.sleep(BEAT / 4)
        return f"{what}; the run can go on with --resume"

    def _talk(self) -> None:
        """Write signs and read those of others, until the process leaves."""
        store = None
        while True:
            pause = BEAT
            if self._looking:  # many ranks look less often, so that the store can serve them all
                pause *= 1 + self.size // 64
            try:
                store = store or self._connect()
                self._beat += 1
                store.set(self._key("sign", self.rank), json.dumps(asdict(self.sign())))
                if self._looking:
                    self._look(store)
                else:
                    store.check([self._key("sign", self.rank)])
                self._heard = time.monotonic()
            except Exception:  # the judge notices that the store does not answer
                store, pause = None, 10 * BEAT
            if self._stop.is_set():
                return
            self._hurry.wait(pause)
            self._hurry.clear()

    def _look(self, store: dist.Store) -> None:
        if self.device and (trace := own_trace()) is not None:
            store.set(self._key("trace", self.rank), json.dumps(trace))
        for rank in self.peers:
            if store.check([key := self._key("sign", rank)]):
                sign = Sign(**json.loads(store.get(key)))
                self.peers[rank] = self.peers[rank].after(sign, time.monotonic())
            if self.device and store.check([key := self._key("trace", rank)]):
                self._others[rank] = json.loads(store.get(key))

    def _key(self, kind: str, rank: int) -> str:
        return f"{self._prefix}/{kind}/{rank}"

    def _judge(self) -> None:
        """Watch how long the main thread has been in a collective."""
        doing, said = self.activity, 0.0
        while not self._stop.wait(BEAT / 4):
            entered = self._waits_since()
            clock = time.monotonic()
            notice = min(NOTICE, doing.limit / 2) if doing.limit else NOTICE
            if entered is None or clock - entered < notice / 4:
                self._looking = self._lost
                continue
            if not self._looking:
                self.peers = {n: replace(peer, heard=clock) for n, peer in self.peers.items()}
                self._looking = True
                self._hurry.set()
                continue
            kept = self._kept(entered, clock)
            if said != entered and kept >= notice:
                said = entered
                if self._speaks(clock):
                    self._say(f"warning: {self._line(entered, clock)}")
            if doing.limit and kept >= doing.limit and self._waits_since() == entered:
                self._end(entered, clock)

    def _waits_since(self) -> float | None:
        """When the main thread began to wait for other ranks or for its device; None if it does not wait."""
        doing = self.activity
        if doing.collective:
            return doing.entered
        return doing.began if self.device and doing.update and doing.stage in _ON_DEVICE else None

    def _kept(self, entered: float, clock: float) -> float:
        """For how many seconds someone has kept this rank waiting without an excuse."""
        absent = missing(self.sign(), self.peers) if self.activity.collective else []
        return max((waited(peer, entered, clock) for peer in absent), default=clock - entered)

    def _speaks(self, clock: float) -> bool:
        """Whether this is the lowest rank of those that wait, so that one of them says what all see."""
        gone = {peer.sign.rank for peer in missing(self.sign(), self.peers)}
        gone |= {n for n, peer in self.peers.items() if peer.sign.ended or clock - peer.heard > SILENT}
        return gone.issuperset(range(self.rank))

    def _line(self, entered: float, clock: float) -> str:
        own, seconds = self.sign(), clock - entered
        if clock - self._heard > SILENT + BEAT * (self.size // 64):
            line = f"{own.name} has waited {seconds:.0f} s in {own.collective or own.place}"
            silence = clock - self._heard
            return f"{line}; {self._keeper}, which keeps the store of ranks, is silent for {silence:.0f} s"
        line = description(own, self.peers, seconds, clock)
        if self.device and (trace := own_trace()) is not None and self._others:
            found = first_disagreement({**self._others, self.rank: trace})
            line += f" ({found})" if found else ""
        return line

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # the main thread may hold the lock of rich's console

    def _end(self, entered: float, clock: float) -> NoReturn:
        """End the process, whose main thread cannot be interrupted."""
        if self._speaks(clock):
            limit = f"trainer.hang_limit ({self.activity.limit:g} s) ends the run"
            self._say(f"brimful: {self._line(entered, clock)}: {limit}; it can go on with --resume")
        self._ended = _GAVE_UP
        self._stop.set()
        self._hurry.set()
        self._threads[0].join(2.0)  # the others hear of it
        os._exit(1)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    first = re.sub(r"^\[\S+\] ", "", lines[0].strip()).partition(". This is")[0] if lines else ""
    return f"{type(error).__name__}: {first}" if not isinstance(error, BrimfulError) else first


def heartbeat(rank: int, size: int, name: str, *, device: bool) -> Heartbeat:
    """The heartbeat of a rank, a context manager for as long as the ranks are joined in a process group.

    The store is the one of the process group, at MASTER_ADDR and MASTER_PORT.

    Args:
        name: what these ranks, and no others, call themselves.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

    def connect() -> dist.Store:
        timeout = timedelta(seconds=10 * SILENT)
        return dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timeout)

    by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    keeper = f"{'torchrun' if by_torchrun else 'rank 0'} on {address}"
    return Heartbeat(rank, size, connect, name, keeper, device=device)
