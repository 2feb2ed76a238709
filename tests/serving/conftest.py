"""Servers of small models, each started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.served import serving, write_models
from builders.shared import made_once
from builders.static_folder import save_static


@pytest.fixture(scope="session")
def small_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `write_models`."""
    return made_once(tmp_path_factory, "served", write_models)


@pytest.fixture(scope="session")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `save_static`."""
    return (
        made_once(tmp_path_factory, "served-static", lambda folder: save_static(folder / "static")) / "static"
    )


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
