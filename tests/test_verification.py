"""`verify`: a flipped bit anywhere below a folder is found and named."""

import random
import shutil
from pathlib import Path

import pytest

from brimful.errors import BrimfulError
from brimful.verification import verify


def test_a_flipped_bit_is_found_and_named(
    corpus_dir: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = verify(directory=str(corpus_dir))
    assert whole["records"] >= 5
    assert whole["files"] > 10
    out = tmp_path / "copy"
    shutil.copytree(corpus_dir, out)
    draw = random.Random(5)
    checked = [
        path
        for folder in ("text", "dedup", "shards")
        for path in sorted((out / folder).iterdir())
        if path.stat().st_size
    ]
    for path in [*checked, out / "tokenizer.json", out / "MANIFEST.json"]:
        content = path.read_bytes()
        damaged = bytearray(content)
        if path.suffix == ".json" and path.name != "tokenizer.json":
            place = content.index(b'"documents"') + 1 if b'"documents"' in content else 5
            damaged[place] ^= 1
        else:
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        capfd.readouterr()
        with pytest.raises(BrimfulError, match=r"1 of \d+ commit records below .* do not hold"):
            verify(directory=str(out))
        assert str(path) in capfd.readouterr().err
        path.write_bytes(content)
    assert verify(directory=str(out)) == whole
    missing = out / "shards" / "train-00000.tok"
    missing.unlink()
    with pytest.raises(BrimfulError, match="do not hold"):
        verify(directory=str(out))


def test_what_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match="is not a folder"):
        verify(directory=str(tmp_path / "absent"))
    (tmp_path / "other.json").write_text('{"files": 3}')
    with pytest.raises(BrimfulError, match="nothing to verify"):
        verify(directory=str(tmp_path))
