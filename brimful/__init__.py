"""Brimful: from raw text to a small, fast, deployed BERT-style encoder.

The verbs of the command line are functions here: `brimful.prepare(paths=["reviews.txt"], out="data")`. Names
are resolved when first used (PEP 562), so `import brimful` is quick and `brimful.corpus` never needs torch.
__init__.pyi tells editors and mypy their types; tests/builders/stub.py writes it.
"""

from typing import Any

from brimful.model import fast_forms

CLASSES = {
    "Encoder": "brimful.hf.text_encoder:TextEncoder",
    "TaskModel": "brimful.tasks.task_model:TaskModel",
    "BrimfulError": "brimful.base.errors:BrimfulError",
    "BrimfulWarning": "brimful.base.errors:BrimfulWarning",
}


def _load_fast_forms() -> dict[str, tuple[fast_forms.FastForm, ...]]:
    from brimful.kernels.forms import FORMS

    return FORMS


fast_forms.load_forms_with(_load_fast_forms)


def __getattr__(name: str) -> Any:
    from brimful.cli.main import VERBS, VERSION, load_name

    if name in CLASSES:
        return load_name(CLASSES[name])
    if name == "__version__":
        return VERSION
    if name == "__all__":
        return [*(verb.replace("-", "_") for verb in VERBS), *CLASSES]
    verb = name.replace("_", "-")
    if verb in VERBS:
        from brimful.cli.functions import make_function

        return make_function(verb)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), "__version__"])
