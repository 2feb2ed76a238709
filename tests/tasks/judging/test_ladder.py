"""The ladder of baselines, early stopping and the grid, through `brimful finetune`."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from brimful import BrimfulError, finetune, report
from brimful.base.storage import read_json
from brimful.hf.folders import save_model
from brimful.tables.question_files import Answer, QuestionTable
from brimful.tables.table import Table
from brimful.tasks.answer_form import Prediction, Scored
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded, encode
from brimful.tasks.judging.baselines import Tfidf, UnreadError, fit_linear
from brimful.tasks.judging.comparison import Judged, MethodComparison, jackknife
from brimful.tasks.multi_label import MultiLabel
from brimful.tasks.question_answering import QuestionAnswering
from brimful.tasks.regression import Regression
from brimful.tasks.task_data import TaskData, draw_rows
from builders.encoders import word_tokenizer
from builders.thin_encoders import thin_encoder
from builders.verbs import labelled_rows, write_table

SMALL = {"precision": "fp32", "max_length": 32, "learning_rates": [1e-3], "epochs": 1.0, "batch": 16}


@pytest.fixture(scope="module")
def inputs(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An encoder of two thin layers with random weights, and tables with a few wrong labels."""
    folder = tmp_path_factory.mktemp("ladder")
    save_model(folder / "encoder", thin_encoder(corpus_dir))
    tables = {}
    for number, (name, size) in enumerate((("train", 100), ("test", 60))):
        rows = labelled_rows(size, seed=number)
        for row in rows[::10]:
            row["label"] = "low"
        tables[name] = write_table(folder / f"{name}.tsv", rows)
    return {"encoder": str(folder / "encoder"), **tables}


def columns(path: str) -> tuple[list[str], list[str]]:
    texts, labels = zip(*(line.split("\t") for line in Path(path).read_text().splitlines()[1:]), strict=True)
    return list(texts), list(labels)


def test_the_ladder_stands_on_the_same_rows(inputs, tmp_path):
    words = pytest.importorskip("sklearn.feature_extraction.text")
    models = pytest.importorskip("sklearn.linear_model")
    make_union = pytest.importorskip("sklearn.pipeline").make_union
    rates = {"learning_rates": [1e-3, 2e-3]}
    summary = finetune(**inputs, **SMALL | rates, out=str(tmp_path / "run"))
    rungs = summary["baselines"]
    assert list(rungs) == ["majority", "tfidf", "frozen"]
    (texts, labels), (tests, wanted) = columns(inputs["train"]), columns(inputs["test"])
    low = labels.count("low") > 50
    assert rungs["majority"]["accuracy"] == pytest.approx(wanted.count("low" if low else "high") / 60)
    ways = {
        "words": [words.TfidfVectorizer(token_pattern=r"\b\w+\b", ngram_range=(1, 2), sublinear_tf=True)],
        "characters": [words.TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True)],
    }
    ways["words and characters"] = [*ways["words"], *ways["characters"]]
    vectors = make_union(*ways[rungs["tfidf"]["reads"]]).fit(texts)
    reached = []
    for c in (1, 3, 10, 30):
        model = models.LogisticRegression(C=c, max_iter=1000).fit(vectors.transform(texts), labels)
        reached.append(pytest.approx(model.score(vectors.transform(tests), wanted)))
    assert rungs["tfidf"]["accuracy"] in reached
    for name, rung in rungs.items():
        gap = summary["test"]["accuracy"] - rung["accuracy"]
        assert rung["difference"] == pytest.approx(gap)
        assert 0 <= rung["standard_error"] < 0.2
        assert rung["seconds"] > 0
        assert "f1" in rung
        assert name == "majority" or (rung["latency_ms"] > 0 and rung["texts_per_second"] > 0)
    for fact in ("latency_ms", "texts_per_second", "training_loss", "examples_per_second"):
        assert summary[fact] > 0
    assert not (tmp_path / "run" / "start").exists()


def test_sets_of_labels_have_a_ladder_too(inputs, tmp_path):
    """test_regression has the ladder of values."""
    pytest.importorskip("sklearn")
    tables = {}
    for name in ("train", "test"):
        content = Path(inputs[name]).read_text().replace("\tlow", "\ta|b").replace("\thigh", "\ta")
        tables[name] = str(tmp_path / f"{name}.tsv")
        Path(tables[name]).write_text(content)
    options = SMALL | tables | {"task": "multi-label", "out": str(tmp_path / "run")}
    rungs = finetune(encoder=inputs["encoder"], **options)["baselines"]
    assert rungs["tfidf"]["micro_f1"] > max(0.6, rungs["majority"]["micro_f1"])


def test_a_ladder_is_added_to_a_finished_run(inputs, tmp_path, monkeypatch, capsys):
    """A run without scikit-learn says so before it trains, and gets the ladder that it would have had."""
    pytest.importorskip("sklearn")
    table = write_table(tmp_path / "table.tsv", labelled_rows(300, seed=5))
    given = {"encoder": inputs["encoder"], "train": table, **SMALL}
    whole = finetune(**given, out=str(tmp_path / "whole"))
    run, page = tmp_path / "bare", str(tmp_path / "page.html")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "sklearn", None)
        assert "baselines" not in finetune(**given, out=str(run))
        told = capsys.readouterr().err
        assert told.index("pip install '.[tasks]' in the clone") < told.rindex("test: ")
        with pytest.raises(BrimfulError, match=r"pip install '\.\[tasks\]' in the clone"):
            report(runs=[str(run)], ladder=True, out=page)
    report(runs=[str(run)], ladder=True, out=page)
    facts = read_json(run / "summary.json")
    for name, rung in whole["baselines"].items():
        found = facts["baselines"][name]
        assert (found["accuracy"], found["rows"]) == (rung["accuracy"], rung["rows"])
    assert len(facts["overview"]["models"]) == 4
    with pytest.raises(BrimfulError, match="is not a finished run of `brimful finetune`"):
        report(runs=[inputs["encoder"]], ladder=True, out=page)


@pytest.mark.parametrize("options", [{}, {"dev": "test"}, {"trainer": {"patience": 2}}], ids=str)
def test_trial_epochs_that_no_trial_would_have_are_refused(inputs, tmp_path, options):
    settings = {**inputs, **SMALL, "out": str(tmp_path / "run"), "trial_epochs": 0.5, "dry_run": True}
    rates = {"learning_rates": [1e-4, 1e-3]}
    more = {"dev": inputs["test"]} if "dev" in options else options
    with pytest.raises(BrimfulError, match="trial_epochs"):
        finetune(**settings | (rates if options else {}) | more)
    assert finetune(**settings | rates)["dry_run"]


def test_the_model_is_there_before_the_ladder(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr("brimful.stages.finetune.measure_baselines", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        finetune(**inputs, **SMALL, out=str(tmp_path / "run"))
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
    assert (tmp_path / "run" / "predictions.jsonl").exists()


def test_the_error_of_questions_is_that_of_contexts(seed):
    """Five questions on each of 200 contexts, all right or all wrong: an error by rows is too small by a
    factor of 2.2. Of one context, nothing but its rows can vary."""
    random = np.random.default_rng(seed)
    contexts = np.repeat(np.arange(200), 5)
    right = (random.random(200) < 0.7)[contexts]
    texts, golds = ["w"] * 1000, [[Answer(0, "w")]] * 1000
    table = QuestionTable(Path("a"), texts, [f"w{context}" for context in contexts], golds, ids=["i"] * 1000)
    data = encode(table, word_tokenizer(), 8)
    judged = {}
    for name, is_right in (("some", right), ("all", np.ones_like(right))):
        answers = [Prediction([Scored(0, "w" if each else "x", 1.0)], 0.0) for each in is_right]
        judged[name] = [Judged(QuestionAnswering(), answers)]
    measured = MethodComparison(judged, data).difference("all", "some")
    assert measured["difference"] == pytest.approx(1 - right.mean())
    assert measured["standard_error"] == pytest.approx(right[::5].std() / 200**0.5, rel=0.45)
    covariance = jackknife(lambda rows: [right[rows].mean()], ["context"] * 1000)[1]
    assert covariance[0, 0] ** 0.5 == pytest.approx(right.std() / 1000**0.5, rel=0.45)


def test_the_error_of_several_seeds_is_that_of_rows_and_of_seeds(seed):
    random = np.random.default_rng(seed)
    wanted = random.integers(0, 2, 300)
    task, data = Classification(["0", "1"]), made_up([f"w{number}" for number in range(300)], wanted.tolist())
    logits = [random.normal(size=(300, 2)) + 2 * np.eye(2)[wanted] for _ in range(4)]
    models = [Judged(task, each.astype(np.float32)) for each in logits]
    found = MethodComparison({"first": models[:2], "second": models[2:]}, data)
    each = np.array([task.measure(one.answers, data)["accuracy"] for one in models]).reshape(2, 2)
    assert list(found.values.values()) == pytest.approx(each.mean(1))
    right = [one.answers.argmax(1) == wanted for one in models]
    mean = (right[0] + right[1].astype(float)) / 2 - (right[2] + right[3].astype(float)) / 2
    expected = mean.var() / 300 + (each[0] - each[1]).var(ddof=1) / 2
    assert found.difference("first", "second")["standard_error"] == pytest.approx(expected**0.5, rel=0.5)
    single = MethodComparison({"first": models[:1], "second": models[2:3]}, data.take(np.array([0])))
    assert single.difference("first", "second")["standard_error"] == 0


def test_the_primary_metric_of_some_rows_is_that_of_all_metrics(seed):
    random = np.random.default_rng(seed)
    names = list("abcde")
    wanted, rows = random.integers(0, 5, 60), random.integers(0, 60, 45)
    data = made_up([f"w{number}" for number in range(60)], wanted.tolist())
    answers = (random.normal(size=(60, 5)) + np.eye(5)[wanted]).astype(np.float32)
    several = replace(data.table, labels=[[names[one], "e"] for one in wanted])
    sets = encode(several, word_tokenizer(), 16, targets=MultiLabel(names).targets(several))
    numbers = encode(data.table, word_tokenizer(), 16, targets={"label": wanted.astype(np.float32)})
    for task, of in ((Classification(names), data), (MultiLabel(names), sets), (Regression(), numbers)):
        for metric in task.metrics:
            compared = task.with_primary(metric.name)
            for some in (np.arange(60), np.unique(rows)):
                measured = task.measure(answers[some], of.take(some))[metric.name]
                assert compared.make_primary(answers, of)(some) == pytest.approx(measured)


@pytest.mark.parametrize("kind", ["words", "words and characters"])
def test_texts_of_a_pair_without_a_word_leave_the_other_to_tfidf(kind):
    pytest.importorskip("sklearn")
    table = Table(Path("a.tsv"), [f"word{number % 5} other" for number in range(20)], ["!!", "??"] * 10, None)
    features = Tfidf()
    features.kind = kind
    assert features.fit(table).shape == features.transform(table).shape
    assert {column for column, _ in features._readers} == ({0} if kind == "words" else {0, 1})
    empty = replace(table, second=[""] * 20)
    assert (features.fit(empty) != features.fit(replace(table, second=None))).nnz == 0


def test_what_tfidf_cannot_read_hides_no_other_error(seed, monkeypatch, capsys):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    with pytest.raises(UnreadError):
        Tfidf().fit(Table(Path("a.tsv"), ["", ""], None, None))
    data = untouched(["w1", "w2"] * 10, [0, 1] * 10)
    fit = text.TfidfVectorizer.fit_transform

    def broken(self: object, texts: list[str]) -> object:
        if self.analyzer == "word":
            raise ValueError("out of order")
        return fit(self, texts)

    monkeypatch.setattr(text.TfidfVectorizer, "fit_transform", broken)
    with pytest.raises(ValueError, match="out of order"):
        Tfidf().fit(data.train.table)
    assert fit_linear(data, Tfidf()) is None
    assert "no linear model on TF-IDF: out of order" in capsys.readouterr().err


def test_the_same_rows_are_drawn_in_any_order_of_a_table(seed):
    data = made_up([f"word{number}" for number in range(60)], [0, 1] * 30)
    found = draw_rows(data, 20, "a")
    shuffled = draw_rows(data.take(np.random.default_rng(seed).permutation(60)), 20, "a")
    assert len(found) == 20
    assert set(found.table.texts) == set(shuffled.table.texts) != set(draw_rows(data, 20, "b").table.texts)
    assert (np.diff(found.table.rows) > 0).all()


def untouched(texts: list[str], labels: list[int]) -> TaskData:
    """The same rows as train, dev and test."""
    names = [str(label) for label in sorted(set(labels))]
    return TaskData(Classification(names), *[made_up(texts, labels)] * 4, 0)


def made_up(texts: list[str], labels: list[int]) -> Encoded:
    table = Table(Path("a.tsv"), texts, None, [str(label) for label in labels])
    return encode(table, word_tokenizer(), 16, targets={"label": np.array(labels)})


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_dev_chooses_what_tfidf_reads(kind, seed, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    random = np.random.default_rng(seed)
    parts = []
    for size in (200, 100, 100):
        labels = random.integers(0, 3, size).tolist()
        texts = [["abcd", "cdab", "dabc"][label] + " " + str(random.integers(10)) for label in labels]
        if kind == "characters":  # there is no word
            marks = [random.choice(list("!?.,;:-+*/()[]"), 9) for _ in labels]
            texts = ["".join(some) + "☺☻♥"[label] for some, label in zip(marks, labels, strict=True)]
        parts.append(made_up(texts, labels))
    train, dev, test = parts
    data = TaskData(Classification(["0", "1", "2"]), train, dev, train, test, 0)
    tried: list[str] = []
    fit = Tfidf.fit
    monkeypatch.setattr(Tfidf, "fit", lambda self, table: (tried.append(self.kind), fit(self, table))[1])
    rung = fit_linear(data, Tfidf())
    assert tried[:3] == list(Tfidf.kinds)
    assert rung.reads == tried[3]
    assert data.task.measure(rung.answers, test)["accuracy"] > 0.95
    assert rung.reads == "characters" or kind == "words"
    assert f"TF-IDF reads {rung.reads}" in capsys.readouterr().err


def test_many_classes_take_fewer_rows_and_too_many_none(monkeypatch, capsys):
    pytest.importorskip("sklearn")
    data = untouched([f"w{n % 3} w{n}" for n in range(90)], [n % 3 for n in range(90)])
    monkeypatch.setattr("brimful.tasks.judging.baselines.MAX_FITTED_VALUES", 90)
    assert fit_linear(data, Tfidf()).rows == 30
    monkeypatch.setattr("brimful.tasks.judging.baselines.MAX_OUTPUTS", 2)
    assert fit_linear(data, Tfidf()) is None
    assert "no linear model on TF-IDF: 3 labels" in capsys.readouterr().err
