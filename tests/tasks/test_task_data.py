"""Which tasks there are, and the tables of one: rows that are held out, and what is refused."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.tables.question_files import Answer, QuestionTable
from brimful.tables.table import LabelledSpan, Table
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded, encode
from brimful.tasks.multi_label import MultiLabel
from brimful.tasks.question_answering import QuestionAnswering
from brimful.tasks.registry import find_task
from brimful.tasks.regression import Regression
from brimful.tasks.task_data import cut_part
from brimful.tasks.token_classification import TokenClassification
from builders.encoders import word_tokenizer


def encoded(texts: list[str], labels: list | None = None) -> Encoded:
    return encode(Table(Path("table.tsv"), texts, None, labels or ["a"] * len(texts)), word_tokenizer(), 16)


TASK = Classification(["a", "b"])


def test_equal_texts_are_held_out_together() -> None:
    texts = [f"w{number % 40}" for number in range(200)]
    fit, dev = cut_part(TASK, encoded(texts), "dev")
    assert (len(fit), len(dev)) == (160, 40)
    assert not set(fit.table.texts) & set(dev.table.texts)
    with pytest.raises(BrimfulError, match=r"has 4 different texts .*, too few to cut dev from: at least 5"):
        cut_part(TASK, encoded(["w1", "w2", "w3", "w4"] * 5), "dev")
    with pytest.raises(BrimfulError, match=r"too few to cut test from: at least 50, or give --test"):
        cut_part(TASK, encoded(texts), "test")


def test_a_part_is_named_and_its_rows_are_those_of_the_file() -> None:
    texts = [f"w{number}" for number in range(100)]
    rest, test = cut_part(TASK, encoded(texts), "test")
    fit, dev = cut_part(TASK, rest, "dev", 0.1)
    assert [len(part) for part in (fit, dev, test)] == [72, 8, 20]
    for part, name in ((fit, ""), (dev, ", its dev rows"), (test, ", its test rows")):
        assert str(part.table.path) == f"table.tsv{name}"
        assert [texts[row] for row in part.table.rows.tolist()] == list(part.table.texts)


def test_labels_keep_their_proportions_in_every_task() -> None:
    """By classes, the rarest label of a set, the rarest label of spans, tenths of values, answers or none."""
    texts = [f"w{number}" for number in range(400)]
    spans = [[LabelledSpan(0, 1, "often")] + [LabelledSpan(1, 2, "rare")] * (n % 10 == 0) for n in range(400)]
    cases = [
        (TASK, ["ab"[n % 10 == 0] for n in range(400)], "b"),
        (MultiLabel(["x", "y"]), [["x", "y"] if n % 10 == 0 else ["x"] * (n % 2) for n in range(400)], "y"),
        (TokenClassification(["O"]), spans, "rare"),
        (Regression(), [str(n * n) for n in range(400)], 9),
    ]
    for task, labels, rare in cases:
        data = encoded(texts, labels)
        counts = Counter(task.strata(data.table))
        fit, test = cut_part(task, data, "test")
        for part, share in ((fit, 0.8), (test, 0.2)):
            strata = Counter(task.strata(part.table)) if task.name != "regression" else {}
            for stratum, count in strata.items():
                assert count == pytest.approx(share * counts[stratum], abs=1)
        held = Counter(task.strata(data.table)[row] for row in test.table.rows.tolist())
        assert held[rare] == 8, task.name
    answers = [[Answer(0, "w")] * (n % 4 > 0) for n in range(100)]
    table = QuestionTable(Path("q.json"), texts[:100], texts[100:200], answers, ids=texts[:100])
    assert Counter(QuestionAnswering().strata(table)) == {True: 75, False: 25}


def test_a_part_that_cannot_be_measured_on_is_refused() -> None:
    values = ["1"] * 99 + ["2"]
    with pytest.raises(BrimfulError, match="all labels are 1"):
        cut_part(Regression(), encoded([f"w{n}" for n in range(100)], values), "test")


def test_a_part_that_is_empty_or_far_below_its_share_is_refused() -> None:
    texts, labels = [f"w{n}" for n in range(100)], [f"l{n}" for n in range(100)]
    with pytest.raises(BrimfulError, match=r"only 0 of 100 rows .* give --test, or --task regression"):
        cut_part(Classification(sorted(labels)), encoded(texts, labels), "test")
    with pytest.raises(BrimfulError, match=r"only 0 of 100 rows .* give --dev"):
        cut_part(MultiLabel(sorted(labels)), encoded(texts, [[label] for label in labels]), "dev")
    few = encoded(texts, ["a"] * 10 + labels[10:])
    with pytest.raises(BrimfulError, match="only 2 of 100 rows can be test"):
        cut_part(Classification(["a", *labels[10:]]), few, "test")


def test_an_unknown_task_is_refused_with_the_nearest() -> None:
    with pytest.raises(BrimfulError, match="unknown task 'clasification'; did you mean 'classification'"):
        find_task("clasification")


def test_forms_load_no_torch() -> None:
    code = """
import sys
from brimful.tasks.registry import PROBLEM_TYPES, find_form
for name in PROBLEM_TYPES:
    find_form(name)
print({"torch", "pyarrow", "sklearn", "transformers"} & set(sys.modules))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "set()\n"
