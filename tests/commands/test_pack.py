"""`brimful pack`: its sources, its tables for people and for programs, its pictures, and its refusals."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brimful.base.randomness import derive_key
from brimful.cli.main import main
from brimful.commands.pack_sources import text_counts
from brimful.corpus.shards import Corpus
from brimful.data.config import SequencesConfig
from brimful.data.sequences import cut_documents
from brimful.packing.histogram import count_lengths
from brimful.packing.side_by_side import Comparison, best_fit_by_capacity, draw_lengths

KEYS = [
    *("algorithm", "capacity", "depth", "rows", "sequences", "tokens", "efficiency", "packing_factor"),
    *("seconds", "lower_bound", "rows_above_bound"),
]


@pytest.fixture
def lengths(seed: int) -> np.ndarray:
    """Skewed lengths with a spike at the longest, as of a text corpus."""
    return np.random.default_rng(seed).lognormal(3.2, 0.9, 3000).astype(np.int64).clip(3, 128)


@pytest.fixture
def histogram(lengths: np.ndarray, tmp_path: Path) -> Path:
    path = tmp_path / "histogram.json"
    path.write_text(json.dumps({"name": "made up", "counts": count_lengths(lengths)[1:].tolist()}))
    return path


def plans(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    """The records that `--json` prints."""
    assert main(["pack", *map(str, arguments), "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)["plans"]


def names(line: str, nouns: str) -> bool:
    """Whether the line has each of the nouns, separated by spaces."""
    return all(noun in line for noun in nouns.split())


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The line of an error."""
    assert main(["pack", *map(str, arguments)]) in (1, 2)
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("brimful: ")
    assert err.count("\n") == 1
    return err


def test_every_algorithm_at_every_depth(
    histogram: Path, lengths: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    found = plans(capsys, "--histogram", histogram, "--capacity", 128, "--algorithm", "all")
    by_depth: dict[int | None, list[str]] = {}
    for plan in found:
        assert list(plan) == KEYS
        by_depth.setdefault(plan["depth"], []).append(plan["algorithm"])
        assert (plan["capacity"], plan["sequences"], plan["tokens"]) == (128, 3000, lengths.sum())
        assert plan["efficiency"] == plan["tokens"] / (plan["rows"] * 128)
        assert plan["packing_factor"] == 3000 / plan["rows"]
        assert plan["rows_above_bound"] == plan["rows"] - plan["lower_bound"] >= 0
    everywhere = ["best-fit", "cutting-stock", "lpfhp", "online", "spfhp"]
    assert {depth: sorted(names) for depth, names in by_depth.items()} == {
        **dict.fromkeys([4, 8, 16, None], everywhere),
        **dict.fromkeys([2, 3], sorted([*everywhere, "ennlshp", "nnlshp"])),
    }
    for depth in by_depth:
        at = {plan["algorithm"]: plan for plan in found if plan["depth"] == depth}
        assert len({plan["lower_bound"] for plan in at.values()}) == 1
        assert at["cutting-stock"]["rows"] == min(plan["rows"] for plan in at.values())
        assert at["cutting-stock"]["rows_above_bound"] <= 2


def test_sources_of_lengths(
    histogram: Path,
    lengths: np.ndarray,
    corpus_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "lengths.npy", lengths.astype(np.uint16))
    by_histogram, by_lengths = (
        plans(capsys, "--histogram", path, "--capacity", 256)
        for path in (histogram, tmp_path / "lengths.npy")
    )
    assert len(by_histogram) == 1
    for key in KEYS:
        assert key == "seconds" or by_histogram[0][key] == by_lengths[0][key]
    assert (by_histogram[0]["algorithm"], by_histogram[0]["depth"]) == ("cutting-stock", None)

    corpus = Corpus.open(corpus_dir)
    cut = cut_documents(corpus, np.arange(corpus.documents), 62, SequencesConfig(), derive_key("pack"))
    (found,) = plans(capsys, "--data", corpus_dir, "--capacity", 256, "--max-length", 64)
    assert found["sequences"] == len(cut.begin)
    assert found["tokens"] == corpus.tokens + 2 * len(cut.begin)


def test_a_tasks_table(corpus_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("text\ttext_b\n" + "一二三\t四五\n" * 5 + "一\t\n")
    counts = text_counts(table, corpus_dir / "tokenizer.json", 64)
    assert counts.sum() == 6
    assert counts[8] == 5  # [CLS] 一 二 三 [SEP] 四 五 [SEP]
    found = plans(
        capsys,
        *("--texts", table, "--tokenizer", corpus_dir, "--capacity", 16),
        *("--depth", "1", "2", "none", "--algorithm", "lpfhp"),
    )
    assert [(plan["depth"], plan["rows"]) for plan in found] == [(1, 6), (2, 3), (None, 3)]
    (cut,) = plans(capsys, "--texts", table, "--tokenizer", corpus_dir, "--max-length", 5)
    assert cut["tokens"] < found[0]["tokens"]


def test_tables_for_people(histogram: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "--histogram", str(histogram), "--algorithm", "all", "--depth", "2", "none"]) == 0
    out = capsys.readouterr().out.lower()
    for heading in ("algorithm", "depth", "rows", "efficiency %", "packing factor", "seconds", "above bound"):
        assert heading in out
    for name in ("spfhp", "lpfhp", "nnlshp", "cutting-stock", "best-fit", "online", "65,536"):
        assert name in out


def test_larger_rows_are_fuller(lengths: np.ndarray) -> None:
    found = best_fit_by_capacity(count_lengths(lengths), 512)
    assert [plan["capacity"] for plan in found if plan["depth"] is None] == [2**n for n in range(9, 17)]
    by_depth = {plan["depth"]: plan["efficiency"] for plan in found if plan["capacity"] == 512}
    assert sorted(by_depth.values()) == [by_depth[depth] for depth in (2, 3, 4, 8, 16, None)]


def test_no_sequences_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    histogram = tmp_path / "none.json"
    histogram.write_text('{"counts": [0, 0]}')
    found = plans(capsys, "--histogram", histogram, "--algorithm", "all")
    assert {plan["rows"] for plan in found} == {0}
    assert main(["pack", "--histogram", str(histogram)]) == 0
    assert "0 sequences" in capsys.readouterr().out


def test_the_plan_is_written(histogram: Path, lengths: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert main(["pack", "--histogram", str(histogram), "--capacity", "128", "--out", str(path)]) == 0
    plan = json.loads(path.read_text())
    assert plan["capacity"] == 128
    placed = np.zeros(129, dtype=np.int64)
    for pattern in plan["patterns"]:
        assert sum(pattern["lengths"]) <= 128
        np.add.at(placed, pattern["lengths"], pattern["rows"])
    assert np.array_equal(placed, np.bincount(lengths, minlength=129))


def test_a_dry_run_plans_nothing(histogram: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.json"
    assert plans(capsys, "--histogram", histogram, "--out", out, "--dry-run") == []
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "JSON"),
        ("[1, 2]", '"counts"'),
        ('{"counts": []}', '"counts"'),
        ('{"counts": [1, -2]}', '"counts"'),
        ('{"counts": [1, 2.5]}', '"counts"'),
        ('{"counts": [true]}', '"counts"'),
        ("[" * 100_000, "histogram.json nested"),
        (json.dumps({"counts": [2**52] * 512}), "too many"),
        (json.dumps({"counts": [0] * 600 + [4, 3]}), "7 sequences capacity 512"),
    ],
)
def test_histograms_that_are_none(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "histogram.json"
    path.write_text(content)
    assert names(refused(capsys, "--histogram", path), message)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([3, 0, 0]), "2 length 0"),
        (np.array([3, 700, 513]), "2 capacity 512 700"),
        (np.array([3, -1]), "1 length -1"),
        (np.array([2**40]), "1 capacity 512 1,099,511,627,776"),
        (np.array([3.0]), "whole numbers"),
        (np.array([[3]]), "one-dimensional"),
        (np.array([{"a": 1}], dtype=object), ".npy"),
    ],
)
def test_lengths_that_are_none(
    array: np.ndarray, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "lengths.npy", array, allow_pickle=True)
    assert names(refused(capsys, "--histogram", tmp_path / "lengths.npy"), message)


def test_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.npy").write_text("not an array")
    assert "text.npy" in refused(capsys, "--histogram", tmp_path / "text.npy")
    for flag in ("--histogram", "--data"):
        assert "absent" in refused(capsys, flag, tmp_path / "absent")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--histogram --data --texts"),
        (["--histogram", "h", "--data", "d"], "--histogram --data"),
        (["--texts", "t.tsv"], "--tokenizer"),
        (["--histogram", "h", "--depth", "0"], "depth 0"),
        (["--histogram", "h", "--capacity", "0"], "capacity 0"),
        (["--data", "d", "--max-length", "2"], "max_length 2"),
        (["--data", "d", "--capacity", "2"], "capacity 3"),
        (["--data", "d", "--max-length", "600"], "max_length 600"),
        (["--histogram", "h", "--capacity", "1" + "0" * 30], "capacity"),
        (["--histogram", "h", "--max-length", "16"], "--max-length --data --texts"),
        (["--histogram", "h", "--algorithm", "online", "--out", "o.json"], "online"),
        (["--histogram", "h", "--out", "./h"], "--out"),
    ],
)
def test_options_that_cannot_be(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(refused(capsys, *flags), message)


def test_depths_that_nnlshp_cannot_do(histogram: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for algorithm in ("nnlshp", "ennlshp"):
        (found,) = plans(capsys, "--histogram", histogram, "--capacity", 128, "--algorithm", algorithm)
        assert found["depth"] == 3
    for depth, named in ((8, "8 512"), ("none", "512")):
        line = refused(capsys, "--histogram", histogram, "--algorithm", "nnlshp", "--depth", depth)
        assert names(line, named)
        assert "cutting-stock" in line


def test_a_device_is_not_replaced(histogram: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(os.devnull).stat()
    assert main(["pack", "--histogram", str(histogram), "--out", os.devnull]) == 1
    assert "not a file" in capsys.readouterr().err
    assert Path(os.devnull).stat().st_rdev == before.st_rdev


def test_draws_follow_the_histogram(lengths: np.ndarray) -> None:
    counts = count_lengths(lengths)
    everything = draw_lengths(counts, 3000)
    assert np.array_equal(count_lengths(everything), counts)
    assert not np.array_equal(everything, np.sort(everything))
    some = draw_lengths(counts * 10**9, 20_000)
    assert len(some) == 20_000
    share = np.bincount(some, minlength=len(counts)) / 20_000
    assert np.abs(share - counts / 3000).max() < 0.02


def test_ten_billion_sequences(lengths: np.ndarray) -> None:
    counts = count_lengths(lengths) * (10**10 // 3000)
    record, plan = Comparison(counts, 128).run("cutting-stock", None)
    assert np.array_equal(plan.counts()[: len(counts)], counts)
    assert record["rows_above_bound"] <= 2
