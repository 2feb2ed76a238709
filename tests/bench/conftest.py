"""What the tests of the speedrun share."""

from pathlib import Path

import pytest

from bench.speedrun.text import make_text
from builders.speedrun import TRACK


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """The folder of the toy track's text."""
    folder = tmp_path_factory.mktemp("speedrun") / "text"
    make_text(TRACK, folder, folder)
    return folder
