"""Where may be written: nothing is lost, and what others planted is neither followed nor used."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.storage import (
    TEMPORARY,
    atomic_directory,
    atomic_file,
    require_file_place,
    require_folder_place,
    temporary_path,
)


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
        (full, "holds a finished run and is not an earlier thing; choose another --out"),
    ):
        with pytest.raises(BrimfulError, match=words):
            require_folder_place(place, replaces=mine)
    (full / "thing.json").touch()
    require_folder_place(full, replaces=mine)


def test_an_unfinished_run_is_refused_with_the_way_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(BrimfulError, match="unfinished run; resume it, or choose another --out"):
        require_folder_place(tmp_path, unfinished="resume it, or ")
    (tmp_path / "MANIFEST.json").touch()
    with pytest.raises(BrimfulError, match="holds a prepared corpus; choose another --out"):
        require_folder_place(tmp_path, unfinished="resume it, or ")


def test_a_file_that_another_process_deletes_is_no_folder(tmp_path):
    path = tmp_path / "plan"
    code = f"""
from pathlib import Path
path = Path({str(path)!r})
while True:
    path.touch()
    path.unlink()
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                require_file_place(path)
        finally:
            process.kill()


def test_temporary_names_cannot_be_guessed_and_planted_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place = tmp_path / "shared"
    place.mkdir()
    assert temporary_path(place / "o") != temporary_path(place / "o")
    for name in ("o.jsonl", "out"):
        for process in range(os.getpid(), os.getpid() + 5):
            (place / f"{TEMPORARY}{os.uname().nodename.replace('-', '_')}-{process}-{name}").symlink_to(
                victim
            )
    with atomic_file(place / "o.jsonl") as temporary:
        temporary.write_text("mine")
    with atomic_directory(place / "out") as folder:
        (folder / "file").write_text("mine")
    assert victim.read_text() == "precious"
    assert not (place / "o.jsonl").is_symlink()
    assert (place / "o.jsonl").read_text() == (place / "out" / "file").read_text() == "mine"


@pytest.mark.parametrize("planted", ["file", "link", "folder"])
def test_what_stands_under_the_temporary_name_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """As if the name had been guessed."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    place = tmp_path / "guessed"
    {
        "file": lambda: place.write_text("theirs"),
        "link": lambda: place.symlink_to(victim / "file"),
        "folder": lambda: place.symlink_to(victim),
    }[planted]()
    monkeypatch.setattr("brimful.base.storage.temporary_path", lambda path: place)
    with pytest.raises(BrimfulError, match=r"cannot write .*out"), atomic_file(tmp_path / "out") as temporary:
        temporary.write_text("mine")
    place.unlink(missing_ok=True)
    place.symlink_to(victim)
    with pytest.raises(BrimfulError, match=r"cannot write .*out"), atomic_directory(tmp_path / "out"):
        pass
    assert (victim / "file").read_text() == "precious"
