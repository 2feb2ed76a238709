"""`prepare` end to end: what it keeps, counts and refuses; additions, settings, full disks."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from brimful import prepare
from brimful.base.errors import BrimfulError
from brimful.base.seals import MANIFEST
from brimful.base.storage import read_json
from brimful.corpus.dedup.duplicates import DedupConfig
from brimful.corpus.pipeline import cleaning, inventory, preparing
from brimful.corpus.pipeline.cleaning import CleanTask, clean_part
from brimful.corpus.pipeline.preparation_summary import WRONG_ENCODING
from brimful.corpus.pipeline.text_parts import CleanText, write_text
from brimful.corpus.shards import Corpus, Origin
from brimful.corpus.text.tokenizer import load
from builders.shared import mounted

SENTENCE = "the quick brown fox jumps over a lazy dog while rivers run deep"
WORDS = SENTENCE.split()
CHINESE = "顺利的无创dna检测 中华人民共和国 我们使用语言模型 今天天气很好 江南style 预测下一个词"
PHRASES = CHINESE.split()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "SMALLEST_PART", 2000)


def make_inputs(folder: Path, files: int = 6, lines: int = 40) -> list[str]:
    random = np.random.Generator(np.random.Philox(1))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        texts = []
        for _ in range(lines):
            own = f"{' '.join(random.choice(WORDS, 8))}. {'，'.join(random.choice(PHRASES, 3))}。"
            texts.append(own if random.random() < 0.9 else "The lazy dog. 今天天气很好。")
        path = folder / f"{number}.txt"
        path.write_text("\n".join(texts), encoding="utf-8")
        paths.append(str(path))
    return paths


def run(paths: list[str], out: Path, **options) -> dict:
    usual = {
        "tokenizer": "train:300",
        "shard_tokens": 1500,
        "validation_share": 0.1,
        "read": {"split": "line"},
    }
    return prepare(paths=paths, out=str(out), **{"workers": 1, **usual, **options})


def shard_bytes(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "shards").glob("[!.]*"))}


def state_of(out: Path) -> dict[str, tuple[int, int]]:
    """Which shards are which files: a shard that was made again is another file."""
    states = {path.name: path.stat() for path in (out / "shards").glob("*.json")}
    return {name: (state.st_ino, state.st_mtime_ns) for name, state in states.items()}


def documents(corpus: Corpus, split: str | None = None) -> Iterator[tuple[str, Origin]]:
    tokenizer = load(corpus.tokenizer_path)
    for shard in corpus.shards:
        if split not in (None, shard.split):
            continue
        for number in range(shard.documents):
            begin, end = map(int, shard.offsets[number : number + 2])
            yield tokenizer.decode(shard.tokens[begin:end].tolist()), shard.origin(number)


def plain(text: str) -> str:
    return "".join(text.lower().split())


def line_at(source: Origin) -> str:
    """The line that a document was: records count from the first line that starts in the span."""
    content = Path(source.path).read_bytes()
    rest = content[source.begin - 1 :].partition(b"\n")[2] if source.begin else content
    return rest.split(b"\n")[source.record].decode()


def test_end_to_end(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in")
    summary = run(paths, tmp_path / "out")
    assert len(list((tmp_path / "out" / "text").glob("part-*.json"))) > len(paths)
    corpus = Corpus.open(tmp_path / "out", verify=True)
    assert [shard.split for shard in corpus.shards] == ["train"] * 4 + ["validation"]
    kept = summary["documents"]["kept"]
    assert (summary["documents"]["read"], kept) == (240, corpus.documents)
    assert 10 < summary["dropped"]["duplicate"] == 240 - kept
    assert (summary["tokens"], summary["vocabulary_size"]) == (corpus.tokens, corpus.vocabulary_size)
    assert summary["tokens"] > summary["words"] > summary["sentences"] > kept
    assert summary["unknown_character_rate"] < 0.001
    assert summary["warnings"] == []
    assert sum(script["tokens"] for script in summary["scripts"].values()) == corpus.tokens
    for text, source in documents(corpus):
        assert plain(text) == plain(line_at(source))
    manifest = read_json(tmp_path / "out" / MANIFEST)
    assert manifest["summary"] == {name: summary[name] for name in manifest["summary"]}
    assert list(dict.fromkeys(entry["path"] for entry in manifest["inputs"])) == paths
    assert all(entry["crc32"] for entry in manifest["inputs"])
    assert manifest["totals"]["tokens"] == corpus.tokens
    assert [shard["name"] for shard in manifest["shards"]] == [shard.name for shard in corpus.shards]
    lengths, counts = (map(int, manifest["length_histogram"][key].split()) for key in ("lengths", "counts"))
    histogram = dict(zip(lengths, counts, strict=True))
    assert sum(length * count for length, count in histogram.items()) == corpus.tokens


def test_the_first_of_equal_documents_is_kept(tmp_path: Path) -> None:
    for name, text in [("b.txt", "same text\nonly in b"), ("a.txt", "only in a\nsame  text")]:
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / "b.txt"), str(tmp_path / "a.txt")]
    run(paths, tmp_path / "out", tokenizer="train:64", validation_share=0.0)
    kept = [(text, Path(source.path).name) for text, source in documents(Corpus.open(tmp_path / "out"))]
    assert kept == [("same text", "b.txt"), ("only in b", "b.txt"), ("only in a", "a.txt")]
    run(paths, tmp_path / "all", tokenizer="train:64", validation_share=0.0, dedup={"documents": False})
    assert Corpus.open(tmp_path / "all").documents == 4


def test_finished_work_is_kept_and_additions_only_add(tmp_path: Path, capsys) -> None:
    paths, out = make_inputs(tmp_path / "in"), tmp_path / "out"
    run(paths[:4], out)
    before, state, fingerprint = shard_bytes(out), state_of(out), Corpus.open(out).fingerprint
    held_out = {text for text, _ in documents(Corpus.open(out), "validation")}
    assert "as they were" not in capsys.readouterr().err
    for path in paths[:4]:
        os.utime(path)  # touched, not changed
    run(paths[:4], out)
    assert f"nothing is new: all {len(state)} shards of " in capsys.readouterr().err
    assert (shard_bytes(out), state_of(out)) == (before, state)
    summary = run([str(tmp_path / "in")], out)
    assert re.search(r"\nnew: \d+ of \d+ shards; the others are", capsys.readouterr().err)
    assert {name: state_of(out)[name] for name in state} == state
    after = shard_bytes(out)
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
    assert Corpus.open(out, verify=True).fingerprint != fingerprint
    assert summary["documents"]["read"] == 240
    texts = [text for text, _ in documents(Corpus.open(out))]
    assert len(set(texts)) == len(texts)
    assert held_out < {text for text, _ in documents(Corpus.open(out), "validation")}


@pytest.mark.slow
def test_the_split_depends_on_the_text_alone(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=10, lines=200)
    first = run(paths, tmp_path / "first", validation_share=0.2)
    run(paths[::-1], tmp_path / "second", validation_share=0.2, shard_tokens=4000)
    corpora = [Corpus.open(tmp_path / name) for name in ("first", "second")]
    held_out = [{text for text, _ in documents(corpus, "validation")} for corpus in corpora]
    assert held_out[0] == held_out[1]
    assert first["documents"]["validation"] == len(held_out[0])
    assert 0.15 < len(held_out[0]) / first["documents"]["kept"] < 0.25
    assert run(paths, tmp_path / "none", validation_share=0.0)["documents"]["validation"] == 0


@pytest.mark.slow
def test_a_setting_does_again_what_depends_on_it(tmp_path: Path) -> None:
    paths, out = make_inputs(tmp_path / "in"), tmp_path / "out"
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("无创dna\nquick brown\n", encoding="utf-8")
    run(paths, out)
    text = {path.name: path.stat().st_mtime_ns for path in (out / "text").glob("part-*")}
    options = {"lexicon": str(lexicon)}
    words = run(paths, out, **options)["words"]
    assert {path.name: path.stat().st_mtime_ns for path in (out / "text").glob("part-*")} == text
    run(paths, tmp_path / "fresh", tokenizer=str(out), **options)
    assert shard_bytes(out) == shard_bytes(tmp_path / "fresh")
    lexicon.write_text("无创dna\n", encoding="utf-8")
    assert run(paths, out, **options)["words"] > words

    options |= {"clean": {"min_characters": 60}, "shard_tokens": 3000}
    fewer = run(paths, out, **options)
    assert fewer["dropped"]["too short"] > 0
    run(paths, tmp_path / "fresh2", tokenizer=str(out), **options)
    assert shard_bytes(out) == shard_bytes(tmp_path / "fresh2")
    assert len(shard_bytes(out)) < len(shard_bytes(tmp_path / "fresh"))


@pytest.mark.slow
def test_a_tokenizer_is_frozen_until_it_is_retrained(tmp_path: Path) -> None:
    paths, out = make_inputs(tmp_path / "in"), tmp_path / "out"
    run(paths[:2], out)
    before = shard_bytes(out)
    with pytest.raises(BrimfulError, match=r"frozen: it was made with tokenizer='train:300', not 'train:200"):
        run(paths[:2], out, tokenizer="train:200")
    with pytest.raises(BrimfulError, match=r"made with nfkc=False, not True; give that again, add --retrain"):
        run(paths[:2], out, clean={"nfkc": True})
    assert shard_bytes(out) == before
    (tmp_path / "in" / "9.txt").write_text("entirely different vocabulary\n" * 3 + "Ελληνικά Ελληνικά\n")
    more = [*paths[:2], str(tmp_path / "in" / "9.txt")]
    assert run(more, out)["unknown_character_rate"] > 0
    assert run(more, out, retrain_tokenizer=True, tokenizer="train:310")["unknown_character_rate"] == 0
    run(more, tmp_path / "fresh", tokenizer="train:310")
    run(more, tmp_path / "other", tokenizer="train:120")
    assert (out / "tokenizer.json").read_bytes() == (tmp_path / "fresh" / "tokenizer.json").read_bytes()
    (out / "tokenizer.json").write_bytes((tmp_path / "other" / "tokenizer.json").read_bytes())
    with pytest.raises(BrimfulError, match=r"is not the tokenizer .* shards; put .* back"):
        run(more, out, tokenizer="train:310")
    (out / "tokenizer.json").unlink()
    with pytest.raises(BrimfulError, match=r"tokenizer.json is missing; put it back"):
        run(more, out, tokenizer="train:310")


def test_inputs_that_changed_or_went_are_refused(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=2)
    run(paths, tmp_path / "out")
    with pytest.raises(BrimfulError, match=r"contains .*1\.txt, which is not among the inputs now"):
        run(paths[:1], tmp_path / "out")
    content = Path(paths[1]).read_bytes()
    Path(paths[1]).write_bytes(content.replace(b"the", b"teh", 1))
    with pytest.raises(BrimfulError, match=r"1\.txt changed since it was prepared"):
        run(paths, tmp_path / "out")
    Path(paths[1]).write_bytes(content)
    before = shard_bytes(tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "text")
    run(paths, tmp_path / "out")
    assert shard_bytes(tmp_path / "out") == before
    Path(paths[0]).write_text("changed")
    with pytest.raises(BrimfulError, match=r"0\.txt changed since it was prepared"):
        run(paths, tmp_path / "out")


def test_recurring_lines_go_from_later_documents(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    footer = "All rights reserved by the owner of this site."
    for number in range(20):
        body = f"Story number {'x' * number} begins here, and ends soon after."
        (folder / f"{number:02}.txt").write_text(f"{body}\n\n{footer}\n")
    (folder / "98.txt").write_text(f"{footer}\n{footer}\n")
    (folder / "99.txt").write_text(footer)
    options = {"read": {"split": "file"}, "validation_share": 0.0}
    summary = run([str(folder)], tmp_path / "out", dedup={"lines": 5}, **options)
    texts = [text for text, _ in documents(Corpus.open(tmp_path / "out"))]
    assert ["rights reserved" in text for text in texts] == [True] * 5 + [False] * 15 + [True]
    assert all("Story number" in text for text in texts[:20])
    assert summary["cleaned"]["recurring lines dropped"] == 17
    assert summary["dropped"] == {"only recurring lines": 1}


def test_near_duplicates_are_dropped_on_request(tmp_path: Path) -> None:
    pytest.importorskip("rensa")
    folder = tmp_path / "in"
    folder.mkdir()
    draw = np.random.Generator(np.random.Philox(3))
    words = [f"word{number}" for number in range(500)]
    base = draw.choice(words, 300).tolist()
    (folder / "1.txt").write_text(" ".join(base))
    (folder / "2.txt").write_text(" ".join([*base[:150], "other", *base[151:]]))
    (folder / "3.txt").write_text(" ".join(draw.choice(words, 300)))
    options = {"read": {"split": "file"}, "validation_share": 0.0}
    assert run([str(folder)], tmp_path / "out", **options)["documents"]["kept"] == 3
    summary = run([str(folder)], tmp_path / "out", dedup={"near": True}, **options)
    assert summary["dropped"] == {"near duplicate": 1}
    sources = [Path(source.path).name for _, source in documents(Corpus.open(tmp_path / "out"))]
    assert sources == ["1.txt", "3.txt"]


def test_bad_files_are_reported_and_every_document_is_accounted_for(tmp_path: Path) -> None:
    make_inputs(tmp_path / "in", files=1)
    folder = tmp_path / "in"
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 50)
    (folder / "bytes.txt").write_bytes(b"caf\xe9 is not UTF-8, but all the rest of this line is fine")
    (folder / "broken.txt").write_bytes(b"\xe9b\xe9d")
    (folder / "twice.txt").write_text("Le cafÃ© est fermÃ©.")
    (folder / "gb.txt").write_bytes("全部都是乱码的文件".encode("gb18030"))
    (folder / "long.txt").write_text("words that go on and on. " * 200 + "\n" + "=" * 50 + "\nx\n" * 3)
    summary = run([str(folder)], tmp_path / "out", clean={"max_characters": 500})
    documents = summary["documents"]
    assert documents["pieces"] > 5
    assert documents["read"] + documents["pieces"] == documents["kept"] + sum(summary["dropped"].values())
    names = ("binary.txt", "broken.txt", "bytes.txt", "gb.txt", "twice.txt")
    first, *others = summary["warnings"]
    assert first == f"1 documents were undecodable: {WRONG_ENCODING}"
    assert [line.partition(": ")[0] for line in others] == [str(folder / name) for name in names]
    assert [WRONG_ENCODING in line for line in others] == [False, True, True, True, False]
    assert summary["dropped"]["undecodable"] == 1


def clean_badly(task: CleanTask) -> dict:
    """Clean a part; the text `fail` meets a fault, and `hang` keeps the interpreter's lock for ever."""
    real = cleaning.Cleaner.__call__

    def bad(cleaner: cleaning.Cleaner, raw: str, *arguments: Any, **keywords: Any) -> list[str]:
        if raw == "fail":
            raise IndexError("out of range")
        if raw == "hang":
            re.match("(a+)+$", "a" * 60 + "b")
        return real(cleaner, raw, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning.Cleaner, "__call__", bad)
        return clean_part(task)


def test_a_fault_costs_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a text\nfail\nanother text\n")
    monkeypatch.setattr(preparing, "clean_part", clean_badly)
    summary = run([str(path)], tmp_path / "out", validation_share=0.0)
    assert (summary["documents"]["kept"], summary["dropped"]) == (2, {"failed": 1})
    issue = "documents skipped on which cleaning failed (IndexError)"
    assert summary["warnings"][0] == f"{path}: {issue}: 1"


@pytest.mark.slow
def test_a_document_that_takes_too_long_is_skipped_and_reported(tmp_path: Path, monkeypatch) -> None:
    paths = make_inputs(tmp_path / "in", files=2)
    for path in paths:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        Path(path).write_text("\n".join(["hang", *lines, "hang"]), encoding="utf-8")
    monkeypatch.setattr(preparing, "clean_part", clean_badly)
    summary = run(paths, tmp_path / "out", document_seconds=0.5, workers=2)
    assert summary["dropped"]["hostile"] == 4
    issue = "documents skipped that took over 0.5 s to clean: 2"
    assert summary["warnings"] == [f"{path}: {issue}" for path in paths]
    assert summary["documents"]["read"] == 84
    assert {source.path for _, source in documents(Corpus.open(tmp_path / "out"))} == set(paths)
    # The lists stay for these settings, and are forgotten with others.
    text = tmp_path / "out" / "text"
    lists = {path: path.read_bytes() for path in text.glob(".watch-*.json")}
    assert sum(len(read_json(path)) for path in lists) == 4
    monkeypatch.setattr(preparing, "clean_part", clean_part)
    for settings in ({"document_seconds": 9.0}, {"document_seconds": 0.5, "clean": {"html": "never"}}):
        for path, content in lists.items():
            path.write_bytes(content)
        assert "hostile" not in run(paths, tmp_path / "out", **settings)["dropped"]
        assert list(text.glob(".watch-*")) == []


def test_nothing_left(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    out = tmp_path / "out"
    with pytest.raises(BrimfulError, match="no text in"):
        run([str(tmp_path / "in")], out)
    (tmp_path / "in" / "a.txt").write_bytes(bytes(range(256)) * 50)
    left = r"nothing is left of .* after cleaning \(binary file skipped .*: 1, such as in .*a.txt\)"
    with pytest.raises(BrimfulError, match=left):
        run([str(tmp_path / "in")], out)
    (tmp_path / "in" / "b.txt").write_text("x\n\ny\n")
    with pytest.raises(BrimfulError, match="too short: 2"):
        run([str(tmp_path / "in")], out)
    assert not (out / MANIFEST).exists()
    assert run([str(tmp_path / "in")], out, clean={"min_characters": 1})["documents"]["kept"] == 2


def test_dry_run_checks_and_writes_nothing(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=2)
    result = run(paths, tmp_path / "out", dry_run=True)
    assert (result["files"], result["inputs"]) == (2, paths)
    assert result["bytes"] == sum(os.path.getsize(path) for path in paths)
    assert not (tmp_path / "out").exists()
    for bad, message in [
        ({"tokenizer": "train:many"}, "write train:SIZE"),
        ({"tokenizer": "gone"}, "no tokenizer at gone"),
        ({"tokenizer": "train:300", "model": "bpe"}, "with a SIZE from 320"),
        ({"document_seconds": float("nan")}, "document_seconds"),
        ({"lexicon": "absent"}, "cannot read the lexicon"),
        ({"read": {"encoding": "utf-88"}}, "unknown encoding"),
        ({"workers": -1}, "workers must be"),
        ({"validation_share": 1.1}, "validation_share is 1.1"),
        ({"shard_tokens": 0}, "shard_tokens is 0"),
        ({"clean": {"min_chars": 1}}, "did you mean 'min_characters'"),
    ]:
        with pytest.raises(BrimfulError, match=message):
            run(paths, tmp_path / "out", dry_run=True, **bad)


def test_where_the_output_cannot_be(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=1)
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.safetensors").write_text("x")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BrimfulError, match="cannot write"):
            run(paths, out)
    with pytest.raises(BrimfulError, match="is not a folder that prepare wrote"):
        run(paths, tmp_path / "other")


def test_a_full_disk_is_one_error_and_can_be_resumed(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in")
    run(paths, tmp_path / "reference")
    failures = []
    with mounted(tmp_path / "disk", "1m") as disk:
        out, ballast = disk / "out", disk / "ballast"
        for free_kb in (0, 80, 160):
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            ballast.write_bytes(bytes(max(0, free - free_kb * 1024)))
            try:
                run(paths, out)
            except BrimfulError as error:
                failures.append(str(error))
            ballast.unlink()
        run(paths, out)
        assert shard_bytes(out) == shard_bytes(tmp_path / "reference")
        assert list(out.rglob(".tmp-*")) == []
    assert all("No space left on device" in failure for failure in failures)
    assert len(failures) >= 2


def test_a_quick_look_does_not_freeze_the_tokenizer_of_the_whole(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in")
    for name, workers in (("out", 1), ("two", 2)):
        assert run(paths, tmp_path / name, max_documents=50, workers=workers)["documents"]["read"] == 50
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "two")
    assert (tmp_path / "out" / MANIFEST).read_bytes() == (tmp_path / "two" / MANIFEST).read_bytes()
    with pytest.raises(BrimfulError, match=r"made with max_documents=50, not None; give that again, add"):
        run(paths, tmp_path / "out")


def test_a_disk_that_is_full_when_the_last_texts_are_written(tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError("Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(BrimfulError, match=r"cannot write .*part\.\w+: .* free space"):
        write_text(tmp_path, "part", DedupConfig(), [[CleanText("a text", 0, 0, True)]])
    assert list((tmp_path / "text").iterdir()) == []
