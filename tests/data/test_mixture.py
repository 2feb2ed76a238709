"""Mixtures: how they are written down, and what is refused."""

import pytest

from brimful.base.config import build
from brimful.base.errors import BrimfulError
from brimful.data.mixture import DataSource, parse_source, parse_sources
from brimful.stages.pretrain_config import PretrainConfig
from brimful.train.phases import PhaseConfig

SOURCES = {"a": ("a", 1.0), "a:3": ("a", 3.0), "x/a:0.5": ("x/a", 0.5)}
SOURCES |= {"c:\\data": ("c:\\data", 1.0), "c:\\data:2": ("c:\\data", 2.0)}


@pytest.mark.parametrize("text", SOURCES)
def test_sources_on_a_command_line(text):
    source = parse_source(text)
    assert (source.path, source.weight) == SOURCES[text]


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "1e-320", "1e308"])
def test_weights_are_above_0(weight):
    with pytest.raises(BrimfulError, match=r"weight of a .* above 0"):
        parse_source(f"a:{weight}")
    with pytest.raises(BrimfulError, match="above 0"):
        build(PretrainConfig, {"data": [{"path": "a", "weight": float(weight)}]})


def test_a_folder_that_is_not_prepared_is_named_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BrimfulError, match=r"corpus: nosuch is not a folder; .* prepare TEXT --out nosuch$"):
        parse_sources("nosuch:2")


def test_sources_have_names(tmp_path, monkeypatch):
    monkeypatch.setattr("brimful.data.mixture.require_prepared", lambda path: None)
    sources = parse_sources([f"{tmp_path}/a:3", DataSource(path=f"{tmp_path}/b/a", name="other")])
    (first, second) = ((s.path, s.weight, s.name) for s in sources)
    assert first == (f"{tmp_path}/a", 3.0, "a")
    assert second == (f"{tmp_path}/b/a", 1.0, "other")
    (tmp_path / "web" / "text").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "web" / "text")
    assert [parse_sources(path)[0].name for path in (".", "..", "../../web:2")] == ["text", "web", "web"]
    for paths, named in ((["x/a", "y/a:2"], "called a"), ([], "no folder"), (f"{tmp_path}/web:x", "'x'")):
        with pytest.raises(BrimfulError, match=named):
            parse_sources(paths)
    for name in ("../a", "a/b"):
        with pytest.raises(BrimfulError, match=name):
            DataSource(path="a", name=name)
    (tmp_path / "web:x").mkdir()
    assert parse_sources(f"{tmp_path}/web:x")[0].name == "web:x"


def test_phases_on_a_command_line():
    assert PhaseConfig.from_text("900:128") == PhaseConfig(steps=900, max_length=128)
    assert PhaseConfig.from_text("100:512:8") == PhaseConfig(steps=100, max_length=512, update_size=8)
    for text in ("100", "100:512", "100:512:8", "100::8"):
        assert str(PhaseConfig.from_text(text)) == text
    for text in ("900:x", "1:2:3:4", "", ":5"):
        with pytest.raises(ValueError):
            PhaseConfig.from_text(text)


NAN = float("nan")
RATE, TWO = {"steps": 1000, "learning_rate": 1.0}, [{"steps": 500}, {"steps": 500, "warmup": 0.2}]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": [{"path": "a", "wieght": 2}]}, r"unknown key data\[0\].wieght.*weight"),
        ({"phases": [{"steps": 10}, {"steps": 10}]}, "add up to 20, and trainer.steps is 1000"),
        ({"phases": [{"steps": 0}]}, "phases.steps is 0"),
        ({"phases": [{"steps": 1000, "max_length": 2000}]}, "max_length is 2000"),
        ({"phases": [{"steps": 1000, "update_size": 3}], "rows_per_micro_batch": 2}, "must divide"),
        ({"phases": [{"steps": 1000, "learning_rate": 0.0}]}, "phases.learning_rate is 0.0"),
        ({"phases": [{"steps": 1000, "warmup": 1.5}]}, "phases.warmup is 1.5: give a proportion"),
        ({"phases": [{"steps": 1000, "warmup": 1000.0}]}, "takes 1000 updates, and there are 1000"),
        ({"phases": [RATE], "optimizer": {"learning_rate": 0.0}}, "optimizer.learning_rate is 0"),
        ({"phases": TWO, "trainer": {"hours": 2.0}}, "trainer.hours does not go with phases"),
        ({"trainer": {"hours": 2.0}, "schedule": {"warmup": 9.0}}, "trainer.hours .* give a proportion"),
        ({"trainer": {"hours": 2.0, "deterministic": True}}, "leave out trainer.deterministic"),
        ({"trainer": {"clip": NAN}}, "trainer.clip is nan"),
        ({"trainer": {"steps": 0}}, "trainer.steps is 0"),
        ({"trainer": {"keep_checkpoints": 0}}, "trainer.keep_checkpoints is 0"),
        ({"sequences_per_update": 9, "rows_per_update": 8}, "give one of them"),
        ({"sequences_per_update": 0}, "at least 1"),
        ({"data": [{"path": "a", "name": ".."}]}, "cannot name a source"),
        ({"packing": {"capacity": 1 << 25}}, "capacity is 33554432: it must be at most 16777216"),
        ({"rows_per_update": 10**9}, "an update of 1,000,000,000 rows"),
        ({"validation_tokens": -1}, "validation_tokens is -1"),
        ({"optimizer": {"learning_rate": float("inf")}}, "learning_rate is inf"),
        ({"optimizer": {"weight_decay": NAN}}, "weight_decay is nan"),
        ({"optimizer": {"beta1": 1.0}}, "optimizer.beta1 is 1.0"),
        ({"optimizer": {"epsilon": 0.0}}, "optimizer.epsilon is 0.0"),
        ({"sequences": {"kind": "nsp"}}, "choose architecture bert or prenorm"),
        ({"sequences": {"short_share": NAN}}, "sequences.short_share is nan"),
        ({"packing": {"max_length": 4}}, "packing.max_length is 4"),
        ({"packing": {"max_length": 65, "capacity": 64}}, "packing.max_length is 65"),
        ({"packing": {"max_sequences": 0}}, "packing.max_sequences is 0"),
        ({"masking": {"rate": 1.5}}, "masking.rate is 1.5"),
        ({"masking": {"rate": 0.0}}, "masking.rate is 0: .*above 0"),
        ({"masking": {"final_rate": 2.0}}, "masking.final_rate is 2"),
        ({"masking": {"mask_share": -0.1}}, "masking.mask_share is -0.1"),
        ({"masking": {"mask_share": 0.8, "random_share": 0.3}}, "add up to at most 1"),
        ({"masking": {"random_share": NAN}}, "masking.random_share nan"),
        ({"masking": {"together": True, "unit": "tokens"}}, "set masking.unit to words"),
    ],
)
def test_what_a_configuration_may_not_say(values, message):
    with pytest.raises(BrimfulError, match=message):
        build(PretrainConfig, values)


def test_phases_count_as_the_run_does():
    phases = (PhaseConfig(steps=600, update_size=8), PhaseConfig(steps=400, max_length=64))
    for unit, size in (("rows", 2), ("sequences", 9)):
        config = PretrainConfig(phases=phases, **{f"{unit}_per_update": size})
        made = [(phase.size, phase.unit, phase.packing.max_length) for phase in config.run_phases()]
        assert made == [(8, unit, 128), (size, unit, 64)]
