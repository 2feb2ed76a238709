"""Which tasks there are. Names are known without an import; `find_task` and `find_form` import one task."""

from typing import TYPE_CHECKING

from brimful.base.config import Argument
from brimful.base.errors import BrimfulError, nearest
from brimful.tables.layouts import OWN_LAYOUT, FileLayout, require_task

if TYPE_CHECKING:
    from brimful.tasks.form import PredictionForm
    from brimful.tasks.task import Task

TASKS = {
    "classification": "single_label_classification",
    "multi-label": "multi_label_classification",
    "question-answering": "question_answering",
    "regression": "regression",
    "token-classification": "token_classification",
}
"""The tasks, and what config.json calls each."""
PROBLEM_TYPES = tuple(TASKS.values())
DEFAULT_TASK = "classification"
"""The task where neither --task nor a layout names one, and of runs of an earlier version."""
TASKS_WITH_A_LABEL_COLUMN = ("classification", "regression")
TASK_HELP = Argument(
    help=f"What to predict: {' or '.join(TASKS)}. By default the layout's, or classification."
)


def require_task_name(name: str) -> None:
    """
    Raises:
        BrimfulError: there is no task of that name.
    """
    if name not in TASKS:
        raise BrimfulError(f"unknown task {name!r}; {nearest(name, TASKS)}")


def find_task(name: str) -> type["Task"]:
    """The task that `--task` names, imported with torch.

    Raises:
        BrimfulError: there is no task of that name.
    """
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
    """The form of predictions of a task, imported without torch.

    Args:
        problem_type: one of `PROBLEM_TYPES`.
    """
    if problem_type == "multi_label_classification":
        from brimful.tasks.label_set_form import LabelSets

        return LabelSets
    if problem_type == "question_answering":
        from brimful.tasks.answer_form import Answers

        return Answers
    if problem_type == "token_classification":
        from brimful.tasks.span_form import Spans

        return Spans
    from brimful.tasks.form import Classes, Numbers

    return Numbers if problem_type == "regression" else Classes


def task_of(name: str | None, layout: FileLayout = OWN_LAYOUT) -> type["Task"]:
    """The task that `--task` names; without a name that of the layout, or `DEFAULT_TASK`.

    Raises:
        BrimfulError: there is no task of that name, or the layout is for another.
    """
    kind = find_task(name or layout.task or DEFAULT_TASK)
    require_task(layout, kind.name)
    return kind
