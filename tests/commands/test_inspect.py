"""`inspect` shows documents word by word, what was dropped or changed and why, and the rows of an update."""

import copy
import re
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from brimful import inspect, prepare, pretrain
from brimful.base.config import build, read_yaml, write_yaml
from brimful.base.errors import BrimfulError
from brimful.base.storage import commit
from brimful.base.types import Cursor
from brimful.commands.inspect import show_findings
from brimful.corpus.shards import Corpus
from brimful.data.batch import PackedBatch
from brimful.data.rows import RowStream
from brimful.stages.held_out import HeldOut
from brimful.stages.pretrain_config import PretrainConfig
from builders.inspection import ALL, Updates, check_rows

EVIL_NAME = "evil\x1b[31m\u202e[bold]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("inspect")
    lexicon = place / "lexicon.txt"
    lexicon.write_text("无创dna\nCoca Cola\n", encoding="utf-8")
    footer = "Copyright of this whole site by its owner."
    texts = {
        "a": "顺利的无创dna检测，我喝Coca Cola。",
        "b": "checksum d41d8cd98f00b204e9800998ecf8427e of the file",
        "c": "checksum d41d8cd98f00b204e9800998ecf8427e of the  file",
        "d": "x",
        EVIL_NAME: "[bold red]one[/] [link=x]two 股票 three four.",
        "e": f"One story of a page.\n{footer}",
        "f": f"Another story of a page.\n{footer}",
    }
    (place / "in").mkdir()
    for name, text in texts.items():
        (place / "in" / f"{name}.txt").write_text(text, encoding="utf-8")
    prepare(
        paths=[str(place / "in")],
        out=str(place / "out"),
        tokenizer="train:120",
        validation_share=0.0,
        dedup={"lines": 1},
        lexicon=str(lexicon),
    )
    return place / "out"


def test_documents_word_by_word(folder):
    found = inspect(directory=str(folder), documents=10)
    by_file = {Path(document["source"].split(",")[0]).name: document for document in found["documents"]}
    assert set(by_file) == {"a.txt", "b.txt", "e.txt", "f.txt", f"{EVIL_NAME}.txt"}
    words = by_file["a.txt"]["words"]
    assert "无创dna" in ["".join(word.split()) for word in words]
    assert "Coca Cola" in words
    assert "".join("".join(words).split()) == "顺利的无创dna检测,我喝CocaCola。".replace(",", "，")
    short = inspect(directory=str(folder), documents=1, tokens=3)["documents"]
    assert len(short) == 1
    assert short[0]["cut"]


def test_what_was_dropped_and_why(folder, capsys):
    found = inspect(directory=str(folder))
    examples = found["examples"]
    garbage = examples["garbage tokens"][0]
    assert "d41d8cd98f00b204e9800998ecf8427e" in garbage["before"]
    assert "d41d8" not in garbage["after"]
    assert examples["dropped: too short"][0]["before"] == "x"
    assert examples["dropped: duplicate"][0]["source"].endswith("c.txt, record 0")
    assert examples["recurring lines dropped"][0]["before"].startswith("Copyright of this whole site")
    assert found["counts"]["dropped: duplicate"] == 1
    show_findings(found)
    assert "dropped: duplicate: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("shards/*.src", b"\xff"),
        ("shards/*.word.bits", b"\x00"),
        ("text/*.parquet", b"\x00"),
        ("dedup/*.fates", b"\x01"),
        ("tokenizer.json", b"\x00"),
    ],
)
def test_damaged_folders(folder, tmp_path, name, damage):
    shutil.copytree(folder, tmp_path / "out")
    for path in (tmp_path / "out").glob(name):
        path.write_bytes(damage * path.stat().st_size)
    with pytest.raises(BrimfulError, match=r"is damaged \(CRC differs\)"):
        inspect(directory=str(tmp_path / "out"))


def test_where_there_is_no_corpus_and_no_run(folder, tmp_path):
    with pytest.raises(BrimfulError, match="holds no finished corpus"):
        inspect(directory=str(tmp_path))
    with pytest.raises(BrimfulError, match="is not a folder"):
        inspect(directory=str(tmp_path / "nowhere"))
    with pytest.raises(BrimfulError, match=r"--update is for a run of pretrain, and .* is a prepared folder"):
        inspect(directory=str(folder), update=1)
    (tmp_path / "config.yaml").write_text((folder / "config.yaml").read_text(encoding="utf-8"))
    for values in ({}, {"update": 1}):
        with pytest.raises(BrimfulError, match=r"no finished corpus .* and no pretraining run"):
            inspect(directory=str(tmp_path), **values)


@pytest.fixture(scope="module")
def pairs(corpus_dir, tmp_path_factory):
    """A run of three updates with checkpoints after the second and the last, and the batches that it took."""
    out = tmp_path_factory.mktemp("run") / "run"
    taken: Updates = {}
    take = RowStream.take

    def recorded(self: RowStream, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        batches, following = take(self, cursor)
        taken[cursor["update"] + 1] = batches
        return batches, following

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowStream, "take", recorded)
        pretrain(
            data=str(corpus_dir),
            out=str(out),
            model="tiny",
            architecture="bert",
            seed=3,
            rows_per_micro_batch=2,
            validation_tokens=1,
            sequences={"kind": "nsp"},
            packing={"max_length": 48, "capacity": 192},
            masking={"rate": 0.1, "final_rate": 0.4},
            trainer={"steps": 3, "checkpoint_every": 2},
        )
    return out, taken


def bare(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).lower().split())


def check_places(rows: list[dict[str, Any]], corpus: Corpus, texts: list[str]) -> None:
    """Each segment's tokens are those of its place in the shards, and its text is in the record named."""
    shards = {shard.name: shard for shard in corpus.shards}
    decode = Tokenizer.from_file(str(corpus.tokenizer_path)).decode
    checked = 0
    for sequence in (sequence for row in rows for sequence in row["sequences"]):
        segments: list[list[dict[str, Any]]] = []
        for run in (run for word in sequence["words"] for run in word):
            if run["kind"] == "special":
                segments.append([])
            else:
                segments[-1].append(run)
        assert sequence["words"][0][0]["text"] == "[CLS]"
        assert sequence["words"][-1][0]["text"] == "[SEP]"
        assert not segments.pop()
        assert len(segments) == len(sequence["places"]) == (1 if sequence["pair"] is None else 2)
        for runs, place in zip(segments, sequence["places"], strict=True):
            shard = shards[place["shard"]]
            begin = int(shard.offsets[place["document"]])
            ids = [token for run in runs for token in run["ids"]]
            assert ids == shard.tokens[begin + place["begin"] : begin + place["end"]].tolist()
            text = bare("".join(run["text"] for run in runs))
            # A random token may be the true one, which divides a word: at its space, or within a character.
            apart = [decode(run["ids"]).strip() for run in runs]
            if "[unk]" not in text and all(apart) and "\ufffd" not in "".join(apart):
                assert text in bare(texts[place["record"]])
                checked += 1
    assert checked > 10


def test_the_batches_of_a_run(pairs, corpus_dir, raw_texts, capfd):
    run, taken = pairs
    before = sorted(run.rglob("*"))
    corpus = Corpus.open(corpus_dir)
    mask = Tokenizer.from_file(str(corpus.tokenizer_path)).token_to_id("[MASK]")
    found = []
    for update, begin in ((1, None), (2, "update 1"), (3, None)):
        capfd.readouterr()
        found.append(inspect(directory=str(run), update=update, tokens=ALL)["rows"])
        err = capfd.readouterr().err
        assert f"from {begin} to update {update}: " in err if begin else not err
    rows = [row for update in found for row in update]
    check_rows(rows, taken, mask)
    check_places(rows, corpus, raw_texts.read_text(encoding="utf-8").splitlines())
    assert {sequence["pair"] for row in rows for sequence in row["sequences"]} >= {0, 1}
    kinds = {part["kind"] for r in rows for s in r["sequences"] for word in s["words"] for part in word}
    assert kinds == {"plain", "special", "masked", "random", "kept"}
    assert [(r["update"], r["micro_batch"], r["row"]) for r in found[1]] == [
        *((2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2))
    ]
    assert sorted(run.rglob("*")) == before


def test_what_a_run_has_not(pairs, tmp_path):
    run, _ = pairs
    with pytest.raises(BrimfulError, match="no update 5: the run has 3"):
        inspect(directory=str(run), update=5)
    # The same checkpoints beside another seed: as if the data had changed.
    config = read_yaml(run / "config.yaml")
    (tmp_path / "checkpoints").symlink_to(run / "checkpoints")
    write_yaml(tmp_path / "config.yaml", build(PretrainConfig, config | {"seed": 4}))
    with pytest.raises(BrimfulError, match="made from other data"):
        inspect(directory=str(tmp_path))


@pytest.fixture(scope="module")
def shards(raw_texts, tmp_path_factory):
    """Several shards, tokens of bytes."""
    out = tmp_path_factory.mktemp("shards") / "data"
    prepare(
        paths=[str(raw_texts)],
        out=str(out),
        tokenizer="train:600",
        model="bpe",
        shard_tokens=5000,
        workers=1,
        read={"split": "line"},
    )
    return out


def test_a_mixture_in_updates_of_sequences(shards, raw_texts, tmp_path):
    values = {
        "data": [
            {"path": str(shards), "name": name, "weight": n} for name, n in (("one", 3.0), ("two", 1.0))
        ],
        "sequences_per_update": 23,
        "rows_per_micro_batch": 2,
        "packing": {"max_length": 48, "capacity": 192},
        "masking": {"together": True},  # a prediction is whole characters
    }
    write_yaml(tmp_path / "config.yaml", build(PretrainConfig, values))
    rows = inspect(directory=str(tmp_path), update=3, tokens=ALL)["rows"]
    check_places(rows, Corpus.open(shards), raw_texts.read_text(encoding="utf-8").splitlines())
    assert len({p["shard"] for row in rows for s in row["sequences"] for p in s["places"]}) > 1
    sources = [sequence["source"] for row in rows for sequence in row["sequences"]]
    assert len(sources) == 23
    assert sources.count("one") > sources.count("two") > 0


@pytest.fixture(scope="module")
def first_update(pairs):
    return inspect(directory=str(pairs[0]), tokens=100)


def test_rows_without_colour(first_update, capsys):
    """Nothing that is shown needs colour: it can be read from the characters."""
    found = first_update
    show_findings(found)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    joined = re.sub("\n│ ", "", out)  # a prediction may be broken at a space or between Chinese characters
    assert "update 1 · micro-batch 1 of 2 · row 1 of 2 · " in out
    for row in found["rows"]:
        for sequence in row["sequences"]:
            if not sequence["words"]:
                continue
            for place in sequence["places"]:
                assert f"{place['path']}, record {place['record']}, tokens {place['begin']:,} to" in out
            for run in (run for word in sequence["words"] for run in word):
                truth = run["text"].replace(" ", "␣")
                if run["kind"] == "masked":
                    assert f"‹{truth}→[MASK]" in joined
                elif run["kind"] == "kept":
                    assert f"‹{truth}→{truth}›" in joined
    pairs_shown = [s["pair"] for row in found["rows"] for s in row["sequences"] if s["words"]]
    assert out.count("the second segment follows") == pairs_shown.count(0)
    assert out.count("the second segment does not follow") == pairs_shown.count(1)


def test_text_cannot_act_on_the_terminal(first_update, folder, capsys):
    rows = copy.deepcopy(first_update)
    first = rows["rows"][0]["sequences"][0]
    first["words"][1][:] = [{"text": "[red]a\x1b]0;b\x07\u2066c d\x9b", "ids": [5], "kind": "plain"}]
    first["places"][0]["path"] = EVIL_NAME
    for findings in (inspect(directory=str(folder), documents=10), rows):
        capsys.readouterr()
        show_findings(findings)
        out = capsys.readouterr().out
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out)
        assert r"evil\x1b[31m\u202e[bold]" in out
    assert r"[red]a\x1b]0;b\x07\u2066c␣d\x9b" in out


def test_the_checksum_of_a_table_is_not_one_of_the_run(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"x")
    commit(tmp_path / "checksums.json", [tmp_path / "model.bin"])
    HeldOut({"dev": np.array([1, 3])}, dev_in_train=True).write(tmp_path, str(tmp_path / "model.bin"))
    assert inspect(directory=str(tmp_path), verify=True)["files"] == 1
