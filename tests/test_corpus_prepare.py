"""`prepare` end to end: what it keeps, counts and refuses; additions; kills; workers."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from brimful.corpus import plan, stages
from brimful.corpus.engines import run_tasks
from brimful.corpus.prepare import prepare
from brimful.corpus.shards import Corpus
from brimful.corpus.tokenizer import load
from brimful.errors import BrimfulError

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "rivers",
    "run",
    "deep",
]
PHRASES = [
    "顺利的无创dna检测",
    "中华人民共和国",
    "我们使用语言模型",
    "今天天气很好",
    "江南style",
    "预测下一个词",
]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PART_BYTES", 2000)


def make_inputs(folder: Path, files: int = 6, lines: int = 40) -> list[str]:
    random = np.random.Generator(np.random.Philox(1))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        texts = []
        for _ in range(lines):
            english = " ".join(random.choice(WORDS, 8))
            chinese = "，".join(random.choice(PHRASES, 3))
            texts.append(
                f"{english}. {chinese}。" if random.random() < 0.9 else "The lazy dog. 今天天气很好。"
            )
        path = folder / f"{number}.txt"
        path.write_text("\n".join(texts), encoding="utf-8")
        paths.append(str(path))
    return paths


def run(paths: list[str], out: Path, **options) -> dict:
    options = {"tokenizer": "train:300", "workers": 1, "read": {"split": "line"}, **options}
    return prepare(paths=paths, out=str(out), **options)


def shard_bytes(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "shards").glob("[!.]*"))}


def documents(corpus: Corpus) -> Iterator[tuple[str, tuple[str, int]]]:
    tokenizer = load(corpus.tokenizer_path)
    for shard in corpus.shards:
        for number in range(shard.documents):
            begin, end = map(int, shard.offsets[number : number + 2])
            yield tokenizer.decode(shard.tokens[begin:end].tolist()), shard.source(number)


def test_end_to_end(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in")
    summary = run(paths, tmp_path / "out")
    corpus = Corpus.open(tmp_path / "out", verify=True)
    assert len(corpus.shards) > 2
    assert summary["documents"] == {"read": 240, "kept": corpus.documents}
    assert summary["documents"]["kept"] + summary["duplicates"] == 240
    assert summary["duplicates"] > 10
    assert (summary["tokens"], summary["vocabulary_size"]) == (corpus.tokens, corpus.vocabulary_size)
    assert summary["tokens"] > summary["words"] > summary["sentences"] > summary["documents"]["kept"]
    assert summary["unknown_token_rate"] < 0.001
    assert summary["warnings"] == []
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    lines = {path: Path(path).read_text(encoding="utf-8").split("\n") for path in paths}
    for text, (file, record) in documents(corpus):
        plain = lines[file][record].lower()
        assert "".join(text.split()) == "".join(plain.split())


def test_the_first_of_equal_documents_is_kept(tmp_path: Path) -> None:
    for name, text in [("b.txt", "same text\nonly in b"), ("a.txt", "only in a\nsame  text")]:
        (tmp_path / name).write_text(text)
    run([str(tmp_path / "b.txt"), str(tmp_path / "a.txt")], tmp_path / "out", tokenizer="train:64")
    kept = list(documents(Corpus.open(tmp_path / "out")))
    assert [(text, Path(file).name) for text, (file, _) in kept] == [
        ("same text", "b.txt"),
        ("only in b", "b.txt"),
        ("only in a", "a.txt"),
    ]


def test_the_output_does_not_depend_on_workers(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in")
    run(paths, tmp_path / "one", workers=1)
    run(paths, tmp_path / "again", workers=1)
    run(paths, tmp_path / "two", workers=2)
    assert shard_bytes(tmp_path / "one") == shard_bytes(tmp_path / "again") == shard_bytes(tmp_path / "two")
    tokenizers = {(tmp_path / out / "tokenizer.json").read_bytes() for out in ("one", "again", "two")}
    assert len(tokenizers) == 1


def test_finished_work_is_kept_and_additions_only_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = make_inputs(tmp_path / "in")
    run(paths[:4], tmp_path / "out")
    before = shard_bytes(tmp_path / "out")
    fingerprint = Corpus.open(tmp_path / "out").fingerprint
    for path in paths[:4]:
        os.utime(path)  # touched, not changed
    with monkeypatch.context() as patch:
        patch.setattr(stages, "clean", None)
        patch.setattr(stages, "encode", None)
        run(paths[:4], tmp_path / "out")
    assert shard_bytes(tmp_path / "out") == before
    summary = run([str(tmp_path / "in")], tmp_path / "out")
    after = shard_bytes(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
    assert Corpus.open(tmp_path / "out").fingerprint != fingerprint
    assert summary["documents"]["read"] == 240
    texts = [text for text, _ in documents(Corpus.open(tmp_path / "out"))]
    assert len(set(texts)) == len(texts)


def test_retraining_the_tokenizer_starts_the_shards_over(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in")
    run(paths[:2], tmp_path / "out")
    (tmp_path / "in" / "9.txt").write_text("entirely different vocabulary\n" * 3 + "Ελληνικά Ελληνικά\n")
    paths = [*paths[:2], str(tmp_path / "in" / "9.txt")]
    assert run(paths, tmp_path / "out")["unknown_token_rate"] > 0
    run(paths, tmp_path / "out", retrain_tokenizer=True)
    run(paths, tmp_path / "fresh")
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"tokenizer": "train:200"}, "tokenizer"),
        ({"clean": {"min_characters": 3}}, "clean.min_characters"),
        ({"language": "en"}, "language"),
    ],
)
def test_other_settings_need_another_folder(tmp_path: Path, change: dict, key: str) -> None:
    paths = make_inputs(tmp_path / "in", files=1)
    run(paths, tmp_path / "out")
    before = shard_bytes(tmp_path / "out")
    with pytest.raises(BrimfulError, match=f"was prepared with {key}="):
        run(paths, tmp_path / "out", **change)
    assert shard_bytes(tmp_path / "out") == before


def test_inputs_that_changed_or_went_are_refused(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=2)
    run(paths, tmp_path / "out")
    with pytest.raises(BrimfulError, match=r"contains .*1\.txt, which is not among the inputs now"):
        run(paths[:1], tmp_path / "out")
    Path(paths[0]).write_text("changed")
    with pytest.raises(BrimfulError, match=r"0\.txt changed since it was prepared"):
        run(paths, tmp_path / "out")


def test_a_lexicon_and_a_given_tokenizer(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=2)
    run(paths, tmp_path / "first")
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("无创dna\nquick brown\n", encoding="utf-8")
    options = {"tokenizer": str(tmp_path / "first"), "words": {"lexicon": str(lexicon)}}
    run(paths, tmp_path / "second", **options)
    first, second = (Corpus.open(tmp_path / name) for name in ("first", "second"))
    assert first.tokens == second.tokens
    assert sum(shard.record["words"] for shard in first.shards) > sum(
        s.record["words"] for s in second.shards
    )
    lexicon.write_text("无创dna\n", encoding="utf-8")
    with pytest.raises(BrimfulError, match="was prepared with lexicon content="):
        run(paths, tmp_path / "second", **options)


def test_special_tokens_in_a_text_stay_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a [MASK] in the text [SEP] and [CLS] too\n" * 3)
    run([str(tmp_path / "a.txt")], tmp_path / "out")
    assert Corpus.open(tmp_path / "out").shards[0].tokens.min() >= 5


def test_bad_files_are_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=1)
    folder = tmp_path / "in"
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 50)
    (folder / "cut.txt.gz").write_bytes(gzip.compress(os.urandom(50_000).hex().encode())[:20_000])
    (folder / "bytes.txt").write_bytes(b"caf\xe9 is not UTF-8, but all the rest of this line is fine")
    (folder / "gb.txt").write_bytes("全部都是乱码的文件".encode("gb18030"))
    summary = run([str(folder)], tmp_path / "out")
    assert [line.removeprefix(str(folder) + "/") for line in summary["warnings"]] == [
        "1 documents were undecodable: set read.encoding if the text is not UTF-8 (gb18030, big5 ...)",
        "binary.txt: binary file skipped: 1",
        "bytes.txt: undecodable characters: 1",
        "cut.txt.gz: archive cut short: 1",
        "gb.txt: undecodable characters: 13",
    ]
    assert summary["dropped"]["undecodable"] == 1
    assert any(Path(file).name == "0.txt" for _, (file, _) in documents(Corpus.open(tmp_path / "out")))
    assert paths


def test_nothing_left(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    out = tmp_path / "out"
    with pytest.raises(BrimfulError, match="no text in"):
        run([str(tmp_path / "in")], out)
    (tmp_path / "in" / "a.txt").write_bytes(bytes(range(256)) * 50)
    with pytest.raises(BrimfulError, match=r"nothing left of .* after cleaning \(binary file skipped: 1\)"):
        run([str(tmp_path / "in")], out)
    (tmp_path / "in" / "b.txt").write_text("x\n\ny\n")
    with pytest.raises(BrimfulError, match="too short: 2"):
        run([str(tmp_path / "in")], out)
    assert not (out / "shards").exists() or not any((out / "shards").iterdir())
    assert run([str(tmp_path / "in")], out, clean={"min_characters": 1})["documents"]["kept"] == 2


def test_parts_without_documents_are_empty_shards(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=3)
    Path(paths[1]).write_text(Path(paths[0]).read_text())
    summary = run(paths, tmp_path / "out")
    corpus = Corpus.open(tmp_path / "out", verify=True)
    assert [shard.documents > 0 for shard in corpus.shards] == [True, False, True]
    assert summary["documents"]["kept"] == corpus.documents


def test_max_documents(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in")
    summary = run(paths, tmp_path / "out", max_documents=50)
    assert summary["documents"]["read"] == 50
    assert summary["shards"] == 2
    run(paths, tmp_path / "two", max_documents=50, workers=2)
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "two")


def test_dry_run_checks_and_writes_nothing(tmp_path: Path) -> None:
    paths = make_inputs(tmp_path / "in", files=2)
    result = run(paths, tmp_path / "out", dry_run=True)
    assert (result["files"], result["inputs"]) == (2, paths)
    assert result["bytes"] == sum(os.path.getsize(path) for path in paths)
    assert not (tmp_path / "out").exists()
    for bad, message in [
        ({"tokenizer": "train:many"}, "write train:SIZE"),
        ({"tokenizer": str(tmp_path / "absent")}, "no tokenizer"),
        ({"words": {"lexicon": "absent"}}, "cannot read the lexicon"),
        ({"read": {"encoding": "utf-88"}}, "unknown encoding"),
        ({"workers": -1}, "workers must be"),
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
    with pytest.raises(BrimfulError, match="holds other files"):
        run(paths, tmp_path / "other")


def test_a_full_disk_is_one_error_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = make_inputs(tmp_path / "in")
    run(paths, tmp_path / "reference")
    real, calls = os.fsync, 0

    def fills_up(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 60:
            raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fills_up)
        with pytest.raises(BrimfulError, match="No space left on device"):
            run(paths, tmp_path / "out")
    run(paths, tmp_path / "out")
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "reference")


def wait_for_workers(group: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError("worker processes outlive their parent")


SCRIPT = """
import sys
from brimful.corpus import plan
from brimful.corpus.prepare import prepare
if __name__ == "__main__":
    plan.PART_BYTES = 2000
    prepare(paths=[sys.argv[1]], out=sys.argv[2], tokenizer="train:300", workers=int(sys.argv[3]),
            read={"split": "line"})
"""


def test_a_killed_run_is_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    make_inputs(tmp_path / "in", files=6, lines=100)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run([str(tmp_path / "in")], tmp_path / "reference")
    out = tmp_path / "out"
    milestones = [
        "text/.tmp-*",
        "text/part-00002.json",
        "tokenizer.json",
        "shards/.tmp-*",
        "shards/part-00003.tok",
    ]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    killed = 0
    for number, milestone in enumerate(milestones):
        command = [sys.executable, str(script), str(tmp_path / "in"), str(out), str(1 + number % 2)]
        process = subprocess.Popen(
            command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and not any(out.glob(milestone)):
            time.sleep(0.001)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)  # the parent only: its workers must go by themselves
            killed += 1
        process.wait()
        wait_for_workers(process.pid)
    assert killed >= 3
    run([str(tmp_path / "in")], out)
    assert shard_bytes(out) == shard_bytes(tmp_path / "reference")
    assert list(out.rglob(".tmp-*")) == []


def die_once(task: tuple[int, str]) -> int:
    number, marker = task
    if number == 2 and not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die_always(task: tuple[int, str]) -> int:
    if task[0] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return task[0]


def test_a_worker_that_dies_is_retried_then_reported_by_name(tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path / "marker")) for number in range(4)]
    assert run_tasks(die_once, tasks, 2, "test") == [0, 1, 4, 9]
    with pytest.raises(BrimfulError, match="killed twice on task 2"):
        run_tasks(die_always, tasks, 2, "test", lambda task: f"task {task[0]}")


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, brimful.corpus, brimful.corpus.shards, brimful.corpus.prepare;"
        "print(sorted({'torch', 'numba', 'pyarrow', 'rjieba', 'tokenizers', 'zstandard'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert found.stdout.strip() == "[]"
