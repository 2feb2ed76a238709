"""What the folder of a task model says beside its weights: its form, its labels, how it reads texts."""

from typing import Any, NamedTuple, TypeVar

from brimful.base.errors import BrimfulError
from brimful.hf.model_folder import OVERLAP, PAIRS, SETTINGS, TEMPERATURE, ModelFolder
from brimful.tasks import registry
from brimful.tasks.form import PredictionForm

F = TypeVar("F", bound=PredictionForm)


class Saved(NamedTuple):
    """How a task model reads texts and calibrates: attributes of `TaskModel`."""

    overlap: int | None
    temperature: float | None
    pairs: bool | None


def saved_form(folder: ModelFolder, usual: str, outputs: int) -> type[PredictionForm]:
    """The form of the task of a model folder, without torch.

    It follows from config.json: from `problem_type`; without it, one output for each text is a regression and
    several are the classes of one label, as in `transformers`.

    Args:
        usual: the problem_type of models of this class (`hf.model_folder.PROBLEMS`).
        outputs: how many the head has.

    Raises:
        BrimfulError: no task has the folder's problem_type.
    """
    single = usual == "single_label_classification"
    problem = folder.values.get("problem_type") if single else None
    if problem is None:
        problem = "regression" if single and outputs == 1 else usual
    if problem not in registry.PROBLEM_TYPES:
        raise BrimfulError(
            f"{folder.config_file}: no task has the problem_type {problem!r:.60};"
            f" known: {', '.join(registry.PROBLEM_TYPES)}"
        )
    return registry.find_form(problem)


def from_folder(kind: type[F], folder: ModelFolder, names: list[str]) -> F:
    """The form, or the task, of a trained model.

    Args:
        names: of the outputs. `labels` of the result are the same ones, perhaps in another order.

    Raises:
        BrimfulError: the folder's settings are not those of the task, or its labels are other ones.
    """
    settings = folder.values.get(SETTINGS) or {}
    if not isinstance(settings, dict):
        raise BrimfulError(f"{folder.config_file}: {SETTINGS} is not an object")
    try:
        found = kind.from_labels(names).with_settings(settings)
    except BrimfulError as error:
        raise BrimfulError(f"{folder.config_file}: {error}") from error
    if len(found.labels) != len(names):
        raise BrimfulError(
            f"the model in {folder} has {len(names)} outputs, but {len(found.labels)} labels for"
            f" {found.name}: check id2label in config.json"
        )
    return found


def saved_settings(folder: ModelFolder, task: PredictionForm, *, of_texts: bool) -> Saved:
    """How a model reads texts and calibrates.

    Args:
        of_texts: whether outputs are of whole texts, which alone have a temperature.

    Raises:
        BrimfulError: a setting is not what it can be.
    """
    where = folder.config_file
    overlap, temperature, pairs = (folder.values.get(key) for key in (OVERLAP, TEMPERATURE, PAIRS))
    if overlap is not None and not (type(overlap) is int and 0 <= overlap < 2**31):
        raise BrimfulError(f"{where}: {OVERLAP} is not a number of tokens")
    if temperature is not None and not (type(temperature) in (int, float) and 1e-6 <= temperature <= 1e6):
        raise BrimfulError(f"{where}: {TEMPERATURE} is not a number from 1e-6 to 1e6")
    if pairs is not None and type(pairs) is not bool:
        raise BrimfulError(f"{where}: {PAIRS} is neither true nor false")
    if temperature is not None and not of_texts:
        raise BrimfulError(f"{where}: {TEMPERATURE} is for classes of whole texts, not for {task.name}")
    return Saved(overlap, temperature, pairs)


def calibrated(answers: Any, temperature: float | None) -> Any:
    """Answers whose probabilities are calibrated, if the temperature is known."""
    return answers if temperature is None else answers / temperature
