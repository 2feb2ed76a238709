"""The shard format: round trip, the specification's reader, damage."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.base.seals import MANIFEST
from brimful.corpus.shards import Corpus, Shard, TokenBatch, read_bits, write_manifest, write_shard

SPECIFICATION = Path(__file__).parents[2] / "docs" / "formats.md"


def batch_of(documents: list[list[tuple[int, bool, bool]]]) -> TokenBatch:
    flat = np.array([token for document in documents for token in document], np.int64).reshape(-1, 3)
    return TokenBatch(
        tokens=flat[:, 0],
        word_starts=flat[:, 1].astype(bool),
        sentence_starts=flat[:, 2].astype(bool),
        lengths=np.array([len(document) for document in documents], np.int64),
        sources=np.array([(number % 2, number * 3) for number in range(len(documents))]).reshape(-1, 2),
    )


def write(
    directory: Path, batches: list[TokenBatch], *, name: str = "part-00000", size: int = 100, **facts
) -> None:
    (directory / "tokenizer.json").write_text("{}")
    facts = {"tokenizer_hash": "t", "config_hash": "c", "inputs": ["a.txt", "b.txt"], **facts}
    write_shard(directory / "shards", name, batches, vocabulary_size=size, **facts)
    write_manifest(directory, sorted(path.stem for path in (directory / "shards").glob("*.json")))


tokens = st.tuples(st.integers(0, 65_535), st.booleans(), st.booleans())
documents = st.lists(st.lists(tokens, min_size=1, max_size=20), max_size=6)


@settings(max_examples=20, deadline=None)
@given(st.lists(documents, max_size=3), st.sampled_from([65_536, 65_537]), st.data())
def test_round_trip(batches: list, size: int, data: st.DataObject) -> None:
    flat = [document for batch in batches for document in batch]
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), [batch_of(batch) for batch in batches], size=size)
        shard = Shard(Path(name) / "shards", "part-00000", verify=True)
        assert shard.documents == len(flat)
        assert shard.tokens.dtype == (np.uint16 if size == 65_536 else np.uint32)
        assert shard.offsets.tolist() == np.cumsum([0, *map(len, flat)]).tolist()
        expected = [token for document in flat for token in document]
        assert shard.tokens.tolist() == [token for token, _, _ in expected]
        begin = data.draw(st.integers(0, len(expected)))
        end = data.draw(st.integers(begin, len(expected)))
        assert shard.word_starts(begin, end).tolist() == [word for _, word, _ in expected[begin:end]]
        assert read_bits(shard.sentence_bits, begin, end).tolist() == [
            last for *_, last in expected[begin:end]
        ]
        histogram = shard.record["length_histogram"]
        lengths, counts = (np.array(histogram[key].split(), int) for key in ("lengths", "counts"))
        assert np.repeat(lengths, counts).tolist() == sorted(map(len, flat))


def test_the_specified_reader_reads_a_shard(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", SPECIFICATION.read_text(encoding="utf-8"), re.S)
    assert code is not None
    namespace: dict = {}
    exec(code[1], namespace)
    stored = [[(1, True, True), (2, False, False), (3, True, False)], [(7, True, True)]]
    write(tmp_path, [batch_of(stored)])
    read = list(namespace["read_shard"](tmp_path / "shards", "part-00000"))
    documents = [list(zip(*(array.tolist() for array in arrays), strict=True)) for *arrays, _ in read]
    assert documents == stored
    assert [source for *_, source in read] == [("a.txt", 0, 0), ("b.txt", 0, 3)]
    shard = Shard(tmp_path / "shards", "part-00000")
    assert [shard.origin(0), shard.origin(1)] == [("a.txt", 0, 0), ("b.txt", 0, 3)]


def test_corpus_totals_and_fingerprint(tmp_path: Path) -> None:
    stored = batch_of([[(1, True, True)], [(2, True, True), (3, True, False)]])
    write(tmp_path, [stored])
    corpus = Corpus.open(str(tmp_path))
    assert (corpus.documents, corpus.tokens, corpus.vocabulary_size, len(corpus.shards)) == (2, 3, 100, 1)
    before = corpus.fingerprint
    assert Corpus.open(tmp_path).fingerprint == before
    write(tmp_path, [stored], name="part-00001")
    assert Corpus.open(tmp_path).fingerprint != before
    write(tmp_path, [], name="part-00002")
    assert Corpus.open(tmp_path).documents == 4


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match=r"is not a folder; make one with: brimful prepare"):
        Corpus.open(tmp_path / "absent")
    with pytest.raises(BrimfulError, match=r"holds no finished corpus \(no MANIFEST.json\)"):
        Corpus.open(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one")
    with pytest.raises(BrimfulError, match=r"brimful prepare (\S+/texts) --out \1-prepared$"):
        Corpus.open(tmp_path / "texts")
    write(tmp_path, [])
    with pytest.raises(BrimfulError, match="hold no document"):
        Corpus.open(tmp_path)
    write(tmp_path, [batch_of([[(1, True, True)]])], name="part-00001", tokenizer_hash="other")
    with pytest.raises(BrimfulError, match="different tokenizers"):
        Corpus.open(tmp_path)


def test_a_shard_that_the_manifest_does_not_name_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, [batch_of([[(1, True, True)]])])
    manifest = (tmp_path / MANIFEST).read_bytes()
    write(tmp_path, [batch_of([[(2, True, True)]])], name="part-00001", split="validation")
    (tmp_path / MANIFEST).write_bytes(manifest)
    corpus = Corpus.open(tmp_path)
    assert [shard.name for shard in corpus.shards] == ["part-00000"]
    assert json.loads(manifest)["totals"]["tokens"] == corpus.tokens == 1


def test_a_part_without_documents(tmp_path: Path) -> None:
    write(tmp_path, [batch_of([[(1, True, True)]])], begins=[7, 9])
    write(tmp_path, [], name="part-00001", split="validation")
    corpus = Corpus.open(tmp_path)
    assert [shard.split for shard in corpus.shards] == ["train", "validation"]
    assert corpus.shards[0].origin(0) == ("a.txt", 7, 0)
    assert corpus.part("validation") is corpus.part("test") is None
    part = corpus.part("train")
    assert part is not None
    assert part.documents == part.tokens == 1


def overwrite(file: Path, index: int, value: int) -> None:
    """Change one offset, and leave the file as long as it was."""
    offsets = np.fromfile(file, "<u8")
    offsets[index] = value
    offsets.tofile(file)


def test_damage_is_found(tmp_path: Path) -> None:
    write(tmp_path, [batch_of([[(1, True, True)] * 50])])
    file = tmp_path / "shards" / "part-00000.tok"
    data = bytearray(file.read_bytes())
    data[7] ^= 1
    file.write_bytes(data)
    Corpus.open(tmp_path)
    with pytest.raises(BrimfulError, match="damaged"):
        Corpus.open(tmp_path, verify=True)
    file.write_bytes(data[:-1])
    with pytest.raises(BrimfulError, match="cut short"):
        Corpus.open(tmp_path)


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [batch_of([[(1, True, True)]])])
    monkeypatch.setattr("brimful.corpus.shards.FORMAT_VERSION", 3)
    with pytest.raises(BrimfulError, match="has format 2, this Brimful reads 3"):
        Corpus.open(tmp_path)


@pytest.mark.parametrize("value", [0, 4, 11, 1 << 40, (1 << 64) - 1])
def test_damaged_offsets_lead_nowhere(tmp_path: Path, value: int) -> None:
    write(tmp_path, [batch_of([[(1, True, True)] * n for n in (4, 3, 3)])])
    overwrite(tmp_path / "shards" / "part-00000.idx", 2, value)
    (shard,) = Corpus.open(tmp_path).shards
    assert [place.tolist() for place in shard.ends(np.array([0]))] == [[0], [4]]
    with pytest.raises(BrimfulError, match=r"part-00000 is damaged: .*run prepare again"):
        shard.ends(np.array([0, 1, 2]))


@pytest.mark.parametrize(("index", "value"), [(0, 1), (2, 9)])
def test_offsets_that_miss_tokens(tmp_path: Path, index: int, value: int) -> None:
    write(tmp_path, [batch_of([[(1, True, True)] * n for n in (4, 4)])])
    overwrite(tmp_path / "shards" / "part-00000.idx", index, value)
    with pytest.raises(BrimfulError, match="part-00000 is damaged: its files do not belong together"):
        Corpus.open(tmp_path)


def test_many_shards_may_be_open(tmp_path: Path) -> None:
    """A process that may open 64 files raises its limit; under a lower hard limit, one line says so."""
    for number in range(20):
        write(tmp_path, [batch_of([[(1, True, True)]])], name=f"part-{number:05}")
    code = f"""
import resource
from brimful.corpus.shards import Corpus
from brimful.base.errors import BrimfulError
for hard in (4096, 128):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        print(Corpus.open({str(tmp_path)!r}).tokens)
    except BrimfulError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tokens, message = done.stdout.splitlines()
    assert tokens == "20"
    assert "has 20 shards" in message
    assert "this system allows 128: raise the limit" in message
