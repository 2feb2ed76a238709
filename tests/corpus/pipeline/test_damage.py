"""`prepare` again over damage: what is damaged is named and made again, and the corpus is the one it was."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from brimful import inspect, prepare
from brimful.base.errors import BrimfulError
from brimful.corpus.pipeline import inventory
from brimful.corpus.reading.texts import read_texts

SENTENCE = "the quick brown fox jumps over a lazy dog while rivers run deep 今天 天气 很好"
WORDS = SENTENCE.split()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "SMALLEST_PART", 2000)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("damage") / "texts", random.Random(1)
    folder.mkdir()
    for number in range(3):
        lines = [" ".join(draw.choices(WORDS, k=9)) + ".\nA line of all. " for _ in range(30)]
        (folder / f"{number}.txt").write_text("\n\n".join([*lines, "A copy.", "A copy."]), encoding="utf-8")
    return folder


def run(texts: Path, out: Path) -> dict[str, Any]:
    options: dict[str, Any] = {"read": {"split": "paragraph"}, "dedup": {"lines": 1}, "validation_share": 0.1}
    paths = [str(texts)]
    return prepare(paths=paths, out=str(out), tokenizer="train:300", workers=1, shard_tokens=800, **options)


@pytest.fixture(scope="module")
def whole(texts: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inventory, "SMALLEST_PART", 2000)
        run(texts, texts.parent / "out")
    return texts.parent / "out"


def files(out: Path) -> dict[str, bytes]:
    """All files but the configuration, which names the folder."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "config.yaml"]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    "pattern", ["text/*.parquet", "text/*.lines", "dedup/*.fates", "shards/*.word.bits", "shards/*.idx"]
)
@pytest.mark.cases(4)
def test_damage_is_named_and_made_again(
    texts: Path, whole: Path, tmp_path: Path, seed: int, capfd, pattern: str
) -> None:
    out, draw = tmp_path / "out", random.Random(seed)
    shutil.copytree(whole, out)
    path = draw.choice([path for path in sorted(out.glob(pattern)) if path.stat().st_size])
    content = bytearray(path.read_bytes())
    for _ in range(3):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    if bytes(content) == path.read_bytes():
        content[0] ^= 1
    path.write_bytes(content)
    run(texts, out)
    assert f"{path} is damaged (CRC differs): it is made again" in capfd.readouterr().err
    assert files(out) == files(whole)
    inspect(directory=str(out), verify=True)


def test_damaged_clean_text_is_refused_by_whoever_reads_it(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "data")
    texts = list(read_texts([str(tmp_path / "data")], str(tmp_path / "out")))
    assert len(texts) > 50
    path = tmp_path / "data" / "text" / "part-00001.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BrimfulError, match=r"part-00001\.parquet is damaged \(CRC differs\)"):
        list(read_texts([str(tmp_path / "data")], str(tmp_path / "out")))


def test_files_of_the_user_in_the_folders_stay(texts: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    mine = [out / "text" / "notes.txt", out / "shards" / "README.md", out / "dedup" / "part-mine"]
    for path in mine:
        path.write_text("mine")
    (out / "text" / "part-00000").mkdir()
    (out / "shards" / "train-00099.tok").touch()  # of a shard that no plan has any more
    run(texts, out)
    assert all(path.read_text() == "mine" for path in mine)
    assert not (out / "shards" / "train-00099.tok").exists()
