"""Learning-rate schedules: exact values, against transformers and NVIDIA's formula, and what always holds."""

import math
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import get_scheduler

from brimful.base.config import build, read_yaml
from brimful.base.errors import BrimfulError
from brimful.optim.schedule import Cycle, Schedule, ScheduleConfig
from brimful.stages.pretrain_config import PretrainConfig

SHAPES = ("linear", "polynomial", "cosine", "constant", "wsd")


def factors(steps: int, **values) -> list[float]:
    schedule = Schedule(ScheduleConfig(**values), [Cycle(steps)])
    return [schedule.rate(step) for step in range(steps)]


def test_a_warmup_is_a_share_or_a_number_of_updates():
    assert factors(3, shape="constant", warmup=1.0) == [1, 1, 1]
    assert factors(5, shape="constant", warmup=0.5) == [1 / 2.5, 2 / 2.5, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("linear", {"shape": "linear"}, {}),
        ("cosine", {"shape": "cosine"}, {}),
        ("polynomial", {"shape": "polynomial", "power": 1.7}, {"power": 1.7, "lr_end": 0.0}),
        ("constant_with_warmup", {"shape": "constant"}, {}),
        ("warmup_stable_decay", {"shape": "wsd"}, {"num_decay_steps": 30, "decay_type": "1-sqrt"}),
    ],
)
def test_shapes_are_those_of_transformers(name, ours, theirs):
    """Whose warm-up is one update behind: its first update has no rate."""
    steps, warmup = 150, 24
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    settings = {"num_warmup_steps": warmup, "scheduler_specific_kwargs": theirs}
    if name != "constant_with_warmup":
        settings["num_training_steps"] = steps
    scheduler = get_scheduler(name, optimizer, **settings)
    expected = []
    for _ in range(steps):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    values = factors(steps, warmup=float(warmup), **ours)
    assert values[: warmup - 1] == pytest.approx(expected[1:warmup], rel=1e-12)
    assert values[warmup:] == pytest.approx(expected[warmup:], rel=1e-12)


# NVIDIA's recipe


def published_rate(update: int, updates: int, peak: float, warmup: float) -> tuple[float, float]:
    """Both branches of NVIDIA's PolyWarmUpScheduler (DeepLearningExamples, PyTorch/LanguageModeling/BERT)."""
    progress = update / updates
    return peak * progress / warmup, peak * (1 - progress) ** 0.5


def test_the_published_two_phase_recipe():
    """Warm-up: NVIDIA's k-th of N updates has progress k / N, and so has ours. Decay: ours has (k - 1) / N,
    so that the last update of a phase, to which NVIDIA gives the rate 0, counts too."""
    config = build(PretrainConfig, read_yaml(Path("recipes/pretrain-two-phase-lamb.yaml")))
    schedule = Schedule(config.schedule, config.cycles())
    rates = [config.optimizer.learning_rate * schedule.rate(step) for step in range(8601)]
    for start, updates, peak, warmup in ((0, 7038, 6e-3, 0.2843), (7038, 1563, 4e-3, 0.128)):
        for step in range(updates):
            rising = published_rate(step + 1, updates, peak, warmup)[0]
            falling = published_rate(step, updates, peak, warmup)[1]
            expected = rising if (step + 1) / updates < warmup else falling
            assert rates[start + step] == pytest.approx(expected, rel=1e-12), start + step


def test_phases_without_a_rate_of_their_own_share_a_schedule():
    """A growing batch leaves the rate as it is; a phase with a rate or a warm-up starts anew, at the peak."""
    growing = [{"steps": 10, "update_size": size} for size in (2, 4, 8)]
    whole = {"recipe": "plain", "optimizer": {"learning_rate": 2e-3}, "schedule": {"shape": "cosine"}}
    config = build(PretrainConfig, whole | {"phases": growing, "trainer": {"steps": 30}})
    assert config.cycles() == [Cycle(30)]
    assert [phase.size for phase in config.run_phases()] == [2, 4, 8]
    more = [
        {"steps": 20, "learning_rate": 1e-3},
        {"steps": 5, "max_length": 64},
        {"steps": 10, "warmup": 5.0},
    ]
    config = build(PretrainConfig, whole | {"phases": growing + more, "trainer": {"steps": 65}})
    schedule = Schedule(config.schedule, config.cycles())
    expected = factors(30, shape="cosine") + [rate / 2 for rate in factors(25, shape="cosine")]
    expected += factors(10, shape="cosine", warmup=5.0)
    assert [schedule.rate(step) for step in range(65)] == pytest.approx(expected)
    assert [schedule.over(step) for step in (0, 30, 64, 65)] == [False, False, False, True]


NUMBERS = [("power", 0.0), ("power", math.nan), ("power", math.inf), ("decay", 0.0), ("decay", 1.1)]
WARMUP = "schedule.warmup is .* a proportion.* or a whole number of updates"
REFUSED = [
    *(({"warmup": warmup}, [], WARMUP) for warmup in (-0.1, -2.0, 1.5, math.nan, math.inf)),
    *(({name: value}, [], f"schedule.{name} is {value}") for name, value in NUMBERS),
    ({"warmup": 30.0}, [Cycle(30)], "the warm-up takes 30 updates, and there are 30"),
    ({"shape": "wsd", "warmup": 0.9}, [Cycle(30)], r"the warm-up \(0.9 .*schedule.decay \(0.2\)"),
    ({"shape": "wsd", "warmup": 25.0}, [Cycle(30)], "are more than the whole"),
]


@pytest.mark.parametrize(("values", "cycles", "message"), REFUSED)
def test_schedules_that_cannot_be(values, cycles, message):
    with pytest.raises(BrimfulError, match=message):
        Schedule(ScheduleConfig(**values), cycles)


# What holds for all

configs = st.builds(
    ScheduleConfig,
    shape=st.sampled_from(SHAPES),
    warmup=st.floats(0, 1, exclude_max=True) | st.integers(0, 100).map(float),
    power=st.floats(0.1, 4),
    decay=st.floats(0.01, 1),
    decay_from=st.sampled_from(["warmup", "start"]),
)


def made(config: ScheduleConfig, cycles: list[Cycle], hours: float = 0.0) -> Schedule:
    try:
        return Schedule(config, cycles, hours)
    except BrimfulError:
        assume(False)
        raise


@given(
    configs, st.lists(st.tuples(st.integers(1, 60), st.floats(0.01, 9)), min_size=1, max_size=4), st.data()
)
def test_a_cycle_knows_nothing_of_the_others(config, parts, data):
    """So a run that goes on at any update has the rate of one that was not interrupted."""
    schedule = made(config, [Cycle(steps, peak) for steps, peak in parts])
    ends = [0, *accumulate(steps for steps, _ in parts)]
    step = data.draw(st.integers(0, ends[-1] - 1))
    number = max(n for n, end in enumerate(ends) if end <= step)
    steps, peak = parts[number]
    alone = Schedule(config, [Cycle(steps)])
    assert schedule.rate(step) == peak * alone.rate(step - ends[number])
    assert schedule.over(step) is False
    assert schedule.over(ends[-1]) is True


@given(
    configs,
    st.integers(1, 2000),
    st.lists(st.floats(0.5, 200), min_size=60, max_size=60),
    st.just(0.0) | st.floats(0.01, 0.5),
)
def test_a_run_rises_falls_and_ends_whatever_its_speed(config, steps, speeds, hours):
    """Also with limited hours. Sums of floats are off by up to 1e-12."""
    schedule = made(config, [Cycle(steps)], hours)
    values, step, seconds = [], 0, 0.0
    while not schedule.over(step, seconds):
        values.append(schedule.rate(step, seconds))
        seconds += speeds[step % 60]
        step += 1
    assert step <= steps
    assert step == steps or seconds >= 3600 * hours > seconds - speeds[(step - 1) % 60]
    assert all(0 < value <= 1 for value in values)
    if config.decay_from == "warmup" and not hours:
        assert max(values) == pytest.approx(1)
    top = values.index(max(values))
    assert all(b >= a - 1e-12 for a, b in pairwise(values[: top + 1]))
    assert all(b <= a + 1e-12 for a, b in pairwise(values[top:]))
