"""Names that are not UTF-8, and terminals that cannot show a character."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brimful.base.config import config_hash, read_yaml, write_yaml
from brimful.base.errors import BrimfulError
from brimful.base.folder_lock import FolderLock
from brimful.base.storage import read_json, write_json
from brimful.tables.table_files import read_table

NAME = "语料".encode("gbk")


@pytest.fixture
def folder(tmp_path):
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + NAME))
    try:
        place.mkdir()
    except OSError:
        pytest.skip("this file system only has names in UTF-8")
    return place


def test_such_names_are_kept_in_json_and_yaml(folder):
    write_json(folder / "a.json", {"path": str(folder), "more": "语料"})
    kept = read_json(folder / "a.json")
    assert os.fsencode(kept["path"]) == os.fsencode(folder)
    assert kept["more"] == "语料"
    write_yaml(folder / "a.yaml", {"path": str(folder)})
    assert os.fsencode(read_yaml(folder / "a.yaml")["path"]) == os.fsencode(folder)
    assert config_hash([str(folder)]) == config_hash([str(folder)]) != config_hash([str(folder.parent)])


def test_what_pyarrow_and_safetensors_cannot_take_is_refused(folder):
    with open(folder / "a.parquet", "wb") as file:
        pq.write_table(pa.table({"text": ["b"], "label": [1]}), file)
    with pytest.raises(BrimfulError, match="not UTF-8: rename it"):
        read_table(str(folder / "a.parquet"), labelled=True)
    with FolderLock() as lock, pytest.raises(BrimfulError, match="not UTF-8: rename it"):
        lock.take(folder / "run")
    assert [path.name for path in folder.iterdir()] == ["a.parquet"]


@pytest.mark.slow
@pytest.mark.cases(2)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "gbk"])
def test_whatever_a_terminal_cannot_show_is_an_escape(encoding, folder):
    (folder / "😀 好.txt").write_text("a\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}

    def prepare(path: bytes) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "brimful", "prepare", path, "--out", "x", "--dry-run", "--json"]
        return subprocess.run(command, env=environment, capture_output=True, check=False)

    done, wrong = prepare(os.fsencode(folder)), prepare(os.fsencode(folder) + "/不在".encode())
    (path,) = json.loads(done.stdout.decode(encoding))["inputs"]
    assert os.fsencode(path) == os.fsencode(folder / "😀 好.txt")
    assert (done.returncode, wrong.returncode) == (0, 1)
    assert wrong.stderr.startswith(b"brimful: ")
    assert wrong.stderr.count(b"\n") == 1
