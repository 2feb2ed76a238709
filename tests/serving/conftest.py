"""Servers of small models, each started once."""

from pathlib import Path

import pytest

from brimful import export
from builders.served import save_quick, serving, write_models
from builders.shared import made_once
from builders.task_models import task_model


@pytest.fixture(scope="session")
def small_models(tmp_path_factory):
    """The folder of `write_models`."""
    return made_once(tmp_path_factory, "served", write_models)


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """The folder with the `model` of a task and its `onnx` export, which takes seconds to make."""

    def make(task: str) -> Path:
        def write(folder: Path) -> None:
            task_model(task).save(folder / "model")
            export(run=str(folder / "model"), out=str(folder / "onnx"), format="onnx")

        return made_once(tmp_path_factory, f"exported-{task}", write)

    return make


@pytest.fixture(scope="session")
def quick_models(tmp_path_factory):
    """A folder with two of `save_quick`, both called quick, which differ in sign."""

    def write(folder: Path) -> None:
        save_quick(folder / "quick")
        save_quick(folder / "negative" / "quick", negative=True)

    return made_once(tmp_path_factory, "quick", write)


@pytest.fixture(scope="session")
def quick(quick_models):
    """A model that opens quickly."""
    return quick_models / "quick"


@pytest.fixture(scope="session")
def negative(quick_models):
    """The same with other answers."""
    return quick_models / "negative" / "quick"


@pytest.fixture(scope="session")
def topics(small_models):
    """The address of a server of a classifier."""
    with serving(small_models / "topics") as url:
        yield url


@pytest.fixture(scope="session")
def vectors(small_models):
    """The address of a server of an encoder."""
    with serving(small_models / "vectors") as url:
        yield url
