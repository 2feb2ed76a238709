"""The tasks, and which one a model folder holds, and how its model reads texts.

The names of tasks can be read without importing a task. `find_task` and `find_form` import one.
"""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from brimful.base.config import Argument
from brimful.base.errors import BrimfulError, suggest_name
from brimful.base.types import Values
from brimful.hf.model_folder import OVERLAP, PAIRS, SETTINGS, TEMPERATURE, ModelFolder
from brimful.tables.layouts import OWN_LAYOUT, FileLayout, require_task

if TYPE_CHECKING:
    from brimful.tasks.encoded_tables import Encoded
    from brimful.tasks.prediction_form import PredictionForm
    from brimful.tasks.task import Task

TASKS = {
    "classification": "single_label_classification",
    "multi-label": "multi_label_classification",
    "question-answering": "question_answering",
    "regression": "regression",
    "token-classification": "token_classification",
}
"""The tasks, and the `problem_type` of each in config.json."""
PROBLEM_TYPES = tuple(TASKS.values())
DEFAULT_TASK = "classification"
"""The task where neither --task nor a layout names one, as in runs of an earlier version."""
TASKS_WITH_A_LABEL_COLUMN = ("classification", "regression")
TASK_HELP = Argument(
    help=f"What to predict: {' or '.join(TASKS)}. By default the layout's, or classification."
)


def require_task_name(name: str) -> None:
    """Refuse the name of a task that does not exist, with a BrimfulError."""
    if name not in TASKS:
        raise BrimfulError(f"unknown task {name!r}; {suggest_name(name, TASKS)}")


def find_task(name: str) -> type["Task"]:
    """Import the task that `--task` names, with torch. An unknown name is a BrimfulError."""
    require_task_name(name)
    if name == "classification":
        from brimful.tasks.classification import Classification

        return Classification
    if name == "multi-label":
        from brimful.tasks.multi_label import MultiLabel

        return MultiLabel
    if name == "question-answering":
        from brimful.tasks.question_answering import QuestionAnswering

        return QuestionAnswering
    if name == "regression":
        from brimful.tasks.regression import Regression

        return Regression
    from brimful.tasks.token_classification import TokenClassification

    return TokenClassification


def find_form(problem_type: str) -> type["PredictionForm"]:
    """Import the form of predictions of a task, by its problem_type in `PROBLEM_TYPES`, without torch."""
    if problem_type == "question_answering":
        from brimful.tasks.answer_form import Answers

        return Answers
    if problem_type == "token_classification":
        from brimful.tasks.span_form import Spans

        return Spans
    if problem_type == "regression":
        from brimful.tasks.prediction_form import Numbers

        return Numbers
    from brimful.tasks.label_forms import Classes, LabelSets

    return LabelSets if problem_type == "multi_label_classification" else Classes


def choose_task(name: str | None, layout: FileLayout = OWN_LAYOUT) -> type["Task"]:
    """Import the task that `--task` names; without a name the layout's, or `DEFAULT_TASK`.

    Raises:
        BrimfulError: there is no task of that name, or the layout is for another.
    """
    task = find_task(name or layout.task or DEFAULT_TASK)
    require_task(layout, task.name)
    return task


F = TypeVar("F", bound="PredictionForm")


class Saved(NamedTuple):
    """How a task model reads texts and calibrates: attributes of `TaskModel`."""

    overlap: int | None
    temperature: float | None
    pairs: bool | None


_TYPES: Values = {
    OVERLAP: Annotated[int, Meta(ge=0, lt=2**31)] | None,
    TEMPERATURE: Annotated[float, Meta(ge=1e-6, le=1e6)] | None,
    PAIRS: bool | None,
    SETTINGS: Values | None,
}
"""The types of the keys that config.json may hold besides those that `transformers` writes."""


def find_saved_form(folder: ModelFolder, usual: str, outputs: int) -> type["PredictionForm"]:
    """Import the form of the task of a model folder, without torch.

    A model for tokens or questions has its task from its class. For others, `problem_type` in config.json
    decides. Without that key, one output for each text is a regression, and several are the classes of one
    label, as in `transformers`.

    Args:
        usual: the problem_type of models of this class (`hf.model_folder.PROBLEMS`).
        outputs: the number of outputs of the head.

    Raises:
        BrimfulError: no task has the folder's problem_type.
    """
    if usual != "single_label_classification":
        return find_form(usual)
    problem = folder.values.get("problem_type")
    if problem is None:
        problem = usual
        if outputs == 1:
            problem = "regression"
    if problem not in PROBLEM_TYPES:
        raise BrimfulError(
            f"{folder.config_file}: no task has the problem_type {problem!r:.60};"
            f" known: {', '.join(PROBLEM_TYPES)}"
        )
    return find_form(problem)


def open_form(form: type[F], folder: ModelFolder, names: list[str], *, of_texts: bool) -> tuple[F, Saved]:
    """Return the form, or the task, of a trained model, and how the model reads texts.

    Args:
        names: the names of the outputs; `labels` of the result are the same, perhaps in another order.
        of_texts: whether outputs are of whole texts: only these may have a temperature.

    Raises:
        BrimfulError: a setting has a wrong value, or the labels are not labels of the task.
    """
    values: Values = {}
    for key, kind in _TYPES.items():
        try:
            values[key] = msgspec.convert(folder.values.get(key), kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter: half a surrogate pair
            raise BrimfulError(f"{folder.config_file}: {key} is wrong: {error}") from error
    try:
        task = form.from_labels(names).with_settings(values[SETTINGS] or {})
    except BrimfulError as error:
        raise BrimfulError(f"{folder.config_file}: {error}") from error
    if len(task.labels) != len(names):
        raise BrimfulError(
            f"the model in {folder} has {len(names)} outputs, but {len(task.labels)} labels for"
            f" {task.name}: check id2label in config.json"
        )
    if values[TEMPERATURE] is not None and not of_texts:
        raise BrimfulError(
            f"{folder.config_file}: {TEMPERATURE} is for classes of whole texts, not for {task.name}"
        )
    return task, Saved(values[OVERLAP], values[TEMPERATURE], values[PAIRS])


def calibrate(answers: Any, temperature: float | None) -> Any:
    """Return answers whose probabilities are calibrated, if there is a temperature."""
    return answers if temperature is None else answers / temperature


def predict_rows(
    task: "PredictionForm", answers: Any, data: "Encoded", *, scores: bool = False, first: int = 1
) -> list[Values]:
    """Return what `brimful predict` writes for each text: its number `row`, counted from `first`, and the
    task's columns; with scores, the text before them and `scores` behind them."""
    rows, table = task.rows(answers, data), data.table
    values = task.scores(answers).tolist() if scores else []
    for place, row in enumerate(rows):
        numbered: Values = {"row": first + place}
        if scores:
            numbered["text"] = table.texts[place]
            if table.second is not None:
                numbered["text_b"] = table.second[place]
            row["scores"] = dict(zip(task.labels, values[place], strict=True))
        rows[place] = numbered | row
    return rows
