"""`brimful pack`: its sources, its tables for people and for programs, and its refusals."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brimful.base.randomness import derive_key
from brimful.cli.main import main
from brimful.corpus.shards import Corpus
from brimful.data.config import SequencesConfig
from brimful.data.sequences import cut_documents
from brimful.packing.histogram import count_lengths


@pytest.fixture
def lengths(seed):
    """Skewed lengths with a spike at the longest, as of a text corpus."""
    return np.random.default_rng(seed).lognormal(3.2, 0.9, 3000).astype(np.int64).clip(3, 128)


@pytest.fixture
def histogram(lengths, tmp_path):
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


def test_every_algorithm_at_every_depth(histogram, lengths, capsys):
    found = plans(capsys, "--histogram", histogram, "--capacity", 128, "--algorithm", "all")
    by_depth: dict[int | None, list[str]] = {}
    for plan in found:
        by_depth.setdefault(plan["depth"], []).append(plan["algorithm"])
        assert (plan["capacity"], plan["sequences"], plan["tokens"]) == (128, 3000, lengths.sum())
        assert plan["rows_above_bound"] == plan["rows"] - plan["lower_bound"] >= 0
    everywhere = ["cutting-stock", "lpfhp", "spfhp"]
    assert {depth: sorted(names) for depth, names in by_depth.items()} == {
        **dict.fromkeys([4, 8, 16, None], everywhere),
        **dict.fromkeys([2, 3], sorted([*everywhere, "nnlshp"])),
    }
    for depth in by_depth:
        at = {plan["algorithm"]: plan for plan in found if plan["depth"] == depth}
        assert len({plan["lower_bound"] for plan in at.values()}) == 1
        assert at["cutting-stock"]["rows"] == min(plan["rows"] for plan in at.values())
        assert at["cutting-stock"]["rows_above_bound"] <= 2


def test_sources_of_lengths(histogram, lengths, corpus_dir, capsys):
    (found,) = plans(capsys, "--histogram", histogram, "--capacity", 256)
    assert (found["sequences"], found["tokens"]) == (len(lengths), lengths.sum())
    assert (found["algorithm"], found["depth"]) == ("cutting-stock", None)

    corpus = Corpus.open(corpus_dir)
    cut = cut_documents(corpus, np.arange(corpus.documents), 62, SequencesConfig(), derive_key("pack"))
    (found,) = plans(capsys, "--data", corpus_dir, "--capacity", 256, "--max-length", 64)
    assert found["sequences"] == len(cut.begin)
    assert found["tokens"] == corpus.tokens + 2 * len(cut.begin)


def test_tables_for_people(histogram, capsys):
    assert main(["pack", "--histogram", str(histogram), "--algorithm", "all", "--depth", "2", "none"]) == 0
    out = capsys.readouterr().out.lower()
    for heading in ("algorithm", "depth", "rows", "full %", "factor", "seconds", "above bound"):
        assert heading in out
    for name in ("spfhp", "lpfhp", "nnlshp", "cutting-stock"):
        assert name in out


def test_no_sequences_at_all(tmp_path, capsys):
    histogram = tmp_path / "none.json"
    histogram.write_text('{"counts": [0, 0]}')
    found = plans(capsys, "--histogram", histogram, "--algorithm", "all")
    assert {plan["rows"] for plan in found} == {0}
    assert main(["pack", "--histogram", str(histogram)]) == 0
    assert "0 sequences" in capsys.readouterr().out


def test_the_plan_is_written(histogram, lengths, tmp_path):
    path = tmp_path / "plan.json"
    assert main(["pack", "--histogram", str(histogram), "--capacity", "128", "--out", str(path)]) == 0
    plan = json.loads(path.read_text())
    assert plan["capacity"] == 128
    placed = np.zeros(129, dtype=np.int64)
    for pattern in plan["patterns"]:
        assert sum(pattern["lengths"]) <= 128
        np.add.at(placed, pattern["lengths"], pattern["rows"])
    assert np.array_equal(placed, np.bincount(lengths, minlength=129))


def test_a_dry_run_plans_nothing(histogram, tmp_path, capsys):
    out = tmp_path / "plan.json"
    assert plans(capsys, "--histogram", histogram, "--out", out, "--dry-run") == []
    assert not out.exists()


DAMAGED: list[tuple[str, str]] = [
    ("", "JSON"),
    ("[1, 2]", '"counts"'),
    ('{"counts": [1, -2]}', '"counts"'),
    ('{"counts": [true]}', '"counts"'),
    ("[" * 100_000, "h JSON damaged"),
    (json.dumps({"counts": [2**52] * 512}), "too many"),
    (json.dumps({"counts": [0] * 600 + [4, 3]}), "7 sequences capacity 512"),
]
REFUSED = [
    ("", "--histogram --data"),
    ("--histogram absent", "absent"),
    ("--data absent", "absent"),
    ("--histogram h --data d", "--histogram --data"),
    ("--histogram h --depth 0", "depth 0"),
    ("--histogram h --capacity 0", "capacity 0"),
    ("--data d --max-length 2", "max_length 2"),
    ("--data d --capacity 2", "capacity 3"),
    ("--data d --max-length 600", "max_length 600"),
    (f"--histogram h --capacity 1{'0' * 30}", "capacity"),
    ("--histogram h --max-length 16", "--max-length --data"),
    ("--histogram h --out ./h", "--out"),
]


@pytest.mark.parametrize(
    ("flags", "content", "message"),
    [*((flags, None, message) for flags, message in REFUSED), *(("--histogram h", *row) for row in DAMAGED)],
)
def test_what_cannot_be_packed(flags, content, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "h").write_text(content)
    assert names(refused(capsys, *flags.split()), message)


def test_depths_that_nnlshp_cannot_do(histogram, capsys):
    (found,) = plans(capsys, "--histogram", histogram, "--capacity", 128, "--algorithm", "nnlshp")
    assert found["depth"] == 3
    for depth, named in ((8, "8 512"), ("none", "512")):
        line = refused(capsys, "--histogram", histogram, "--algorithm", "nnlshp", "--depth", depth)
        assert names(line, named)
        assert "cutting-stock" in line


def test_a_device_is_not_replaced(histogram, capsys):
    before = Path(os.devnull).stat()
    assert main(["pack", "--histogram", str(histogram), "--out", os.devnull]) == 1
    assert "not a file" in capsys.readouterr().err
    assert Path(os.devnull).stat().st_rdev == before.st_rdev
