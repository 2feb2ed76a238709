"""Finding input files: folders, globs, links, and what is no file."""

import json
import os
import socket
from collections import Counter
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.inputs import Span, find_inputs
from brimful.corpus.reading.read import ReadConfig, read_documents


def write(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_inputs_are_sorted_unique_and_supported(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    names = ["b/2.txt", "b/1.jsonl.gz", "z.HTML", "a.csv", "image.png", ".hidden/x.txt", "notes.md"]
    for name in names:
        write(folder / name, b"x")
    out = str(tmp_path / "out")

    def found(*paths: str) -> list[str]:
        return [str(Path(item.path).relative_to(folder)) for item in find_inputs(paths, out)]

    assert found(str(folder)) == ["a.csv", "notes.md", "z.HTML", "b/1.jsonl.gz", "b/2.txt"]
    assert found(str(folder / "b/2.txt"), str(folder))[:3] == ["b/2.txt", "a.csv", "notes.md"]
    assert found(f"{folder}/**/*.txt") == ["b/2.txt"]
    assert found(str(folder / "notes.md")) == ["notes.md"]  # named by the user


def test_no_input(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.png", b"x")
    with pytest.raises(BrimfulError, match=r"no text in .*looked for files ending in \.txt \.md \.json"):
        find_inputs([str(tmp_path / "in")], "out")
    with pytest.raises(BrimfulError, match="does not exist"):
        find_inputs([str(tmp_path / "nothing")], "out")
    with pytest.raises(BrimfulError, match="no file matches"):
        find_inputs([str(tmp_path / "*.txt")], "out")


@pytest.mark.parametrize("out", ["in", "in/data", "."])
def test_output_is_never_input(tmp_path: Path, out: str) -> None:
    write(tmp_path / "in" / "a.txt", b"x")
    with pytest.raises(BrimfulError, match="overlap"):
        find_inputs([str(tmp_path / "in")], str(tmp_path / out))


def names(folder: Path, *patterns: str) -> list[str]:
    found = find_inputs([str(folder / pattern) for pattern in patterns or ("",)], str(folder.parent / "out"))
    return [str(Path(item.path).relative_to(folder)) for item in found]


def test_the_files_that_datasets_saved(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    files = [f"train/data-0000{n}-of-00002.arrow" for n in range(2)]
    for name in [
        *files,
        "train/cache-1f.arrow",
        "train/data-old.arrow",
        "plain/x.arrow",
        "plain/cache-2e.arrow",
    ]:
        write(folder / name)
    state = {"_data_files": [{"filename": Path(name).name} for name in files], "_fingerprint": "1f"}
    write(folder / "train" / "state.json", json.dumps(state).encode())
    write(folder / "train" / "dataset_info.json", b"{}")
    write(folder / "plain" / "state.json", b"[]")
    assert names(folder) == ["plain/x.arrow", *files]
    assert names(folder, "train") == files
    (folder / files[1]).unlink()
    with pytest.raises(
        BrimfulError, match=r"state\.json names data-00001-of-00002\.arrow, which is not there"
    ):
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


def test_a_link_into_the_output(tmp_path: Path) -> None:
    write(tmp_path / "out" / "x.txt")
    write(tmp_path / "in" / "a.txt")
    (tmp_path / "in" / "b").symlink_to(tmp_path / "out")
    with pytest.raises(BrimfulError, match="overlap"):
        names(tmp_path / "in")


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.txt")
    os.mkfifo(folder / "pipe.txt")
    (folder / "broken.txt").symlink_to("nowhere")
    (folder / "loop.txt").symlink_to("loop.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "s.txt"))
        found = find_inputs([str(folder)], str(tmp_path / "out"))
    assert [(Path(item.path).name, item.bytes) for item in found] == [
        ("a.txt", 1),
        ("broken.txt", 0),
        ("loop.txt", 0),
    ]
    for item in found[1:]:  # what cannot be read is reported where it is read
        issues: Counter[str] = Counter()
        assert list(read_documents(Span(path=item.path), ReadConfig(), issues)) == []
        assert sum(issues.values()) == 1
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
