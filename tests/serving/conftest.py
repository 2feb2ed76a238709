"""Servers of small models, each started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.served import save_quick, serving, write_models
from builders.shared import made_once


@pytest.fixture(scope="session")
def small_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `write_models`."""
    return made_once(tmp_path_factory, "served", write_models)


@pytest.fixture(scope="session")
def quick_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two of `save_quick`, both called quick, which differ in sign."""

    def write(folder: Path) -> None:
        save_quick(folder / "quick")
        save_quick(folder / "negative" / "quick", negative=True)

    return made_once(tmp_path_factory, "quick", write)


@pytest.fixture(scope="session")
def quick(quick_models: Path) -> Path:
    """A model that opens quickly."""
    return quick_models / "quick"


@pytest.fixture(scope="session")
def negative(quick_models: Path) -> Path:
    """The same with other answers."""
    return quick_models / "negative" / "quick"


@pytest.fixture(scope="session")
def topics(small_models: Path) -> Iterator[str]:
    """The address of a server of a classifier."""
    with serving(small_models / "topics") as url:
        yield url


@pytest.fixture(scope="session")
def names(small_models: Path) -> Iterator[str]:
    """The address of a server of a token classifier."""
    with serving(small_models / "names") as url:
        yield url


@pytest.fixture(scope="session")
def vectors(small_models: Path) -> Iterator[str]:
    """The address of a server of an encoder."""
    with serving(small_models / "vectors") as url:
        yield url
