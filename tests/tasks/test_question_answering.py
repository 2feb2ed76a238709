"""Answers: files, windows, the loss and n-best against transformers' definitions, scores by hand."""

import json
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from brimful import BrimfulError, Encoder, TaskModel, distil, finetune
from brimful.base.console import record_warnings
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.tables.question_files import Answer, QuestionTable, read_questions
from brimful.tasks.answer_form import Prediction, Scored
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.question_answering import QuestionAnswering, cmrc_exact, exact, f1, lcs_f1
from brimful.tasks.task_data import load_task_data
from builders.encoders import pair_template, small

TASK = QuestionAnswering(no_answer_threshold=0.0)
TEXTS = st.sampled_from(["", "w0", "w0 w1", "the"])
CONTEXT = "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 w15 w16 w17 w18 w19"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "what", *CONTEXT.split()]


@pytest.fixture
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = pair_template()
    return made


def squad(answers: list[list[tuple[int, str]]]) -> dict:
    questions = []
    for number, row in enumerate(answers):
        found = [{"answer_start": start, "text": text} for start, text in row]
        questions.append({"id": f"q{number}", "question": "what", "answers": found})
    return {"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": questions}]}]}


def read(path: Path, content: object, *, labelled: bool = True) -> QuestionTable:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_questions(path, labelled=labelled)


def outputs_of(*scores: np.ndarray) -> Ragged:
    return Ragged.of(list(scores), np.float32, (2,))


def saved(task: QuestionAnswering, folder: Path, tokenizer: Tokenizer) -> QuestionAnswering:
    """The task of a model folder of this task."""
    encoder = small("bert")
    encoder.tokenizer = tokenizer
    TaskModel(task, encoder, task.new_head(encoder), 64).save(folder)
    return TaskModel.load(folder).task


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.json", "{", "record 1"),
        ("a.json", squad([[(0, "w\ud83d")]]), "surrogate pair"),
        ("a.json", {"data": []}, "question 1 has no 'question'"),
        ("a.json", squad([[("x", "w1")]]), "answer_start"),  # type: ignore[list-item]
        ("a.jsonl", '{"question": "a"}', "line 1 has no 'context'"),
        ("a.jsonl", '{"question": "a", "context": "b"}', "line 1 has no answers"),
        ("a.jsonl", '{"question": "a", "context": "b", "answers": {}}', "line 1: answers"),
        ("a.tsv", "x", r"\.json"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str, content: object, named: str):
    with pytest.raises(BrimfulError, match=named) as error:
        read(tmp_path / name, content)
    assert "\n" not in str(error.value)


def test_targets_are_where_the_answer_stands_in_each_window(tmp_path: Path, tokenizer: Tokenizer):
    """An answer that the context lacks is learnt in none of its windows."""
    answer = "w9 w10"
    place = (CONTEXT.index(answer), answer)
    table = read(tmp_path / "a.json", squad([[(0, "nowhere"), place], [], [(0, "nowhere")]]))
    with record_warnings() as said:
        data = TASK.encode(table, tokenizer, 12, 2, labelled=True)
    assert ["1 of 3 questions" in line and "training leaves them out" in line for line in said] == [True]
    held = 0
    for example, row in enumerate(data.examples.text_of_example):
        first, last = data.examples.targets["span"][example]
        words = [VOCABULARY[i] for i in data.examples.tokens[example]]
        if answer in " ".join(words) and row == 0:
            assert words[first : last + 1] == answer.split()
            held += 1
        else:
            assert (first, last) == ((-100, -100) if row == 2 else (0, 0))
    assert held


def test_the_best_span_of_all_windows_is_the_answer(tmp_path: Path, tokenizer: Tokenizer, seed: int):
    rows = [[(0, "w0")], [], [(3, "w1")]]
    table = read(tmp_path / "a.json", squad(rows))
    data = TASK.encode(table, tokenizer, 11, 3, labelled=False)
    random = np.random.default_rng(seed)
    scores = [random.normal(size=(n, 2)) for n in data.examples.lengths]
    found = TASK.answers(outputs_of(*scores), data)
    for row, prediction in enumerate(found):
        best, nothing, text = -np.inf, np.inf, ""
        for example in np.flatnonzero(data.examples.text_of_example == row):
            logits = scores[example].astype(np.float32).astype(np.float64)
            nothing = min(nothing, logits[0].sum())
            places = data.examples.characters[example]
            for start, end in combinations_with_replacement(range(3, len(places) - 1), 2):
                if (score := logits[start, 0] + logits[end, 1]) > best:
                    best, text = score, CONTEXT[places[start, 0] : places[end, 1]]
        assert prediction.margin == pytest.approx(nothing - best)
        candidates = TASK.candidates(prediction)
        assert candidates[0].text == ("" if nothing > best else text)
        assert sum(c.probability for c in candidates) == pytest.approx(1)
        for candidate in candidates:
            assert CONTEXT[candidate.start :].startswith(candidate.text)
    encoded = TASK.encode(table, tokenizer, 11, 3, labelled=True)
    measured = TASK.measure(found, encoded)
    assert measured["n"] == 3
    assert measured["f1"] <= measured["best_f1"]
    kinds = (2 * measured["answerable_f1"] + measured["unanswerable_f1"]) / 3
    assert measured["f1"] == pytest.approx(kinds)


@pytest.mark.parametrize("rows", [[[(0, "w0")], [(3, "w1")]], [[(0, "w0")], []]])
def test_no_answer_is_one_only_where_training_has_such_questions(tmp_path, tokenizer, rows):
    """No answer scores 3 + 3 and the best span 2.9 + 2.9, as in models of SQuAD 1.1."""
    table = read(tmp_path / "a.json", squad(rows))
    task = QuestionAnswering.from_table(table)
    data = task.encode(table, tokenizer, 64, None, labelled=True)
    scores = np.zeros((data.examples.lengths[0], 2))
    scores[0], scores[3] = 3, 2.9
    answers = task.answers(outputs_of(scores, scores), data)
    for one in (task, saved(task, tmp_path / "model", tokenizer)):
        written = one.rows(answers, data)
        assert {row["prediction"] for row in written} == {"w0" if rows[1] else ""}
        assert ("" in [c["text"] for c in written[0]["n_best"]]) == (not rows[1])
        assert one.measure(answers, data)["exact"] == 0.5


def test_answers_are_as_long_as_the_longest_of_train(tmp_path: Path, tokenizer: Tokenizer):
    """Of a context of 40 words, an answer of 36; the model's folder keeps the length, and others have 30."""
    words = CONTEXT + " " + CONTEXT
    answer = " ".join(words.split()[2:38])
    row = {"id": "q", "question": "what", "context": words, "answers": [{"text": answer, "answer_start": 6}]}
    table = read(tmp_path / "a.jsonl", row)
    task = QuestionAnswering.from_table(table)
    data = task.encode(table, tokenizer, 64, None, labelled=True)
    scores = np.zeros((data.examples.lengths[0], 2))
    (first, last) = data.examples.targets["span"][0]
    scores[first, 0] = scores[last, 1] = 9
    outputs = outputs_of(scores)
    assert task.measure(task.answers(outputs, data), data)["exact"] == 0
    learnt = task.learn(data)
    assert not learnt.calibrates
    kept = saved(learnt, tmp_path / "model", tokenizer)
    assert kept.settings == {"max_answer_length": 36}
    assert kept.text_of(kept.answers(outputs, data)[0]) == answer
    read(tmp_path / "short.jsonl", row | {"answers": [{"text": "w0", "answer_start": 0}]})
    files = [str(tmp_path / "a.jsonl"), str(tmp_path / "short.jsonl")]
    encoder = Encoder.load(tmp_path / "model")
    for train, other in (files, files[::-1]):
        with record_warnings() as lines:
            load_task_data(TaskFiles(QuestionAnswering), encoder, (train, None, other), max_length=64)
        long = [line for line in lines if "1 of 1 answers" in line and "longer than 30 tokens" in line]
        assert len(long) == (other == files[0])
    for wrong in (0, 2.5, "36"):
        with pytest.raises(BrimfulError, match="max_answer_length is not a number of tokens"):
            TASK.with_settings({"max_answer_length": wrong})


@given(rows=st.lists(st.tuples(st.integers(-2, 2), TEXTS, TEXTS), min_size=2, max_size=12))
def test_no_threshold_is_better_on_dev_than_the_fitted_one(rows: list[tuple[int, str, str]]):
    """Of few margins, so that many are equal; spans may be missing, and answers may be no word at all."""
    golds = [[Answer(0, gold)] if gold else [] for _, _, gold in rows]
    table = QuestionTable(Path("dev"), ["q"] * len(rows), ["c"] * len(rows), golds, ids=["i"] * len(rows))
    dev = Encoded(table, Examples([], [], {}, 8, 0))
    answers = [Prediction([Scored(0, span, 5.0)] * bool(span), 5.0 + margin) for margin, span, _ in rows]
    for metric in ("f1", "exact", "lcs_f1"):
        task = TASK.with_primary(metric)
        assert QuestionAnswering().fit_settings(answers, dev) == QuestionAnswering()  # as of SQuAD 1.1
        if len({bool(gold) for gold in golds}) < 2:
            assert task.fit_settings(answers, dev) == task
            continue
        measured = task.fit_settings(answers, dev).measure(answers, dev)
        best = max(
            task.with_settings({"no_answer_threshold": at / 2}).measure(answers, dev)[metric]
            for at in range(-6, 7)
        )
        assert measured[metric] == pytest.approx(best)
        assert measured[f"best_{metric}"] == pytest.approx(best)


def test_a_run_fits_the_threshold_and_its_model_keeps_it(tmp_path: Path, tokenizer: Tokenizer):
    encoder = small("bert")
    encoder.tokenizer = tokenizer
    encoder.save(tmp_path / "encoder")
    rows = [[(0, "w0")] if number % 3 else [] for number in range(18)]
    content = squad(rows)
    for number, question in enumerate(content["data"][0]["paragraphs"][0]["qas"]):
        question["question"] = f"what w{number % 20} w{number}"
    read(tmp_path / "a.json", content)
    path = str(tmp_path / "a.json")
    settings = {"train": path, "dev": path, "test": path, "epochs": 1.0, "batch": 8, "seed": [0, 1]}
    out = tmp_path / "run"
    settings |= {"encoder": str(tmp_path / "encoder"), "task": "question-answering", "precision": "fp32"}
    summary = finetune(out=str(out), **settings)
    threshold = summary["no_answer_threshold"]
    assert threshold != 0
    model = TaskModel.load(out)
    assert model.task.settings == {"no_answer_threshold": threshold}
    # Dev is test here, so the threshold of dev gives the best of test (summed in another order).
    assert summary["test"]["f1_runs"] == pytest.approx(summary["test"]["best_f1_runs"], rel=1e-12)
    given = {"student_layers": 1, "layers": {"epochs": 1.0}, "logits": {"epochs": 1.0}, "precision": "fp32"}
    found = distil(teacher=str(out), dev=path, out=str(tmp_path / "student"), **given)
    for name in ("teacher", "student"):
        assert found[name]["f1"] == pytest.approx(found[name]["best_f1"], rel=1e-12)
    student = TaskModel.load(tmp_path / "student").task
    assert student.no_answer_threshold == found["no_answer_threshold"] != threshold
    other = distil(teacher=str(out), train=path, test=path, out=str(tmp_path / "no-dev"), **given)
    assert other["no_answer_threshold"] == threshold  # the teacher's
    written = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    table = read_questions(path, labelled=False)
    made = model.predict(table.texts, table.second)
    assert [row["prediction"] for row in made] == [row["prediction"] for row in written]


def test_an_empty_context_has_no_margin(tmp_path: Path, tokenizer: Tokenizer):
    table = read(tmp_path / "a.jsonl", {"question": "what", "context": ""}, labelled=False)
    data = TASK.encode(table, tokenizer, 12, 2, labelled=False)
    answers = TASK.answers(outputs_of(np.ones((4, 2))), data)
    (row,) = QuestionAnswering().rows(answers, data)
    assert (row["prediction"], row["probability"], row["no_answer_margin"]) == ("", 1.0, None)


def test_answers_begin_after_the_space_that_belongs_to_their_token(tmp_path: Path):
    """Tokens of XLM-R's kind hold the space before them, and some hold nothing else."""
    pieces = [*VOCABULARY[:5], "▁what", "▁in", "▁", "paris", "▁paris", "▁now"]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.post_processor = pair_template()
    context = "in paris   paris now"
    table = read(tmp_path / "a.jsonl", {"question": "what", "context": context}, labelled=False)
    data = TASK.encode(table, tokenizer, 32, 2, labelled=False)
    scores = [np.random.default_rng(0).normal(size=(n, 2)) for n in data.examples.lengths]
    answers = TASK.answers(outputs_of(*scores), data)
    candidates = [c for c in TASK.rows(answers, data)[0]["n_best"] if c["text"]]
    assert {c["text"] for c in candidates} >= {"paris", "paris   paris", "now"}
    for candidate in candidates:
        assert context[candidate["start"] :].startswith(candidate["text"])
        assert candidate["text"] == candidate["text"].strip()


@pytest.mark.parametrize(
    ("score", "prediction", "answer", "value"),
    [
        (exact, "The  Cat!", "cat", 1),
        (exact, "《红楼梦》", "红楼梦", 0),
        (f1, "the cat sat", "a cat sat down", 2 * 2 / (2 + 3)),
        (f1, "", "", 1),
        (f1, "", "a b", 0),
        (f1, "中書省", "中書", 0),  # SQuAD's words stand between spaces
        (lcs_f1, "讯腾", "腾讯", 0.5),  # order counts
        (lcs_f1, "《腾讯》 Inc.", "腾讯inc", 2 * 3 / (4 + 3)),  # the full stop is a word
        (lcs_f1, "12.5%", "125", 0),
        (lcs_f1, "约3,000人", "3,000人", 2 * 2 / (3 + 2)),
        (lcs_f1, "25℃", "25", 0),  # nltk leaves it whole
        (cmrc_exact, "《红楼梦》", "红楼梦", 1),
        (cmrc_exact, "A-B", "ab", 1),
        (cmrc_exact, "3.5米", "35米", 0),
        (cmrc_exact, "……", "", 0),  # in the script's list, but no single character
    ],
)
def test_scores_by_hand(score, prediction: str, answer: str, value: float):
    assert score(prediction, answer) == pytest.approx(value)
