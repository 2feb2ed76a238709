"""Batches of one model in several threads at the same time give what they give one after the other."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from brimful.base.errors import BrimfulError
from brimful.serving.batch_model import BatchModel, open_models
from brimful.serving.config import ModelOptions
from brimful.serving.open_model import open_served
from brimful.serving.queue import QueuedWindow
from builders.served import write_models

THREADS, TURNS = 4, 3
TEXTS = [" ".join(f"w{(3 * row + word) % 40}" for word in range(1 + row % 13)) for row in range(24)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("together")
    write_models(folder)
    return folder


def test_a_model_is_called_after_the_folder_that_was_given(models, tmp_path, monkeypatch):
    """A link's name stays when it leads to another model."""
    (tmp_path / "router").symlink_to(models / "topics")
    monkeypatch.chdir(models / "vectors")
    openings = [ModelOptions(model=name, device="cpu") for name in (f"{tmp_path}/router/", ".", "../topics")]
    found = open_models(openings, lambda function: function())
    assert list(found) == ["router", "vectors", "topics"]
    with pytest.raises(BrimfulError, match="two models are called topics"):
        open_models([*openings, openings[-1]], lambda function: function())


def numbers(model: BatchModel, given: list[str]) -> list[object]:
    texts = model.read(given, None, None)
    outputs = model.outputs([QueuedWindow(text, 0) for text in texts])
    for text, output in zip(texts, outputs, strict=True):
        text.outputs = [output]
    model.answer(texts)
    return [text.value.tolist() if isinstance(text.value, np.ndarray) else text.value for text in texts]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["topics", "names", "vectors"])
def test_in_any_thread_a_text_has_the_same_answer(models, name, precision):
    opening = ModelOptions(model=str(models / name), precision=precision, device="cpu", resident=True)  # type: ignore[arg-type]
    model = BatchModel(name, open_served(opening))
    model._threads = 1
    batches = [TEXTS[start::6] for start in range(6)]
    expected = [numbers(model, batch) for batch in batches]
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda batch: numbers(model, batch), batches * TURNS))
    assert found == expected * TURNS
