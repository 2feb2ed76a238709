"""Finding input files: folders, globs, links, and what is no file."""

import json
import os
import socket
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.input_files import find_inputs
from builders.reading import read, write


def names(folder: Path, *patterns: str) -> list[str]:
    inputs = find_inputs([str(folder / pattern) for pattern in patterns or ("",)], str(folder.parent / "out"))
    return [str(Path(item.path).relative_to(folder)) for item in inputs]


def test_inputs_are_sorted_unique_and_supported(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for name in ("b/2.txt", "b/1.jsonl.gz", "z.HTML", "a.csv", "image.png", ".hidden/x.txt", "notes.md"):
        write(folder / name)
    assert names(folder) == ["a.csv", "notes.md", "z.HTML", "b/1.jsonl.gz", "b/2.txt"]
    assert names(folder, "b/2.txt", "")[:3] == ["b/2.txt", "a.csv", "notes.md"]
    assert names(folder, "**/*.txt") == ["b/2.txt"]
    assert names(folder, "notes.md") == ["notes.md"]


@pytest.mark.parametrize(
    ("path", "message"), [("in", "no text in"), ("nothing", "does not exist"), ("*.txt", "no file matches")]
)
def test_no_input(tmp_path: Path, path: str, message: str) -> None:
    write(tmp_path / "in" / "a.png")
    with pytest.raises(BrimfulError, match=message):
        find_inputs([str(tmp_path / path)], "out")


@pytest.mark.parametrize("out", ["in", "in/data", "."])
def test_output_is_never_input(tmp_path: Path, out: str) -> None:
    write(tmp_path / "in" / "a.txt")
    with pytest.raises(BrimfulError, match="overlap"):
        find_inputs([str(tmp_path / "in")], str(tmp_path / out))
    write(tmp_path / "elsewhere" / "x.txt")
    (tmp_path / "in" / "b").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BrimfulError, match="overlap"):
        find_inputs([str(tmp_path / "in")], str(tmp_path / "elsewhere"))


def test_the_files_that_datasets_saved(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    files = [f"train/data-0000{n}-of-00002.arrow" for n in range(2)]
    others = ["train/cache-1f.arrow", "train/data-old.arrow", "plain/x.arrow", "plain/cache-2e.arrow"]
    for name in [*files, *others]:
        write(folder / name)
    state = {"_data_files": [{"filename": Path(name).name} for name in files], "_fingerprint": "1f"}
    write(folder / "train" / "state.json", json.dumps(state).encode())
    write(folder / "train" / "dataset_info.json", b"{}")
    write(folder / "plain" / "state.json", b"[]")
    assert names(folder) == ["plain/x.arrow", *files]
    assert names(folder, "train") == files
    (folder / files[1]).unlink()
    with pytest.raises(BrimfulError, match=r"state\.json .*data-00001-of-00002\.arrow"):
        names(folder)


def test_links_are_followed_once(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a" / "x.txt")
    write(tmp_path / "elsewhere" / "y.txt")
    write(tmp_path / "blobs" / "0a1b")
    (folder / "a" / "up").symlink_to(folder)
    (folder / "a" / "self").symlink_to(".")
    (folder / "b").symlink_to(tmp_path / "elsewhere")
    (folder / "named.jsonl").symlink_to(tmp_path / "blobs" / "0a1b")
    assert names(folder) == ["named.jsonl", "a/x.txt", "b/y.txt"]
    assert names(folder, "**/*.txt") == ["a/x.txt", "b/y.txt"]
    assert names(folder, "**/a/**/x.*") == ["a/x.txt"]
    assert len(names(folder, "**")) == 3


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.txt")
    os.mkfifo(folder / "pipe.txt")
    (folder / "broken.txt").symlink_to("nowhere")
    (folder / "loop.txt").symlink_to("loop.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "s.txt"))
        inputs = find_inputs([str(folder)], str(tmp_path / "out"))
    sizes = {Path(item.path).name: item.bytes for item in inputs}
    assert sizes == {"a.txt": 1, "broken.txt": 0, "loop.txt": 0}
    for item in inputs[1:]:  # the reader reports what cannot be read
        texts, issues = read(Path(item.path))
        assert not texts
        assert issues.total() == 1
    with pytest.raises(BrimfulError, match="no text in"):
        find_inputs([str(folder / "pipe.txt")], str(tmp_path / "out"))


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in" / "closed" / "a.txt")
    scandir = os.scandir

    def refuse(path: str):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BrimfulError, match=r"cannot list the folder .*closed \(Permission denied\)"):
        names(tmp_path / "in")
