"""The number format of inference: measured once for a machine, and kept."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from brimful.commands.predict import predict
from brimful.errors import BrimfulError
from brimful.hf.folders import save_model
from brimful.hf.int8 import calibrated_precision
from brimful.model.door import shut
from brimful.model.int8 import Steps, missing
from brimful.precision import inference
from brimful.precision.inference import FEWEST, faster_format, resolve_inference, speedup
from brimful.tables import slices
from builders.encoders import small, word_tokenizer

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(inference, "has_fast_bf16", lambda device: True)
    inference._kept_speedup.cache_clear()
    yield tmp_path / "brimful" / "bf16.json"
    inference._kept_speedup.cache_clear()


def test_the_faster_format_is_measured_once_and_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    for ratio, format in ((3.0, "bf16"), (1.09, "fp32")):
        monkeypatch.setattr(inference, "speedup", lambda ratio=ratio: measured.append(ratio) or ratio)
        file.unlink(missing_ok=True)
        for _ in range(2):
            inference._kept_speedup.cache_clear()
            assert resolve_inference("auto", CPU, FEWEST) == format
    assert measured == [3.0, 1.09]
    kept = json.loads(file.read_text())
    for other in ({**kept, "machine": "another"}, {"speedup": 3.0}, {**kept, "speedup": None}, []):
        file.write_text(json.dumps(other))
        inference._kept_speedup.cache_clear()
        assert resolve_inference("auto", CPU, FEWEST) == "fp32"
    assert len(measured) == 6
    file.unlink()
    file.mkdir()  # nothing can be kept
    inference._kept_speedup.cache_clear()
    assert resolve_inference("auto", CPU, FEWEST) == "fp32"


@pytest.mark.usefixtures("file")
def test_short_runs_and_what_is_asked_for_need_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "speedup", lambda: pytest.fail("measured"))
    assert resolve_inference("auto", CPU, FEWEST - 1) == "fp32"
    assert resolve_inference("auto", GPU, 1) == "bf16"
    for asked in ("fp32", "bf16", "fp16", "int8"):
        assert resolve_inference(asked, CPU, 1 << 20) == asked
    assert faster_format(GPU) == "bf16"
    monkeypatch.setattr(inference, "has_fast_bf16", lambda device: False)
    assert faster_format(GPU) == faster_format(CPU) == "fp32"
    assert resolve_inference("auto", GPU, 1 << 20) == resolve_inference("auto", CPU, 1 << 20) == "fp32"


def test_a_measurement_leaves_the_random_numbers_of_the_caller() -> None:
    before = torch.get_rng_state()
    assert 0.01 < speedup() < 100
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("kernels")
def test_int8_needs_steps_and_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = small("bert")
    assert calibrated_precision("auto", encoder, CPU) == "auto"
    with pytest.raises(BrimfulError, match="X is not calibrated for int8: `brimful export --format int8"):
        calibrated_precision("int8", encoder, CPU, "X")
    encoder.layers[1].up.steps = Steps(0.1, 3)
    assert calibrated_precision("bf16", encoder, CPU) == "bf16"
    monkeypatch.setattr("brimful.hf.int8.missing", lambda largest: None)
    assert calibrated_precision("auto", encoder, CPU) == calibrated_precision("int8", encoder, CPU) == "int8"
    assert calibrated_precision("auto", encoder, GPU) == "auto"
    with pytest.raises(BrimfulError, match="int8 needs a CPU; leave --precision out"):
        calibrated_precision("int8", encoder, GPU)
    with shut(), pytest.raises(BrimfulError, match="BRIMFUL_KERNELS=on"):
        calibrated_precision("int8", encoder, CPU)
    monkeypatch.setattr("brimful.hf.int8.missing", missing)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert calibrated_precision("auto", encoder, CPU) == "auto"
    with pytest.raises(BrimfulError, match="a processor with VNNI or AMX"):
        calibrated_precision("int8", encoder, CPU)


@pytest.mark.usefixtures("file")
def test_all_rows_of_a_file_have_one_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last slice of a file is short, and in the format of the first."""
    monkeypatch.setattr(inference, "speedup", lambda: 3.0)
    monkeypatch.setattr(inference, "FEWEST", 100)
    monkeypatch.setattr(slices, "TEXTS", 50)
    encoder = small("bert", vocabulary_size=95)
    encoder.tokenizer = word_tokenizer("bert")
    save_model(tmp_path / "encoder", encoder)
    (tmp_path / "texts.txt").write_text("w1 w2 w3\n" * 51)
    predict(
        model=str(tmp_path / "encoder"), input=str(tmp_path / "texts.txt"), output=str(tmp_path / "found.npy")
    )
    found = np.load(tmp_path / "found.npy")
    np.testing.assert_array_equal(found[0], found[50])
