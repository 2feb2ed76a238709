"""Signs of life: who is missing, who is excused, and what ends a run; two ranks share a process."""

import time
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from brimful.activity import Activity, Collective, now
from brimful.errors import BrimfulError
from brimful.ranks import heartbeat
from brimful.ranks.heartbeat import Heartbeat, Peer, Sign, description, is_lost_connection, waited

BROKEN = RuntimeError("[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242")


class EndedError(Exception):
    """The end of a rank, in place of os._exit."""


class Rank:
    """A rank of its own activity, which writes down its lines."""

    def __init__(self, rank: int, store: dist.Store) -> None:
        self.activity = Activity()
        self.activity.limit = 1.2
        self.lines: list[str] = []
        self.ended = False
        self.beats = Heartbeat(
            rank, 2, lambda: store, "test", "torchrun", activity=self.activity, device=False
        )
        self.beats._say = self.lines.append  # type: ignore[method-assign]
        self.beats._end = self._end  # type: ignore[method-assign,assignment]

    def _end(self, entered: float, clock: float) -> None:
        self.lines.append(self.beats._line(entered, clock))
        self.ended = True
        self.beats._stop.set()

    def enter(self, what: str, update: int) -> None:
        self.activity.update = update
        self.activity.begin("communication")
        self.activity.collectives += 1
        self.activity.entered = time.monotonic()
        self.activity.collective = what


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rank]]:
    monkeypatch.setattr(heartbeat, "BEAT", 0.04)
    monkeypatch.setattr(heartbeat, "SILENT", 0.3)
    store = dist.HashStore()
    both = [Rank(0, store), Rank(1, store)]
    for rank in both:
        rank.beats.__enter__()
    yield both
    for rank in both:
        rank.beats._stop.set()
        rank.beats._hurry.set()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_rank_that_does_not_come_is_named_and_then_ends_the_run(ranks: list[Rank]):
    ranks[1].activity.update = 7
    ranks[1].activity.begin("data wait")
    ranks[0].enter("the sum of gradients", 7)
    until(lambda: ranks[0].ended)
    warning, last = ranks[0].lines
    host = ranks[0].beats.sign().host
    assert warning.startswith(f"warning: rank 0 ({host}) has waited 1 s in the sum of gradients of update 7")
    for line in (warning, last):
        assert f"for rank 1 ({host}), which is alive in update 7 (data wait), for" in line
    assert not ranks[1].lines


def test_a_rank_without_a_sign_of_life_is_named(ranks: list[Rank]):
    ranks[1].activity.update = 3
    ranks[1].activity.begin("backward")
    time.sleep(0.2)
    ranks[1].beats._stop.set()  # as SIGSTOP does
    ranks[0].enter("a barrier", 3)
    until(lambda: ranks[0].ended)
    assert "its last sign, at least" in ranks[0].lines[-1]
    assert ranks[0].lines[-1].endswith("came from update 3 (backward)")


def test_a_rank_that_is_alive_in_a_long_stage_may_take_its_time(ranks: list[Rank]):
    ranks[1].activity.begin("evaluation")
    ranks[0].enter("a barrier", 3)
    time.sleep(2 * ranks[0].activity.limit)
    assert not ranks[0].ended
    assert not ranks[0].lines
    ranks[1].beats._stop.set()
    until(lambda: ranks[0].ended)


def test_without_a_limit_a_run_waits(ranks: list[Rank], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heartbeat, "NOTICE", 0.4)
    ranks[0].activity.limit = 0.0
    ranks[1].activity.begin("data wait")
    ranks[0].enter("a barrier", 3)
    until(lambda: bool(ranks[0].lines))
    time.sleep(0.5)
    assert not ranks[0].ended
    assert len(ranks[0].lines) == 1, "once for each collective"


def test_a_broken_connection_names_the_rank_that_has_gone(ranks: list[Rank]):
    ranks[1].activity.update = 5
    ranks[1].activity.begin("forward")
    time.sleep(0.2)
    ranks[1].beats._stop.set()  # as SIGKILL does
    with pytest.raises(BrimfulError) as raised:
        ranks[0].beats.__exit__(RuntimeError, BROKEN, None)
    host = ranks[0].beats.sign().host
    assert str(raised.value) == (
        f"rank 1 ({host}) is gone; its last sign of life came from update 5 (forward);"
        " the run can go on with --resume"
    )


def test_a_rank_that_ends_by_an_error_of_its_own_tells_the_others(ranks: list[Rank]):
    ranks[1].activity.update = 5
    ranks[1].activity.begin("data wait")
    ranks[1].beats.__exit__(BrimfulError, BrimfulError("shard 3 is damaged"), None)
    with pytest.raises(BrimfulError, match=r"ended in update 5 \(data wait\): shard 3 is damaged; the run"):
        ranks[0].beats.__exit__(RuntimeError, BROKEN, None)


def test_one_rank_speaks_of_the_loss_of_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heartbeat, "SILENT", 0.3)
    beats = Heartbeat(2, 3, dist.HashStore, "test", "torchrun", activity=Activity(), device=False)
    clock = time.monotonic()
    beats._heard = clock + 100
    beats.peers = {0: Peer(Sign(0, beat=4), clock + 100), 1: Peer(Sign(1, beat=4), clock - 100)}
    assert beats._loss(BROKEN) == ""


def test_errors_of_other_kinds_are_no_lost_connections():
    assert is_lost_connection(BROKEN)
    assert not is_lost_connection(RuntimeError("shape mismatch"))
    assert not is_lost_connection(BrimfulError("gloo/transport"))


def test_an_excuse_counts_from_the_last_sign_of_it():
    peer = Peer(Sign(1), 0.0).after(Sign(1, beat=1, stage="evaluation"), 50.0)
    assert waited(peer, 10.0, 60.0) == 10.0
    assert waited(peer.after(Sign(1, beat=1, stage="evaluation"), 58.0), 10.0, 60.0) == 10.0
    assert waited(peer.after(Sign(1, beat=2, stage="forward"), 58.0), 10.0, 60.0) == 10.0
    assert waited(Peer(Sign(1), 0.0), 10.0, 60.0) == 50.0


def test_ranks_in_different_collectives_and_ranks_that_have_all_come():
    own = Sign(0, "a", 1, 4, "clip", 0.0, "a sum over ranks", 9)
    other = Sign(1, "b", 1, 4, "communication", 0.0, "a barrier", 9)
    line = description(own, {1: Peer(other, 0.0)}, 61.0, 1.0)
    assert line == (
        "rank 0 (a) has waited 61 s in a sum over ranks of update 4 (clip), but rank 1 (b) is in a barrier of"
        " update 4 (communication)"
    )
    same = Peer(Sign(1, "b", 1, 4, "clip", 0.0, "a sum over ranks", 9), 0.0)
    assert "although all ranks have come" in description(own, {1: same}, 61.0, 1.0)
    many = {n: Peer(Sign(n, "b", 1), 1.0) for n in range(1, 9)}
    assert description(own, many, 61.0, 1.0).endswith("; and 5 more ranks")


def test_a_collective_is_an_activity():
    before = now.collectives
    with Collective("a barrier"):
        assert now.collective == "a barrier"
    assert (now.collective, now.collectives) == ("", before + 1)
