"""Where may be written: nothing is lost."""

from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.storage import require_folder_place


def test_only_a_folder_that_nothing_is_lost_from_may_be_written(tmp_path: Path) -> None:
    mine = ("an earlier thing", lambda folder: (folder / "thing.json").is_file())
    (tmp_path / "file").touch()
    full = tmp_path / "full"
    full.mkdir()
    for free in (tmp_path / "absent" / "below", full):
        require_folder_place(free)
        assert free.exists() == (free == full)
    (full / "summary.json").touch()
    for place, words in (
        (tmp_path / "file", "it is a file"),
        (tmp_path / "file" / "below", "file is a file"),
        (full, "full is not empty and is not an earlier thing; choose another --out"),
    ):
        with pytest.raises(BrimfulError, match=words):
            require_folder_place(place, replaces=mine)
    (full / "thing.json").touch()
    require_folder_place(full, replaces=mine)


def test_an_unfinished_run_is_refused_with_the_way_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(BrimfulError, match="is not empty; resume it, or choose another --out"):
        require_folder_place(tmp_path, unfinished="resume it, or ")
    (tmp_path / "MANIFEST.json").touch()
    with pytest.raises(BrimfulError, match="is not empty; choose another --out"):
        require_folder_place(tmp_path, unfinished="resume it, or ")
