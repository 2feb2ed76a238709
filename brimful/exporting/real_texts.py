"""The second half of the gate: what an export loses on real texts, on the processor that it runs on.

A candidate is anything that gives outputs for examples, whatever its number format. It is compared with the
model in float32, which reads the same examples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key, permutation
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.exporting.instructions import described_instructions
from brimful.hf.text_reading import TextReading
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.precision.formats import InferencePrecision
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import Table
from brimful.tables.table_files import read_file, read_texts
from brimful.tasks.data import divided
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.form import Outputs
from brimful.tasks.judging.comparison import Judged, fingerprint, measure_methods
from brimful.tasks.judging.review import scores_by_label
from brimful.tasks.model import TaskModel

CALIBRATED = 300
"""Texts by which activations get their ranges."""
MOST_COMPARED = 4000
"""Rows that are compared; of more, as many are drawn."""
Candidate = Callable[[Examples], Outputs]
"""Examples -> a head's outputs in the order of the task's labels, or vectors (n, hidden) of length 1."""
Facts = dict[str, Any]


@dataclass(frozen=True)
class RealTexts:
    """Real texts.

    Attributes:
        labelled: whether `data` has targets, so that the metric is known.
        part: which of the run's rows they are: test, dev or train; `given` if the user names the file.
    """

    file: Path
    data: Encoded
    labelled: bool
    part: str = "given"

    def shuffled(self) -> np.ndarray:
        """The numbers of its rows, int64, in an order that is the same on every call."""
        return permutation(len(self.data), derive_key("export", "texts")).astype(np.int64)

    def take(self, rows: np.ndarray) -> "RealTexts":
        """These rows, in the order of the file."""
        return replace(self, data=self.data.take(np.sort(rows)))


@dataclass(frozen=True)
class ComparedModel:
    """The model that an export is compared with, as it is exported.

    Attributes:
        task: the encoder with the head of a task; None: it makes vectors, as `reading` says.
        order: output i of the task is the head's output `order[i]`; None: they are in the same order.
    """

    encoder: Encoder
    task: TaskModel | None
    reading: TextReading | None
    order: list[int] | None = None

    def read(self, path: Path, layout: FileLayout, *, labelled: bool) -> Encoded:
        """The rows of a file; an encoder reads no labels."""
        if self.task is None:
            return self.encode(read_texts(path, layout))
        table, model = read_file(self.task.task, path, labelled=labelled, layout=layout), self.task
        if not labelled:
            return model.encode(table)
        tokenizer = self.encoder.tokenizer
        assert tokenizer is not None
        return model.task.encode(table, tokenizer, model.max_length, model.overlap, labelled=True)

    def encode(self, table: Table) -> Encoded:
        """Examples of texts, without labels."""
        if self.task is not None:
            return self.task.encode(table)
        assert self.encoder.tokenizer is not None
        assert self.reading is not None
        return encode(table, self.encoder.tokenizer, self.reading.max_length, prompt=self.reading.prompt)

    def outputs(self, examples: Examples, precision: InferencePrecision) -> Outputs:
        """Its outputs, packed, in the order of the task's labels; or vectors (n, hidden)."""
        if self.task is None:
            assert self.reading is not None
            pooling, unit = self.reading.pooling, self.reading.unit
            return text_vectors(self.encoder, examples, pooling=pooling, unit=unit, precision=precision)
        outputs = self.task.outputs(examples, precision)
        if self.order is None:
            return outputs
        if isinstance(outputs, Ragged):
            return outputs.map_parts(lambda scores: scores[..., self.order])
        return outputs[..., self.order]


@dataclass(frozen=True)
class RunTables:
    """What the run of a model has read.

    Attributes:
        train, dev, test: tables that are still there.
        held_out: of parts that are rows of train, the rows, int64, from 0.
        layout: of the tables.
    """

    train: Path | None = None
    dev: Path | None = None
    test: Path | None = None
    held_out: Mapping[str, np.ndarray] = field(default_factory=dict)
    layout: FileLayout = OWN_LAYOUT


def find_texts(
    model: ComparedModel, test: str | None, calibrate: str | None, run: RunTables
) -> tuple[RealTexts, RealTexts] | None:
    """Read the texts of the gate: those to compare on, and those to calibrate by; None where there are none.

    Args:
        test, calibrate: files of the user, with the columns of the run's tables.
        run: whose tables a task takes where the user names no file; rows that it held out calibrate nothing.

    Returns:
        at most `MOST_COMPARED` and `CALIBRATED` texts. Where there is no test, those to compare on are others
        of the same file, if it has enough.
    """
    is_task = model.task is not None
    parts: dict[str, RealTexts] = {}
    if is_task and run.train is not None and run.held_out and not (test and calibrate):
        rest = model.read(run.train, run.layout, labelled=True)
        for name, rows in run.held_out.items():
            rest, part = divided(rest, rows, name)
            parts[name] = RealTexts(part.table.path, part, labelled=True, part=name)
        parts["train"] = RealTexts(run.train, rest, labelled=False, part="train")

    def read(path: Path, *, labelled: bool, part: str = "given") -> RealTexts:
        return RealTexts(path, model.read(path, run.layout, labelled=labelled), labelled, part)

    def own(name: str) -> RealTexts | None:
        path = getattr(run, name) if is_task else None
        if name in parts or path is None:
            return parts.get(name)
        return read(path, labelled=name != "train", part=name)

    tests = read(Path(test), labelled=is_task) if test else own("test") or own("dev")
    calibration = read(Path(calibrate), labelled=False) if calibrate else own("train")
    if tests is None and calibration is None:
        return None
    if calibration is None:
        calibration = tests
    assert calibration is not None
    rows = calibration.shuffled()
    if tests is not None:
        compared = tests.take(tests.shuffled()[:MOST_COMPARED])
    else:
        others = rows[CALIBRATED:] if len(rows) >= 2 * CALIBRATED else rows
        compared = calibration.take(others[:MOST_COMPARED])
    return compared, calibration.take(rows[:CALIBRATED])


def compare(task_model: TaskModel | None, texts: RealTexts, before: Candidate, after: Candidate) -> Facts:
    """What changes from one candidate to the other.

    Args:
        task_model: None for encoders, whose vectors are compared.

    Returns:
        `file`, `part`, `texts`, `instructions`, the `loss` that `--most-loss` limits and what it is of
        (`loss_of`: the metric, predictions, or the cosine). Of a task: its name, `task`,
        `max_score_difference`, `equal_predictions` (of a regression `correlation`), and with labels
        `metric`, `before`, `after`, `standard_error` of their paired difference, `by_label`, and the
        `fingerprint` of the rows. Of an
        encoder `mean_cosine` and `least_cosine`.
    """
    data = texts.data
    first, second = before(data.examples), after(data.examples)
    facts: Facts = {
        "file": texts.file.name,
        "part": texts.part,
        "texts": len(data),
        "instructions": described_instructions(),
    }
    for outputs in (first, second):
        values = outputs.values if isinstance(outputs, Ragged) else outputs
        if not np.isfinite(values).all():
            raise BrimfulError("outputs on real texts are NaN or infinite; nothing was written")
    if task_model is None:
        assert isinstance(first, np.ndarray)
        assert isinstance(second, np.ndarray)
        cosines = (first * second).sum(1) / (np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))
        facts |= {"mean_cosine": float(cosines.mean()), "least_cosine": float(cosines.min())}
        return facts | {"loss": 1 - facts["mean_cosine"], "loss_of": "the mean cosine"}
    task = task_model.task
    answers = [task_model.calibrated(task.answers(outputs, data)) for outputs in (first, second)]
    facts["task"] = task.name
    facts["max_score_difference"] = _score_difference(task_model, answers, first, second)
    if task.name == "regression":
        one, other = (np.asarray(each)[:, 0] for each in answers)
        varied = np.ptp(one) > 0 and np.ptp(other) > 0
        facts["correlation"] = float(np.corrcoef(one, other)[0, 1]) if varied else 0.0
        facts |= {"loss": 1 - facts["correlation"], "loss_of": "the correlation of values"}
    else:
        rows = zip(*([_decision(row) for row in task.rows(each, data)] for each in answers), strict=True)
        facts["equal_predictions"] = float(np.mean([one == other for one, other in rows]))
        facts |= {"loss": 1 - facts["equal_predictions"], "loss_of": "the share of equal predictions"}
    return facts | (_measured(task_model, texts, answers) if texts.labelled else {})


def _measured(task_model: TaskModel, texts: RealTexts, answers: list[Any]) -> Facts:
    """The primary metric before and after."""
    task, data = task_model.task, texts.data
    measured = measure_methods([[Judged(task, each)] for each in answers], data)
    metric = task.metrics[0]
    difference, error = measured.difference(1, 0)
    found: Facts = {
        "fingerprint": fingerprint(data.table),
        "metric": metric.name,
        "before": float(measured.values[0]),
        "after": float(measured.values[1]),
        "standard_error": error,
        "loss": 0.0 - difference if metric.best == "highest" else difference,
        "loss_of": metric.title,
    }
    scores = [scores_by_label(task, one, data).get("by_label", []) for one in answers]
    labels = [{each["label"]: each for each in by_label} for by_label in scores]
    by_label = [
        {"label": name, "support": was["support"], "f1_before": was["f1"], "f1_after": labels[1][name]["f1"]}
        for name, was in labels[0].items()
    ]
    return found | ({"by_label": by_label} if by_label else {})


def _score_difference(task_model: TaskModel, answers: list[Any], first: Outputs, second: Outputs) -> float:
    """The largest difference of a probability or value; of answers to questions, of a logit."""
    if isinstance(first, Ragged):
        assert isinstance(second, Ragged)
        values = [first.values, second.values]
        if task_model.task.name == "token-classification":
            values = [softmax(each, axis=-1) for each in values]
    else:
        values = [task_model.task.scores(each) for each in answers]
    return float(np.abs(values[0] - values[1]).max())


_NUMBERS = ("probability", "probabilities", "no_answer_margin", "n_best")


def _decision(value: Any) -> Any:
    """A row of predictions without its numbers."""
    if isinstance(value, dict):
        return {key: _decision(each) for key, each in value.items() if key not in _NUMBERS}
    return [_decision(each) for each in value] if isinstance(value, list) else value


def require_little_loss(facts: Facts, most: float, named: str, why: str = "") -> None:
    """Refuse what loses more than `most`, and say so where the metric is unknown.

    Args:
        named: the export.
        why: a clause that ends the message.

    Raises:
        BrimfulError: it loses more.
    """
    where = f"on {facts['texts']:,} texts of {facts['file']} ({facts['instructions']})"
    if facts["loss"] <= most:
        if "metric" not in facts:
            unknown = "its metric is unknown, since --test names no labelled texts"
            warn(f"{named}: {unknown}; {_said(facts)} {where}")
        return
    raise BrimfulError(
        f"{named}: {_said(facts)} {where}: more is lost than --most-loss {most:g}; nothing was written{why}"
    )


def _said(facts: Facts) -> str:
    if "metric" in facts:
        return (
            f"{facts['loss_of']} goes from {facts['before']:.4f} to {facts['after']:.4f}"
            f" (difference {facts['after'] - facts['before']:+.4f} ± {facts['standard_error']:.4f})"
        )
    return f"{facts['loss_of']} is {1 - facts['loss']:.4f}"
