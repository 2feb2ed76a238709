"""What the folder of a task model says beside its weights: its form, its labels, how it reads texts."""

from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

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


_TYPES: dict[str, Any] = {
    OVERLAP: Annotated[int, Meta(ge=0, lt=2**31)] | None,
    TEMPERATURE: Annotated[float, Meta(ge=1e-6, le=1e6)] | None,
    PAIRS: bool | None,
    SETTINGS: dict[str, Any] | None,
}
"""What config.json may hold, in the order of `Saved`, and the settings of the task."""


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


def from_folder(kind: type[F], folder: ModelFolder, names: list[str], *, of_texts: bool) -> tuple[F, Saved]:
    """The form, or the task, of a trained model, and how that reads texts.

    Args:
        names: of the outputs. `labels` of the result are the same ones, perhaps in another order.
        of_texts: whether outputs are of whole texts, which alone have a temperature.

    Raises:
        BrimfulError: a setting is not what it can be, or the labels are not those of the task.
    """
    values = []
    for key, shape in _TYPES.items():
        try:
            values.append(msgspec.convert(folder.values.get(key), shape))
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter: half a surrogate pair
            raise BrimfulError(f"{folder.config_file}: {key} is wrong: {error}") from error
    *known, settings = values
    saved = Saved(*known)
    try:
        found = kind.from_labels(names).with_settings(settings or {})
    except BrimfulError as error:
        raise BrimfulError(f"{folder.config_file}: {error}") from error
    if len(found.labels) != len(names):
        raise BrimfulError(
            f"the model in {folder} has {len(names)} outputs, but {len(found.labels)} labels for"
            f" {found.name}: check id2label in config.json"
        )
    if saved.temperature is not None and not of_texts:
        raise BrimfulError(
            f"{folder.config_file}: {TEMPERATURE} is for classes of whole texts, not for {found.name}"
        )
    return found, saved


def calibrated(answers: Any, temperature: float | None) -> Any:
    """Answers whose probabilities are calibrated, if the temperature is known."""
    return answers if temperature is None else answers / temperature
