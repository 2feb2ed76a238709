"""Brimful: from raw text to a small, fast, deployed BERT-style encoder.

The verbs of the command line are functions here: `brimful.prepare(paths=["reviews.txt"], out="data")`. Names
are resolved when first used (PEP 562), so `import brimful` is quick and `brimful.corpus` never needs torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brimful.base.errors import BrimfulError as BrimfulError
    from brimful.base.errors import BrimfulWarning as BrimfulWarning
    from brimful.hf.text_encoder import TextEncoder
    from brimful.tasks.task_model import TaskModel as TaskModel

    Encoder = TextEncoder


def __getattr__(name: str) -> Any:
    if name == "Encoder":
        from brimful.hf.text_encoder import TextEncoder

        return TextEncoder
    if name == "TaskModel":
        from brimful.tasks.task_model import TaskModel

        return TaskModel
    if name in ("BrimfulError", "BrimfulWarning"):
        from brimful.base import errors

        return getattr(errors, name)
    if name == "__version__":
        from brimful.version import VERSION

        return VERSION
    from brimful.cli.main import VERBS, load_verb

    if name == "__all__":
        verbs = [verb.replace("-", "_") for verb in VERBS]
        return [*verbs, "Encoder", "TaskModel", "BrimfulError", "BrimfulWarning"]
    if (verb := name.replace("_", "-")) in VERBS:
        return load_verb(verb)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), "__version__"])
