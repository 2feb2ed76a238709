"""bench.tasks: its score of names against seqeval, and its cut by company."""

import csv
import random

from seqeval.metrics import f1_score

from bench.tasks import crf
from bench.tasks.sets import cut_news


def test_the_score_of_names_is_that_of_seqeval(seed):
    draw = random.Random(seed)
    marks = ("O", "B-x", "I-x", "E-x", "S-x", "B-y", "I-y")
    gold, ours = [[[draw.choice(marks) for _ in range(9)] for _ in range(30)] for _ in "ab"]
    assert abs(crf.score(ours, gold)["f1"] - f1_score(gold, ours)) < 1e-12


def test_names_in_bmes():
    tags = [["B-x", "M-x", "E-x", "S-x", "S-x", "O", "B-y", "E-y"]]
    assert crf.find_spans(tags) == {(0, 0, 2, "x"), (0, 3, 3, "x"), (0, 4, 4, "x"), (0, 6, 7, "y")}


def test_news_are_cut_by_company(tmp_path):
    source = tmp_path / "financial_news/test_data.csv"
    source.parent.mkdir()
    companies = [f"company {number // 3}" for number in range(300)]
    rows = [f"{number},{company},{number % 2},title {number}" for number, company in enumerate(companies)]
    source.write_text("\n".join([",公司,正负面,标题", *rows]), encoding="utf-8")
    cut_news(tmp_path, tmp_path)
    parts = []
    for name in ("news-train.csv", "news-test.csv"):
        with (tmp_path / name).open(encoding="utf-8") as file:
            parts.append([row["公司"] for row in csv.DictReader(file)])
    assert sorted(parts[0] + parts[1]) == sorted(companies)
    assert not set(parts[0]) & set(parts[1])
    assert 30 < len(parts[1]) < 90
