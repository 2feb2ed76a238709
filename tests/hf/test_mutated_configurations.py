"""A config.json with any value anywhere gives a model of finite numbers, or one line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hf.test_families import refuse

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.hf.folders import load_model, save_model
from brimful.model.heads import SequenceHead, TokenHead
from brimful.tasks.task_model import load_task_model
from builders.encoders import small, word_tokenizer

OTHERS = [None, True, False, "", "x", "64", "\ud800", [], {}, [1], ["x"], [[]], {"0": "x"}, {"x": {}}, [None]]


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    torch.manual_seed(0)
    encoder = small("bert", hidden_size=16, heads=2, intermediate_size=16, layers=2)
    encoder.tokenizer = word_tokenizer("bert")
    place = tmp_path_factory.mktemp("models") / "model"
    save_model(place, encoder, request.param(encoder, 2), ["O", "X"])
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


@pytest.mark.parametrize("key", ["task_settings", "window_overlap", "text_pairs", "calibration_temperature"])
@pytest.mark.parametrize(
    "folder", [SequenceHead, pytest.param(TokenHead, marks=pytest.mark.slow)], indirect=True
)
def test_a_setting_of_another_type(folder, tmp_path, key):
    """Other keys and random values: tests/fuzz."""
    shutil.copytree(folder, tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    for value in OTHERS:
        (tmp_path / "model" / "config.json").write_text(json.dumps(values | {key: value}))
        check(tmp_path / "model")


@pytest.mark.parametrize(
    "value", ["[]", "3", "null", "[" * 9999, '{"a": ' * 9999, "", "\x00", '{"vocab_size": 1e999}']
)
def test_a_configuration_that_is_no_object(tmp_path, value):
    (tmp_path / "config.json").write_text(value)
    refuse(tmp_path, r"config\.json", load_model)
