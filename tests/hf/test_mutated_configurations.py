"""A config.json with any value anywhere gives a model of finite numbers, or one line."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hf.test_families import refuse
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.hf.folders import load_model, save_model
from brimful.model.heads import SequenceHead, TokenHead
from brimful.tasks.task_model import load_task_model
from builders.encoders import MODELS, small, word_tokenizer

# fmt: off
MORE = [  # keys beside those that the folder has
    "kind", "embedding_size", "global_attn_every_n_layers", "global_rope_theta", "local_rope_theta",
    "rope_scaling", "position_embedding_type", "quantization_config", "window_overlap", "text_pairs",
    "calibration_temperature", "task_settings", "classifier_pooling", "num_labels", "label2id",
]
# fmt: on
NUMBERS = [0, 1, -1, 2, 3, 64, 0.5, -0.02, 1e-300, 1e30, 10**30, 2**31, 2**63, -(2**63), 2**20, 2.0]
OTHERS = [None, True, False, "", "x", "64", "\ud800", [], {}, [1], ["x"], [[]], {"0": "x"}, {"x": {}}, [None]]
NOT_FINITE = [float("nan"), float("inf"), float("-inf")]
LABELS = [
    {"0": "a"},
    {"0": "a", "1": "b", "2": "c"},
    {"a": 0, "b": 1},
    {"0": 1, "1": 2},
    {"0": None, "1": []},
    {"00": "a", "1": "b"},
    ["a", "b"],
    {"0": "O", "1": "B-X"},
    {"0": "a", "1": "a"},
]
VALUES = [*NUMBERS, *OTHERS, *NOT_FINITE, *LABELS]


@pytest.fixture(scope="module", params=[*zip(MODELS, ["label", "tags"] * 3, strict=False)])
def folder(request, tmp_path_factory):
    model, kind = request.param
    torch.manual_seed(0)
    encoder = small(model, hidden_size=16, heads=2, intermediate_size=16, layers=2)
    encoder.tokenizer = word_tokenizer(model)
    head = SequenceHead(encoder, 2) if kind == "label" else TokenHead(encoder, 2)
    place = tmp_path_factory.mktemp("models") / f"{model}-{kind}"
    save_model(place, encoder, head, ["O", "X"])
    return place


def check(folder: Path) -> None:
    """Load and predict: a model of finite numbers, or a refusal of one line without Python's words."""
    try:
        with record_warnings():
            row = load_task_model(folder).predict(["w1 w2", ""], precision="fp32")[0]
        for value in row.values():
            assert not isinstance(value, float) or np.isfinite(value)
    except BrimfulError as error:
        said = str(error)
        assert "\n" not in said
        assert len(said.replace(str(folder), "")) < 400
        assert not any(
            word in said for word in ("object is not", "has no attribute", "expected str", "NoneType")
        )
        said.encode()  # can be shown


def mutated(values: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    changed = json.loads(json.dumps(values))
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted({*MORE, *values})))
        match data.draw(st.sampled_from(["value", "missing", "nested", "negative", "text"])):
            case "missing":
                changed.pop(key, None)
            case "nested":
                changed[key] = {key: changed.get(key)}
            case "negative" if isinstance(changed.get(key), int | float):
                changed[key] = -changed[key]
            case "text" if key in changed:
                changed[key] = str(changed[key])
            case _:
                changed[key] = data.draw(st.sampled_from(VALUES))
    return changed


@pytest.mark.parametrize("key", ["task_settings", "window_overlap", "text_pairs", "calibration_temperature"])
@pytest.mark.parametrize(
    "folder", [("bert", "label"), pytest.param(("bert", "tags"), marks=pytest.mark.slow)], indirect=True
)
def test_a_setting_of_another_type(folder, tmp_path, key):
    """Each of these once: the random ones below meet a pair of key and value only now and then."""
    shutil.copytree(folder, tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    for value in OTHERS:
        (tmp_path / "model" / "config.json").write_text(json.dumps(values | {key: value}))
        check(tmp_path / "model")


@pytest.mark.slow
@given(data=st.data())
def test_a_mutated_configuration_is_read_or_refused_in_one_line(folder, tmp_path_factory, data):
    place = folder.with_name(folder.name + "-mutated")
    if not place.exists():
        shutil.copytree(folder, place)
    values = json.loads((folder / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(mutated(values, data)))
    check(place)


@pytest.mark.parametrize(
    "value", ["[]", "3", "null", "[" * 9999, '{"a": ' * 9999, "", "\x00", '{"vocab_size": 1e999}']
)
def test_a_configuration_that_is_no_object(tmp_path, value):
    (tmp_path / "config.json").write_text(value)
    refuse(tmp_path, r"config\.json", load_model)
