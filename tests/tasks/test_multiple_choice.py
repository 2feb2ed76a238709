"""Choices: files, cuts, the loss against torch's, runs from files to predictions, exports."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers

from brimful import Encoder
from brimful.commands.check import check
from brimful.commands.distil import distil
from brimful.commands.evaluate import evaluate
from brimful.commands.export import export
from brimful.commands.finetune import _inputs, finetune
from brimful.commands.finetune_config import FinetuneConfig
from brimful.commands.inspect import inspect
from brimful.commands.predict import predict
from brimful.commands.report import report
from brimful.console import recorded_warnings
from brimful.data.examples import Examples
from brimful.errors import BrimfulError
from brimful.nn.heads import ChoiceHead
from brimful.objectives.losses import Imitation, by_row, choice_cross_entropy_sum
from brimful.tasks.cache import TaskFiles
from brimful.tasks.data import hold_out
from brimful.tasks.layouts import find_layout
from brimful.tasks.model import TaskModel
from brimful.tasks.multiple_choice import ChoiceTable, MultipleChoice, read_choices
from brimful.tasks.output import write_rows
from brimful.tasks.table_files import read_file
from builders.encoders import pair_template, small

TASK = MultipleChoice()
WORDS = [f"w{number}" for number in range(60)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "_", "…", "what", *WORDS]
ROWS = [
    {"context": "w1 w2 w3", "question": "what w4", "choices": ["w5", "w6 w7", "w8"], "answer": 1},
    {"context": "w9", "choices": ["w5", "w1"], "answer": "w1 "},
]
C3 = [
    [["男：你好", "女：再见"], [{"question": "谁？", "choice": ["男", "女"], "answer": "女"}], "1-1"],
    [
        ["一", "二"],
        [
            {"question": "几？", "choice": ["一", "二", "三"], "answer": "一"},
            {"question": "多？", "choice": ["是", "否", "是"], "answer": "是"},
        ],
        "1-2",
    ],
]
CHID = [
    {"content": ["今天#idiom000001#，明天#idiom000002#。", "没有"], "candidates": ["一", "二", "三"]},
    {"content": ["#idiom000003#"], "candidates": ["四", "五"]},
]
CHID_ANSWERS = {"#idiom000001#": 2, "#idiom000002#": 0, "#idiom000003#": 1}


@pytest.fixture
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    made.post_processor = pair_template()
    return made


def write(path: Path, content: object) -> Path:
    if isinstance(content, list):
        content = "\n".join(json.dumps(row, ensure_ascii=False) for row in content) + "\n"
    path.write_text(
        content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), encoding="utf-8"
    )
    return path


def words(examples: Examples, example: int) -> list[str]:
    return [VOCABULARY[token] for token in examples.tokens[example]]


def test_own_files_are_read_alike(tmp_path: Path):
    write_rows(
        tmp_path / "a.parquet", [{"question": None, **row, "answer": str(row["answer"])} for row in ROWS[1:]]
    )
    (only,) = read_choices(tmp_path / "a.parquet", labelled=True).choices
    assert only == ["w5", "w1"]
    table = read_choices(write(tmp_path / "a.jsonl", ROWS), labelled=True)
    assert (table.texts, table.second) == (["w1 w2 w3", "w9"], ["what w4", ""])
    assert (table.choices, table.labels) == ([["w5", "w6 w7", "w8"], ["w5", "w1"]], ["w6 w7", "w1"])
    assert (table.where(1), table.ids, table.blanks) == (f"{tmp_path / 'a.jsonl'}, line 2", None, None)
    assert TASK.targets(table)["label"].tolist() == [1, 1]
    assert table.take([1]).choices == [["w5", "w1"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"context": "a"\n', "line 1 is not JSON"),
        ("a.jsonl", "\n[1]\n", "line 2 has no choices"),
        ("a.jsonl", "", "holds no rows"),
        ("a.jsonl", [ROWS[0] | {"context": None}], "line 1 has no context"),
        ("a.jsonl", [ROWS[0] | {"context": 3}], "line 1: the context 3 is no Unicode text"),
        ("a.jsonl", [ROWS[0] | {"question": 3}], "line 1: the question 3 is no Unicode text"),
        ("a.jsonl", [ROWS[0], ROWS[1] | {"choices": None}], "line 2 has no choices: it needs a list"),
        ("a.jsonl", [ROWS[0] | {"choices": "ab"}], "line 1 has no choices: it needs a list"),
        ("a.jsonl", [ROWS[0] | {"choices": ["a"]}], "line 1: 1 choice; it needs two or more"),
        ("a.jsonl", [ROWS[0] | {"choices": []}], "line 1: 0 choices; it needs two or more"),
        (
            "a.jsonl",
            [ROWS[0] | {"choices": ["a", " "]}],
            "line 1: the choice ' ' is no Unicode text, or empty",
        ),
        ("a.jsonl", [ROWS[0] | {"choices": ["a", 3]}], "line 1: the choice 3 is no Unicode text"),
        ("a.jsonl", [ROWS[0] | {"choices": ["a", "b", "a "]}], "line 1 has the choice 'a' 2 times"),
        ("a.jsonl", [ROWS[0] | {"answer": None}], "line 1 has no answer"),
        ("a.jsonl", [ROWS[0] | {"answer": 3}], r"the answer 3 is none of the 3 choices \(w5, w6 w7, w8\)"),
        ("a.jsonl", [ROWS[0] | {"answer": -1}], "the answer -1 is none of the 3 choices"),
        ("a.jsonl", [ROWS[0] | {"answer": True}], "the answer True is none of the 3 choices"),
        (
            "a.jsonl",
            [ROWS[0], ROWS[1] | {"answer": "w7"}],
            "line 2: the answer 'w7' is none of the 2 choices",
        ),
        ("a.tsv", "context\n", "are .jsonl or .parquet files with the keys context"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str, content: object, message: str):
    with pytest.raises(BrimfulError, match=message) as error:
        read_choices(write(tmp_path / name, content), labelled=True)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path / name))


def test_files_of_c3(tmp_path: Path):
    """Also two files after one another, and a row with equal choices, which a leaderboard wants too."""
    layout = find_layout("clue/c3")
    content = json.dumps(C3[:1]) + "\n" + json.dumps(C3[1:], ensure_ascii=False, indent=1)
    table = read_choices(write(tmp_path / "a.json", content), labelled=True, layout=layout)
    assert table.texts == ["男：你好\n女：再见", "一\n二", "一\n二"]
    assert table.second == ["谁？", "几？", "多？"]
    assert table.labels == ["女", "一", "是"]
    assert TASK.targets(table)["label"].tolist() == [1, 0, 0]
    assert list(table.groups()) == list(table.texts)
    for wrong, message in [
        ("[", "a.json, line 1 is not JSON"),
        ("[" * 100_000, "a.json is not JSON: it is nested too deeply"),
        ("[\n[[],[],]]", "a.json, line 2 is not JSON"),
        (json.dumps([[["a"], [{"question": "b"}], "c"]]), "not in the layout clue/c3, .* after question 1"),
        ("[3]", "not in the layout clue/c3, .* after question 0"),
        (json.dumps([["a", [], "c"]]), "not in the layout clue/c3"),
        (
            json.dumps([[["a"], [{"question": "b", "choice": ["c"], "answer": "c"}], "d"]]),
            "question 1: 1 choice",
        ),
        (
            json.dumps([[["a"], [{"question": "b", "choice": ["c", "d"], "answer": "e"}], "d"]]),
            "question 1: the answer 'e' is none of the 2 choices",
        ),
    ]:
        with pytest.raises(BrimfulError, match=message):
            read_choices(write(tmp_path / "a.json", wrong), labelled=True, layout=layout)


def test_files_of_chid(tmp_path: Path):
    layout = find_layout("clue/chid")
    path = write(tmp_path / "dev.json", CHID)
    with pytest.raises(BrimfulError, match=r"has no answers: they are expected in .*dev_answer\.json"):
        read_choices(path, labelled=True, layout=layout)
    write(tmp_path / "dev_answer.json", CHID_ANSWERS)
    table = read_choices(path, labelled=True, layout=layout)
    assert table.texts == ["今天____，明天……。", "今天……，明天____。", "____"]
    assert [text[a:b] for text, (a, b) in zip(table.texts, table.blanks, strict=True)] == ["____"] * 3
    assert table.labels == ["三", "一", "五"]
    assert table.ids == list(CHID_ANSWERS)
    assert list(table.groups()) == [1, 1, 2]
    unlabelled = read_choices(path, labelled=False, layout=layout)
    assert (unlabelled.labels, unlabelled.ids) == (None, table.ids)
    for answers, message in [
        ({"#idiom000001#": 0}, r"line 1, #idiom000002# has no answer in .*dev_answer.json"),
        (CHID_ANSWERS | {"#idiom000003#": 2}, "line 2, #idiom000003#: the answer 2 is none of the 2 choices"),
        ("{,}", "dev_answer.json, line 1 is not JSON"),
        ("[]", "dev_answer.json is not one JSON object"),
    ]:
        write(tmp_path / "dev_answer.json", answers)
        with pytest.raises(BrimfulError, match=message):
            read_choices(path, labelled=True, layout=layout)
    for wrong, message in [
        ({"candidates": ["a", "b"]}, "line 1: content is not a text or a list of texts"),
        ({"content": ["#idiom1#"]}, "line 1, #idiom1# has no choices"),
    ]:
        with pytest.raises(BrimfulError, match=message):
            read_choices(write(path, [wrong]), labelled=False, layout=layout)


def test_examples_are_a_context_with_each_choice(tmp_path: Path, tokenizer: Tokenizer):
    table = read_choices(write(tmp_path / "a.jsonl", ROWS), labelled=True)
    examples = TASK.encode(table, tokenizer, 32, None, labelled=True).examples
    assert words(examples, 1) == ["[CLS]", "w1", "w2", "w3", "[SEP]", "what", "w4", "w6", "w7", "[SEP]"]
    assert examples.segments[1].tolist() == [0] * 5 + [1] * 5
    assert words(examples, 4) == ["[CLS]", "w9", "[SEP]", "w1", "[SEP]"]
    assert examples.text_of_example.tolist() == [0, 0, 0, 1, 1]
    assert examples.targets["choice"].tolist() == [0, 1, 2, 0, 1]
    assert examples.targets["label"].tolist() == [1] * 5
    assert (examples.together, examples.units, examples.cut) == (True, 2, 0)
    with pytest.raises(BrimfulError, match="are cut, not read in windows"):
        TASK.encode(table, tokenizer, 32, 8, labelled=True)


def test_long_contexts_lose_their_end_and_choices_nothing(tmp_path: Path, tokenizer: Tokenizer):
    context = " ".join(WORDS[:40])
    row = {"context": context, "question": "what", "choices": ["w50", "w51 w52 w53"], "answer": 0}
    table = read_choices(write(tmp_path / "a.jsonl", [row, ROWS[0]]), labelled=True)
    examples = TASK.encode(table, tokenizer, 16, None, labelled=True).examples
    assert examples.cut == 1
    for example, choice in ((0, "w50"), (1, "w51 w52 w53")):  # 16 less 3 special tokens and 4 of the longest
        assert words(examples, example) == ["[CLS]", *WORDS[:9], "[SEP]", "what", *choice.split(), "[SEP]"]
    with pytest.raises(
        BrimfulError, match=r"a\.jsonl, line 1: its question with a choice has 4 tokens, which"
    ):
        TASK.encode(table, tokenizer, 7, None, labelled=True)
    assert tokenizer.truncation is None


@pytest.mark.parametrize("before", [0, 3, 20, 39])
def test_contexts_are_cut_around_their_blank(tmp_path: Path, tokenizer: Tokenizer, before: int):
    passage = " ".join([*WORDS[:before], "#idiom000001#", *WORDS[before:39]])
    path = write(tmp_path / "a.json", [{"content": [passage], "candidates": ["w50", "w51"]}])
    table = read_choices(path, labelled=False, layout=find_layout("clue/chid"))
    for length in (12, 16, 30):
        examples = TASK.encode(table, tokenizer, length, None, labelled=False).examples
        assert examples.lengths.tolist() == [length] * 2
        assert " ".join(words(examples, 1)).count("_ _ _ _") == 1
        assert examples.cut == 1


def test_a_cut_word_may_have_more_tokens(tmp_path: Path):
    """A context that begins within a word is cut until it fits, and choices stay whole."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "_", "ab", "##cd", "c", "##d"]
    made = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = pair_template()
    passage = "abcd abcd abcd #idiom000001# abcd abcd"
    path = write(tmp_path / "a.json", [{"content": [passage], "candidates": ["ab", "cd"]}])
    table = read_choices(path, labelled=False, layout=find_layout("clue/chid"))
    cut = []
    for length in range(10, 19):
        examples = TASK.encode(table, made, length, None, labelled=False).examples
        assert examples.lengths.max() <= length
        first, second = ([pieces[token] for token in ids] for ids in examples.tokens)
        assert (first[-2:], second[-3:]) == (["ab", "[SEP]"], ["c", "##d", "[SEP]"])
        assert second.count("_") == 4
        cut.append(second[1])
    assert {"c", "ab"} <= set(cut)


def test_the_loss_is_the_cross_entropy_over_the_choices(seed: int):
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    counts = [int(n) for n in random.integers(2, 6, 5)]
    right = [int(random.integers(0, n)) for n in counts]
    scores = (30 * torch.randn(sum(counts) + 3, dtype=torch.float64)).requires_grad_()
    choices = torch.tensor([k for n in counts for k in range(n)] + [-100] * 3)
    labels = torch.tensor(
        [label for n, label in zip(counts, right, strict=True) for _ in range(n)] + [-100] * 3
    )
    total, hits = choice_cross_entropy_sum(scores, choices, labels)
    (gradient,) = torch.autograd.grad(total, scores)
    parts = scores[: sum(counts)].split(counts)
    each = [F.cross_entropy(part, torch.tensor(label)) for part, label in zip(parts, right, strict=True)]
    (wanted,) = torch.autograd.grad(torch.stack(each).sum(), scores)
    torch.testing.assert_close(total, torch.stack(each).sum(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)
    assert hits == sum(int(part.argmax()) == label for part, label in zip(parts, right, strict=True))


@pytest.mark.parametrize("loss", ["soft", "kl"])
def test_a_student_imitates_the_probabilities_of_the_choices(loss: Imitation, seed: int):
    torch.manual_seed(seed)
    counts, temperature = [2, 5, 3], 1.5
    choices = torch.tensor([k for n in counts for k in range(n)])
    ours, theirs = (torch.randn(10, dtype=torch.float64, requires_grad=True) for _ in range(2))
    compare = TASK.imitation(loss, temperature)
    total = compare(by_row(ours, choices), by_row(theirs.detach(), choices))
    (gradient,) = torch.autograd.grad(total, ours)
    expected = torch.zeros((), dtype=torch.float64)
    for mine, its in zip(ours.split(counts), theirs.detach().split(counts), strict=True):
        target = torch.softmax(its / temperature, -1)
        cross = -(target * torch.log_softmax(mine / temperature, -1)).sum()
        entropy = -(target * target.log()).sum()
        expected = expected + (cross if loss == "soft" else temperature**2 * (cross - entropy))
    (wanted,) = torch.autograd.grad(expected, ours)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)


def test_answers_metrics_and_rows_by_hand(tmp_path: Path, tokenizer: Tokenizer):
    data = TASK.encode(
        read_choices(write(tmp_path / "a.jsonl", ROWS), labelled=True), tokenizer, 32, None, labelled=True
    )
    answers = TASK.answers(np.array([[0.0], [2.0], [1.0], [3.0], [-1.0]], dtype=np.float32), data)
    assert answers.tolist() == [[0, 2, 1], [3, -1, -np.inf]]
    losses = [np.log(1 + np.e**-2 + np.e**-1), 4 + np.log(1 + np.e**-4)]
    assert TASK.measure(answers, data) == {"accuracy": 0.5, "n": 2, "loss": pytest.approx(np.mean(losses))}
    probabilities = [1 / (1 + np.e**-2 + np.e**-1), 1 / (1 + np.e**-4)]
    assert TASK.rows(answers, data) == [
        {"answer": "w6 w7", "index": 1, "probability": pytest.approx(probabilities[0], abs=1e-6)},
        {"answer": "w5", "index": 0, "probability": pytest.approx(probabilities[1], abs=1e-6)},
    ]
    compared = TASK.compared_rows(answers, data)
    assert [(row["label"], row["prediction"]) for row in compared] == [("w6 w7", "w6 w7"), ("w1", "w5")]
    with pytest.raises(BrimfulError, match="has no scores"):
        TASK.scores(answers)
    with pytest.raises(BrimfulError, match="use soft or kl"):
        TASK.imitation("mse", 1.0)


def test_rows_on_one_context_are_on_the_same_side(tmp_path: Path, tokenizer: Tokenizer):
    rows = [ROWS[0] | {"context": f"w{number % 10}", "question": f"w{number}"} for number in range(40)]
    table = read_choices(write(tmp_path / "a.jsonl", rows), labelled=True)
    fit, dev = hold_out(TASK.encode(table, tokenizer, 32, None, labelled=True))
    assert (len(fit), len(dev)) == (32, 8)
    assert not set(fit.table.texts) & set(dev.table.texts)
    assert dev.examples.units == 8
    assert dev.examples.targets["choice"].tolist() == [0, 1, 2] * 8


def learnable(count: int, start: int = 0) -> list[dict]:
    """The right choice is the one that the context names."""
    rows = []
    for number in range(start, start + count):
        choices = [f"w{(number * 7 + k * 11) % 60}" for k in range(2 + number % 3)]
        answer = number % len(choices)
        context = f"w{(number * 13) % 60} what {choices[answer]}"
        rows.append(
            {"context": context, "question": f"what w{number % 60}", "choices": choices, "answer": answer}
        )
    return rows


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    encoder = small("bert")
    encoder.tokenizer = tokenizer
    encoder.save(tmp_path / "encoder")
    return tmp_path / "encoder"


def test_a_run_from_files_to_predictions(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]):
    train, dev, test = (
        str(write(tmp_path / f"{name}.jsonl", learnable(count, start)))
        for name, count, start in (("train", 60, 0), ("dev", 15, 100), ("test", 20, 200))
    )
    checked = check(files=(train, test), encoder=str(folder), task="multiple-choice")
    assert [facts["rows"] for facts in checked["files"].values()] == [60, 20]
    out = tmp_path / "run"
    settings = {"encoder": str(folder), "task": "multiple-choice", "train": train, "test": test, "dev": dev}
    summary = finetune(
        **settings, out=str(out), epochs=2.0, batch=8, max_length=24, precision="fp32", micro_batch_tokens=64
    )
    assert summary["test"]["n"] == 20
    assert 0 <= summary["test"]["accuracy"] <= 1
    assert "no ladder: the baselines are for classes" in capsys.readouterr().err
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert any("loss.multiple-choice" in row for row in logged)
    assert max(row.get("step", 0) for row in logged) == round(2 * 60 / 8)
    with pytest.raises(BrimfulError, match="cut, not read in windows"):
        finetune(**settings, out=str(tmp_path / "other"), overlap=4)
    page = report(runs=(str(out),), out=str(tmp_path / "report.html"))
    assert page
    predictions = tmp_path / "predictions.jsonl"
    predict(model=str(out), input=test, output=str(predictions))
    written = [json.loads(line) for line in predictions.read_text().splitlines()]
    compared = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert [row["answer"] for row in written] == [row["prediction"] for row in compared]
    rows = learnable(20, 200)
    assert all(
        row["answer"] == given["choices"][row["index"]] for row, given in zip(written, rows, strict=True)
    )
    accuracy = np.mean([row["index"] == given["answer"] for row, given in zip(written, rows, strict=True)])
    assert summary["test"]["accuracy"] == pytest.approx(accuracy)
    model = TaskModel.load(out)
    contexts, questions, choices = ([row[key] for row in rows] for key in ("context", "question", "choices"))
    assert model.predict(contexts, questions, choices=choices) == written
    assert model.predict([], choices=[]) == []
    for wrong, message in [
        ((contexts, questions, None), "each context needs its choices"),
        ((contexts, questions, choices[1:]), "20 contexts, 20 questions and 19 lists of choices"),
        ((["a"], None, [["b"]]), "text 0: 1 choice"),
        (([None], None, [["b", "c"]]), "text 0 has no context"),
        (([chr(0xD800)], None, [["b", "c"]]), "the context .* is no Unicode text"),
    ]:
        with pytest.raises(BrimfulError, match=message):
            model.predict(wrong[0], wrong[1], choices=wrong[2])
    with pytest.raises(BrimfulError, match="has no scores of whole texts, which --scores"):
        predict(model=str(out), input=test, output=str(predictions), scores=True)
    with recorded_warnings() as said:
        model = replace(model, max_length=8)
        model.predict(contexts[:2], questions[:2], choices=choices[:2])
    assert said == [
        "2 of 2 texts are over 8 tokens and are cut there; a model that is trained with a higher max_length"
        " reads more of them"
    ]


@pytest.mark.parametrize("name", ["clue/c3", "clue/chid"])
def test_a_run_of_a_layout(tmp_path: Path, folder: Path, name: str):
    layout = find_layout(name)
    path, out = tmp_path / "train.json", tmp_path / "run"
    if name == "clue/c3":
        write(path, json.dumps(C3 * 3, ensure_ascii=False))
    else:
        lines = [
            {"content": [f"w{n} #idiom{n:06}# w{n + 1}"], "candidates": ["w1", "w2", "w3"]} for n in range(9)
        ]
        write(path, lines)
        write(tmp_path / "train_answer.json", {f"#idiom{n:06}#": n % 3 for n in range(9)})
    settings = {"encoder": str(folder), "train": str(path), "test": str(path), "layout": name}
    finetune(**settings, out=str(out), epochs=1.0, batch=4, precision="fp32")
    predict(model=str(out), input=str(path), output=str(tmp_path / "a.jsonl"), layout=name)
    indices = [json.loads(line)["index"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(indices) == len(read_file(TASK, path, labelled=False, layout=layout))
    assert layout.task == TASK.name


def test_other_answers_are_another_table(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """They are in a file of their own, which the cache and a resume must know."""
    monkeypatch.setenv("BRIMFUL_CACHE", str(tmp_path / "cache"))
    path = write(tmp_path / "train.json", CHID)
    found = []
    for answers in (CHID_ANSWERS, CHID_ANSWERS | {"#idiom000003#": 0}):
        write(tmp_path / "train_answer.json", answers)
        files = TaskFiles(MultipleChoice, find_layout("clue/chid"))
        for _ in range(2):
            found.append(list(files.read(path).labels))
            files = TaskFiles(MultipleChoice, find_layout("clue/chid"))
        assert isinstance(files.read(path), ChoiceTable)
        assert files.read(path).blanks[0].start == 2
    assert [labels[-1] for labels in found] == ["五", "五", "四", "四"]
    config = FinetuneConfig(encoder=str(folder), train=str(path), test=str(path), layout="clue/chid")
    assert _inputs(config)["train/train_answer.json"] == tmp_path / "train_answer.json"


def test_an_export_is_theirs_for_multiple_choice(tmp_path: Path, folder: Path):
    """Of a mean in bert there is no class: modules of sentence-transformers, and ONNX."""
    for pooling in ("first", "mean"):
        encoder = TaskModel(TASK, *_with_head(folder, pooling), 24)
        encoder.save(tmp_path / pooling)
        loaded = TaskModel.load(tmp_path / pooling)
        assert loaded.task == TASK
        row = (["w1 w2"], ["what"], [["w3", "w4", "w5"]])
        assert loaded.predict(*row[:2], choices=row[2]) == encoder.predict(*row[:2], choices=row[2])
        values = json.loads((tmp_path / pooling / "config.json").read_text())
        formats = ["hf", "onnx"] if pooling == "first" else ["sentence-transformers"]
        assert values["architectures"] == ["BertForMultipleChoice" if pooling == "first" else "BertModel"]
        for kind in formats:
            result = export(run=str(tmp_path / pooling), out=str(tmp_path / f"{pooling}-{kind}"), format=kind)
            assert result["max_abs_logit_difference"] < 1e-4
    with pytest.raises(BrimfulError, match="transformers has no class for a classifier of the mean"):
        export(run=str(tmp_path / "mean"), out=str(tmp_path / "no"))


@pytest.mark.parametrize("labels", [0.0, 0.5])
def test_a_student_is_distilled(tmp_path: Path, folder: Path, labels: float):
    train, test, more = (
        str(write(tmp_path / f"{name}.jsonl", learnable(30, 100 * number)))
        for number, name in enumerate(("train", "test", "more"))
    )
    settings = {"encoder": str(folder), "task": "multiple-choice", "train": train, "test": test}
    teacher = tmp_path / "teacher"
    finetune(**settings, out=str(teacher), epochs=1.0, batch=8, max_length=24, precision="fp32")
    stages = {"layers": {"epochs": 1.0}, "logits": {"epochs": 2.0, "labels": labels}}
    out = tmp_path / "student"
    summary = distil(
        teacher=(str(teacher),),
        out=str(out),
        unlabelled=(more,),
        student_layers=2,
        batch=8,
        precision="fp32",
        **stages,
    )
    assert summary["texts"] == 60
    assert 0 <= summary["student"]["accuracy"] <= 1
    logged = (out / "stages" / "seed-0" / "logits" / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line).get("step", 0) for line in logged) == 2 * 60 // 8
    assert TaskModel.load(out).task == TASK
    other = {"teacher": (str(teacher),), "out": str(tmp_path / "other")}
    for dry_run in (True, False):
        with pytest.raises(
            BrimfulError, match="texts whose examples belong together have no augmented copies"
        ):
            distil(**other, augment={"copies": 2}, dry_run=dry_run)
    with pytest.raises(BrimfulError, match="use soft or kl"):
        distil(**other, logits={"loss": "mse"})
    with pytest.raises(BrimfulError, match="give one model"):
        distil(**other, max_length=20)


def _with_head(folder: Path, pooling: str):
    encoder = Encoder.load(folder)
    return encoder, ChoiceHead(encoder, pooling=pooling).eval()


def test_encoders_are_compared_by_it(tmp_path: Path, folder: Path):
    train, test = (str(write(tmp_path / f"{n}.jsonl", learnable(30, 100 * n))) for n in range(2))
    result = evaluate(
        encoders=(str(folder),),
        train=train,
        test=test,
        task="multiple-choice",
        seeds=1,
        epochs=1.0,
        out=str(tmp_path / "out"),
        learning_rates=(1e-3,),
    )
    assert [model["accuracy"] for model in result["models"]]


def test_inspect_shows_the_choices_of_an_update(tmp_path: Path, folder: Path):
    path = str(write(tmp_path / "train.jsonl", learnable(20)))
    settings = {"encoder": str(folder), "task": "multiple-choice", "train": path, "test": path}
    finetune(**settings, out=str(tmp_path / "run"), epochs=1.0, batch=4, precision="fp32")
    rows = learnable(20)
    for update in (1, 5):
        found = inspect(directory=str(tmp_path / "run" / "trials/seed-0/rate-0.0003"), update=update)[
            "examples"
        ]
        assert sum(
            len(rows[i]["choices"]) for i in range(20) if any(e["text"] == rows[i]["context"] for e in found)
        ) == len(found)
