"""The verdict of a run: what limits its speed, and whether its loss is normal."""

import math

import pytest

from brimful.train.metrics import MetricsLog
from brimful.train.verdict import PRETRAINING, TASK, VerbSettings, is_normal, speed, verdict_of_trainings


def line(seconds: float, wait: float = 0.0, **more: float) -> dict[str, float]:
    return {"step": 1, "seconds": seconds, "data_wait": wait} | more


@pytest.mark.parametrize(
    ("lines", "bound", "share"),
    [
        ([line(10.0)], "compute", 1.0),
        ([line(50.0, 0.9), line(60.0, 0.02), line(70.0, 0.04)], "compute", 0.97),
        ([line(1.0), line(2.0, 0.5), line(5.0, 0.1)], "input", 0.2),
        (
            [line(1.0), line(3.0, 0.1, lag=0.1, communication=0.4, slowest_rank=1.0)],
            "communication",
            0.4,
        ),
        (
            [line(1.0), line(3.0, 0.0, lag=0.3, communication=0.2, slowest_rank=5.0)],
            "straggler",
            0.3,
        ),
        ([line(1.0), line(3.0, 0.5, withheld=0.05)], "input", 0.475),
    ],
)
def test_what_limits_a_run(lines: list[dict[str, float]], bound: str, share: float):
    found = speed([lines], PRETRAINING)
    assert found is not None
    assert (found.bound, found.share) == (bound, pytest.approx(share))
    assert sum(found.shares.values()) == pytest.approx(1)


def test_a_low_mfu_is_named():
    found = speed([[line(1.0, mfu=0.1), line(2.0, mfu=0.12)]], PRETRAINING)
    assert found is not None
    assert found.next.startswith("the MFU is 12%")


def test_a_busy_machine_is_no_slow_one():
    """Nine tenths of the cores are of others, so that data comes late, too."""
    lines = [line(1.0), line(9.0, 0.6, withheld=0.9, others=1.7, stolen=0.1, load=8.5, cores=2)]
    found = speed([lines], PRETRAINING)
    assert found is not None
    assert (found.bound, found.share) == ("busy machine", pytest.approx(0.9))
    assert found.next == "other processes took 1.7 of 2 cores"
    assert sum(found.shares.values()) == pytest.approx(1)
    stolen = speed([[line(9.0, withheld=0.5, others=0.2, stolen=1.0, cores=2)]], TASK)
    assert stolen is not None
    assert stolen.next == "the host of this virtual machine withheld 1.0 of 2 cores"
    unknown = speed([[line(9.0, withheld=0.5, processor=1.0, load=9.0, cores=2)]], TASK)
    assert unknown is not None
    assert unknown.next == "other processes took cores (load average 9.0)"


def test_a_quota_is_named():
    """Nobody else wants the cores: no faster device would help."""
    quota = line(9.0, withheld=0.95, others=0.1, stolen=0.0, load=0.2, cores=2, quota=0.1)
    found = speed([[quota]], PRETRAINING)
    assert found is not None
    assert found.bound == "busy machine"
    assert found.share == pytest.approx(0.95)
    assert found.next == "this process's CPU quota left 0.1 of 2 cores: raise it"
    mostly_others = speed([[quota, line(10.0, withheld=0.9), quota | {"seconds": 10.1}]], TASK)
    assert mostly_others is not None
    assert mostly_others.next.startswith("other processes")


def test_without_training_there_is_no_verdict():
    assert speed([], PRETRAINING) is None
    assert speed([[]], PRETRAINING) is None
    assert speed([[{"step": 0, "validation.loss": 3.0}]], PRETRAINING) is None


def test_several_trainings_count_by_their_seconds_each_without_its_first_line():
    first = [line(100.0, 1.0), line(101.0, 0.9)]  # 1 s, of which 0.9 wait for data
    second = [line(5.0, 1.0), line(8.0, 0.1), line(14.0, 0.0)]  # 9 s, of which 0.3 wait
    found = speed([first, second], TASK)
    assert found is not None
    assert (found.bound, found.share) == ("input", pytest.approx(1.2 / 10))


@pytest.mark.parametrize(
    ("share", "settings", "named"),
    [
        ({"communication": 0.4}, PRETRAINING, "rows_per_update"),
        ({"communication": 0.4}, TASK, "(batch)"),
        ({}, PRETRAINING, "trainer.steps"),
        ({}, TASK, "epochs"),
        ({"mfu": 0.1}, TASK, "micro_batch_tokens"),
    ],
)
def test_the_advice_names_settings_that_the_verb_has(
    share: dict[str, float], settings: VerbSettings, named: str
):
    found = speed([[line(1.0), line(2.0, lag=0.0, slowest_rank=0.0, **share)]], settings)
    assert found is not None
    assert named in found.next


def test_a_run_keeps_its_verdict_for_the_last_screen(tmp_path, capsys):
    (tmp_path / "one").mkdir()
    log = MetricsLog(tmp_path / "one" / "metrics.jsonl")
    for each in (line(1.0, 0.9), line(3.0, 0.25)):
        log.write(**each)
    found = verdict_of_trainings([tmp_path / "one", tmp_path / "gone"])["verdict"]
    assert (found["bound"], found["share"]) == ("input", 0.25)
    assert sum(found["shares"].values()) == 1
    assert found["next"] == "give each rank more CPU cores"
    assert capsys.readouterr() == ("", ""), "the last screen says it, once"
    assert verdict_of_trainings([tmp_path / "gone"]) == {}


@pytest.mark.parametrize(("loss", "normal"), [(4.1, True), (6.85, False), (8.0, False), (math.nan, False)])
def test_a_loss_is_judged_by_the_unigram_entropy(loss: float, normal: bool):
    assert is_normal(loss, 6.9) is normal
