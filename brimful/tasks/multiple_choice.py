"""Multiple choice: which of several texts answers a question on a context, or fills a blank in it (C3, CHID).

The model scores each choice alone, after the context and the question, as ForMultipleChoice in
`transformers` does. The softmax is over the choices of a row, so these are drawn and packed together. A
context that is too long is cut, the same for all choices of its row; questions and choices never are.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.data.examples import AT_ONCE, is_text
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import ChoiceHead
from brimful.objectives.losses import (
    CHOICE,
    Imitation,
    choice_cross_entropy_sum,
    class_imitation,
    rows_of_choices,
)
from brimful.tasks.classification import DIGITS
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.json_files import json_values
from brimful.tasks.layouts import OWN_LAYOUT, FileLayout
from brimful.tasks.rows import all_rows, json_lines
from brimful.tasks.table import Table, Take, everything
from brimful.tasks.task import Metric, Outputs, Row, Task
from brimful.tasks.text_files import readable, suffix_of

LABEL = "label"
"""The target of each example that is the number of its row's right choice; `CHOICE` is its own number."""
_BLANK = re.compile(r"#idiom\d+#")
_ASKED, _OTHER = "____", "……"
"""They replace the blank that is asked for, and every other one; any tokenizer has tokens for them."""


class Place(NamedTuple):
    """`context[start:end]` must stay when the context is cut."""

    start: int
    end: int


@dataclass(frozen=True)
class ChoiceTable(Table):
    """Contexts as `texts`, questions as `second` (possibly empty); a label is the right choice.

    Attributes:
        choices: of each row, two or more.
        blanks: where the blank of each context is; None: there are no blanks.
        ids: what the file calls the blanks.
    """

    choices: Sequence[list[str]] = field(kw_only=True)
    blanks: Sequence[Place] | None = field(default=None, kw_only=True)
    ids: Sequence[str] | None = field(default=None, kw_only=True)

    types = {"choices": list[str], "blanks": Place, "ids": str}  # noqa: RUF012

    def keys(self) -> list[tuple[str, str]]:
        """Equal for rows of the same context, question and choices."""
        assert self.second is not None
        rows = zip(self.texts, self.second, self.choices, strict=True)
        return [(text, "\n".join([question, *choices])) for text, question, choices in rows]

    def groups(self) -> Sequence[object]:
        """The contexts; in CHID the lines of the file, since all blanks of a line share their choices."""
        return self.texts if self.blanks is None or self.lines is None else self.lines.tolist()


class _Read(NamedTuple):
    """A row of a file: its place for messages, and its parts."""

    where: str
    line: int
    context: Any
    question: Any
    choices: Any
    answer: Any
    name: str | None = None
    blank: Place | None = None


def read_choices(
    path: Path | str, *, labelled: bool, layout: FileLayout = OWN_LAYOUT, take: Take = everything
) -> ChoiceTable:
    """Read .jsonl or .parquet with context, question, choices and answer, or the files of C3 or CHID.

    Raises:
        BrimfulError: the file cannot be read or holds no row, or a row lacks a part, has fewer than two
            choices or one of them twice, or an answer that is none of them.
    """
    path = Path(path)
    with readable(path):
        rows = list(take(_READERS[layout.name](path, layout, labelled)))
    if not rows:
        raise BrimfulError(f"{path} holds no rows")
    choices = [_checked_choices(row, distinct=not layout.name) for row in rows]
    texts, questions = ([_text(row, name) for row in rows] for name in ("context", "question"))
    labels = None
    if labelled:
        labels = [_right(row, each) for row, each in zip(rows, choices, strict=True)]
    return ChoiceTable(
        path,
        texts,
        questions,
        labels,
        lines=np.array([row.line for row in rows], dtype=np.int64) if rows[0].line else None,
        ids=[row.name or "" for row in rows] if rows[0].name else None,
        choices=choices,
        blanks=[row.blank for row in rows if row.blank] if rows[0].blank else None,
    )


def _own_rows(path: Path, layout: FileLayout, labelled: bool) -> Iterator[_Read]:
    form = suffix_of(path)
    if form not in (".jsonl", ".parquet"):
        raise BrimfulError(
            f"{path}: questions with choices are .jsonl or .parquet files with the keys context, question,"
            " choices and answer"
        )
    by_row = form == ".parquet"
    for number, row in all_rows(path, form, OWN_LAYOUT):
        where = f"{path}, {'row' if by_row else 'line'} {number}"
        parts = (row.get("context"), row.get("question") or "", row.get("choices"), row.get("answer"))
        yield _Read(where, 0 if by_row else number, *parts)


def _c3_rows(path: Path, layout: FileLayout, labelled: bool) -> Iterator[_Read]:
    """The questions of a JSON list of [lines, questions, id], or of several such lists in one file."""
    number = 0
    for content in json_values(path):
        try:
            for lines, questions, *_ in content:
                if not isinstance(lines, list):
                    raise TypeError(f"{lines!r:.60} is not a list")
                context = "\n".join(lines)
                for each in questions:
                    number += 1
                    parts = each["question"], each["choice"], each.get("answer")
                    yield _Read(f"{path}, question {number}", 0, context, *parts)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise BrimfulError(
                f"{path} is not in the layout {layout.name}, lists of [lines, questions with choice, id],"
                f" after question {number}"
            ) from error


def _chid_rows(path: Path, layout: FileLayout, labelled: bool) -> Iterator[_Read]:
    """A row for each blank of each passage. The asked one becomes `_ASKED`, others become `_OTHER`."""
    answers = _chid_answers(*layout.files(path)) if labelled else {}
    for line, content in json_lines(path):
        passages = content.get("content")
        passages = [passages] if isinstance(passages, str) else passages
        if not isinstance(passages, list) or not all(isinstance(each, str) for each in passages):
            raise BrimfulError(f"{path}, line {line}: content is not a text or a list of texts")
        for passage in passages:
            for blank in _BLANK.finditer(passage):
                name = blank[0]
                where = f"{path}, line {line}, {name}"
                if labelled and name not in answers:
                    raise BrimfulError(f"{where} has no answer in {layout.files(path)[1]}")
                before = _BLANK.sub(_OTHER, passage[: blank.start()])
                context = before + _ASKED + _BLANK.sub(_OTHER, passage[blank.end() :])
                place = Place(len(before), len(before) + len(_ASKED))
                parts = (context, "", content.get("candidates"), answers.get(name), name, place)
                yield _Read(where, line, *parts)


def _chid_answers(path: Path, file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        raise BrimfulError(f"{path} has no answers: they are expected in {file}")
    with readable(file):
        values = list(json_values(file))
    if len(values) != 1 or not isinstance(values[0], dict):
        raise BrimfulError(f'{file} is not one JSON object of answers, {{"#idiom000000#": 0, ...}}')
    return values[0]


_READERS: dict[str, Callable[[Path, FileLayout, bool], Iterator[_Read]]] = {
    "": _own_rows,
    "clue/c3": _c3_rows,
    "clue/chid": _chid_rows,
}


def _text(row: _Read, name: str) -> str:
    value = getattr(row, name)
    if value is None:
        raise BrimfulError(f"{row.where} has no {name}")
    if not is_text(value):
        raise BrimfulError(f"{row.where}: the {name} {value!a:.60} is no Unicode text")
    return value.strip() if name == "question" else value


def _checked_choices(row: _Read, *, distinct: bool) -> list[str]:
    """The choices without white space at their ends.

    Args:
        distinct: whether to refuse equal ones; a leaderboard wants all rows.
    """
    if not isinstance(row.choices, list):
        raise BrimfulError(f"{row.where} has no choices: it needs a list of two texts or more")
    for choice in row.choices:
        if not is_text(choice) or not choice.strip():
            raise BrimfulError(f"{row.where}: the choice {choice!a:.60} is no Unicode text, or empty")
    choices = [choice.strip() for choice in row.choices]
    if len(choices) < 2:
        raise BrimfulError(f"{row.where}: {len(choices)} choice{'s' * (not choices)}; it needs two or more")
    if distinct and (twice := next((choice for choice in choices if choices.count(choice) > 1), None)):
        raise BrimfulError(f"{row.where} has the choice {twice!r:.60} {choices.count(twice)} times")
    return choices


def _right(row: _Read, choices: list[str]) -> str:
    """The right choice, which the answer names by its number, from 0, or by its text."""
    answer = row.answer
    if answer is None:
        raise BrimfulError(f"{row.where} has no answer: the number of a choice, from 0, or its text")
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(choices):
        return choices[answer]
    if isinstance(answer, str) and answer.strip() in choices:
        return answer.strip()
    shown = ", ".join(choices)
    raise BrimfulError(
        f"{row.where}: the answer {answer!r:.60} is none of the {len(choices)} choices ({shown:.60}) or their"
        f" numbers, 0 to {len(choices) - 1}"
    )


@dataclass(frozen=True)
class MultipleChoice(Task):
    """One of the choices of each row; the loss is the cross-entropy over them."""

    name = "multiple-choice"
    problem_type = "multiple_choice"
    metrics = (Metric("accuracy", "accuracy", percent=True),)
    watched = ("accuracy",)
    sentence = "{primary} of {texts} get the right choice."
    labels = ["score"]  # noqa: RUF012
    description = "the right one of several choices"
    windows = False

    @classmethod
    def read(
        cls, path: Path | str, *, labelled: bool, layout: FileLayout = OWN_LAYOUT, take: Take = everything
    ) -> Table:
        layout.require_own_columns(cls.name)
        return read_choices(path, labelled=labelled, layout=layout, take=take)

    @classmethod
    def from_texts(cls, texts: list[str], second: list[str] | None) -> Table:
        raise BrimfulError("each context needs its choices: predict(contexts, questions, choices=choices)")

    @classmethod
    def from_choices(cls, texts: list[str], second: list[str] | None, choices: list[list[str]]) -> Table:
        """Contexts, the question on each (or None), and its choices."""
        questions = [""] * len(texts) if second is None else second
        if not len(texts) == len(questions) == len(choices):
            counts = f"{len(texts)} contexts, {len(questions)} questions and {len(choices)} lists of choices"
            raise BrimfulError(f"{counts} do not fit together")
        rows = [
            _Read(f"text {number}", 0, context, question, each, None)
            for number, (context, question, each) in enumerate(zip(texts, questions, choices, strict=True))
        ]
        checked = [_checked_choices(row, distinct=True) for row in rows]
        contexts, questions = ([_text(row, name) for row in rows] for name in ("context", "question"))
        return ChoiceTable(Path("texts"), contexts, questions, None, choices=checked)

    @classmethod
    def from_table(cls, table: Table) -> Self:
        return cls()

    def new_head(self, encoder: Encoder) -> ChoiceHead:
        return ChoiceHead(encoder)

    def encode(
        self, table: Table, tokenizer: Tokenizer, max_length: int, overlap: int | None, *, labelled: bool
    ) -> Encoded:
        """The examples of a table: of each row its context with each choice, which belong together.

        Raises:
            BrimfulError: as `targets`, a question with a choice leaves no room for the context, or `overlap`
                asks for windows.
        """
        assert isinstance(table, ChoiceTable)
        assert table.second is not None
        if overlap is not None:
            raise BrimfulError(f"the contexts of {self.name} are cut, not read in windows: leave overlap out")
        counts = np.array([len(choices) for choices in table.choices], dtype=np.int64)
        owners = np.repeat(np.arange(len(table)), counts)
        seconds = [
            f"{question} {choice}" if question else choice
            for question, choices in zip(table.second, table.choices, strict=True)
            for choice in choices
        ]
        contexts, cut = _cut_contexts(table, tokenizer, seconds, counts, max_length)
        pairs = Table(table.path, [contexts[row] for row in owners.tolist()], seconds, None)
        examples = encode(pairs, tokenizer, max_length).examples
        numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        targets: dict[str, Any] = {CHOICE: numbers}
        if labelled:
            targets[LABEL] = self.targets(table)[LABEL][owners]
        return Encoded(table, replace(examples, targets=targets, texts=owners, cut=cut, together=True))

    def targets(self, table: Table) -> dict[str, np.ndarray]:
        """`label`, int64 (n,): the number of the right choice in its row."""
        assert isinstance(table, ChoiceTable)
        found = [each.index(label) for each, label in zip(table.choices, table.labels or [], strict=True)]
        return {LABEL: np.array(found, dtype=np.int64)}

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        labels = batch.targets[LABEL]
        loss, right = choice_cross_entropy_sum(outputs[:, 0], batch.targets[CHOICE], labels)
        return {self.name: loss, "accuracy": right}

    def count(self, batch: PackedBatch) -> float:
        """The number of rows."""
        return rows_of_choices(batch.targets[CHOICE])

    def imitation(self, loss: Imitation, temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss over the choices of a row."""
        if loss == "mse":
            raise BrimfulError(
                "mse compares single scores, and a choice has a score beside others: use soft or kl"
            )
        return class_imitation(loss, temperature)

    def scores(self, answers: np.ndarray) -> np.ndarray:
        """None: choices have no names.

        Raises:
            BrimfulError: always.
        """
        raise BrimfulError(
            f"a model of {self.name} has no scores of whole texts, which --scores and .npy hold; in"
            " distil, give one model as --teacher, and a student with its tokenizer and max_length"
        )

    def answers(self, outputs: Outputs, data: Encoded) -> np.ndarray:
        """The score of each choice, float32 (rows, most choices); -inf where a row has fewer."""
        assert isinstance(outputs, np.ndarray)
        rows, counts = data.examples.text_of_example, data.examples.count_of_text
        found = np.full((len(data), int(counts.max())), -np.inf, dtype=np.float32)
        found[rows, np.arange(len(rows)) - data.examples.first_of_text[rows]] = outputs[:, 0]
        return found

    def measure(self, answers: np.ndarray, data: Encoded) -> dict[str, float]:
        """Accuracy, n, and the mean cross-entropy as `loss`."""
        labels = torch.from_numpy(data.targets[LABEL])
        logs = torch.log_softmax(torch.from_numpy(answers), -1)
        loss = -float(logs.gather(1, labels[:, None]).double().mean())
        return {"accuracy": self.measure_primary(answers, data), "n": len(labels), "loss": loss}

    def measure_primary(self, answers: np.ndarray, data: Encoded) -> float:
        """As `Task.measure_primary`, without the cross-entropy."""
        return float((answers.argmax(1) == data.targets[LABEL]).mean())

    def rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`id` (of a layout that has one), `answer`, its `index` among the choices, from 0, and its
        `probability`."""
        assert isinstance(data.table, ChoiceTable)
        probabilities = torch.softmax(torch.from_numpy(answers), -1).numpy()
        rows: list[Row] = []
        for row, (choices, index) in enumerate(
            zip(data.table.choices, answers.argmax(1).tolist(), strict=True)
        ):
            name = {} if data.table.ids is None else {"id": data.table.ids[row]}
            probability = round(float(probabilities[row, index]), DIGITS)
            rows.append(name | {"answer": choices[index], "index": index, "probability": probability})
        return rows

    def compared_rows(self, answers: np.ndarray, data: Encoded) -> list[Row]:
        """`id` (of a layout that has one), the right choice as `label`, the predicted one as `prediction`
        and its `probability`."""
        found = []
        for label, row in zip(data.table.labels or [], self.rows(answers, data), strict=True):
            prediction = {"prediction": row["answer"], "probability": row["probability"]}
            found.append(({"id": row["id"]} if "id" in row else {}) | {"label": label} | prediction)
        return found


def _cut_contexts(
    table: ChoiceTable, tokenizer: Tokenizer, seconds: list[str], counts: np.ndarray, max_length: int
) -> tuple[list[str], int]:
    """The contexts, those that are too long cut to what the longest choice leaves: their end, or what is far
    from the blank. Also how many are cut.

    Raises:
        BrimfulError: a question with a choice leaves no room for the context.
    """
    lengths = np.concatenate(
        [
            [len(e.ids) for e in _plain(tokenizer, seconds[start : start + AT_ONCE])]
            for start in range(0, len(seconds), AT_ONCE)
        ]
    )
    longest = np.maximum.reduceat(lengths, np.cumsum(counts) - counts)
    rooms = max_length - tokenizer.num_special_tokens_to_add(True) - longest
    if (rooms < 1).any():
        row = int(np.flatnonzero(rooms < 1)[0])
        raise BrimfulError(
            f"{table.where(row)}: its question with a choice has {longest[row]} tokens, which leaves no room"
            f" for the context in {max_length}; raise max_length"
        )
    contexts, cut = list(table.texts), 0
    for start in range(0, len(table), AT_ONCE):
        encodings = _plain(tokenizer, contexts[start : start + AT_ONCE])
        for row, encoding in enumerate(encodings, start):
            room = int(rooms[row])
            if len(encoding.ids) <= room:
                continue
            cut += 1
            blank = None if table.blanks is None else table.blanks[row]
            keep = room
            # A word that is cut in two may have more tokens than it had.
            while keep and len(encoding.ids) > room:
                contexts[row] = _around(table.texts[row], blank, keep, encodings[row - start].offsets)
                (encoding,) = _plain(tokenizer, [contexts[row]])
                keep -= 1
    return contexts, cut


def _plain(tokenizer: Tokenizer, texts: list[str]) -> list[Any]:
    """The whole texts, without special tokens."""
    before = tokenizer.truncation
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        return tokenizer.encode_batch(texts, add_special_tokens=False)
    finally:
        if before is not None:
            tokenizer.enable_truncation(**before)


def _around(text: str, blank: Place | None, keep: int, places: Sequence[tuple[int, int]]) -> str:
    """`keep` tokens of a text: the first, or those with the blank in their middle."""
    first = 0
    if blank is not None:
        inside = [n for n, (start, end) in enumerate(places) if start < blank.end and end > blank.start]
        middle = (inside[0] + inside[-1] + 1) // 2 if inside else 0
        first = min(max(middle - keep // 2, 0), len(places) - keep)
    return text[places[first][0] : places[first + keep - 1][1]]


TASK = MultipleChoice
