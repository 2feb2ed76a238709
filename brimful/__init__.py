"""Brimful: from raw text to a small, fast, deployed BERT-style encoder.

The verbs of the command line are functions here: `brimful.prepare(paths=["reviews.txt"], out="data")`. Names
are resolved when first used (PEP 562), so `import brimful` is quick and `brimful.corpus` never needs torch.
"""

from typing import TYPE_CHECKING, Any

from brimful.base.lazy import lazy_names
from brimful.base.retired import VERBS as RETIRED
from brimful.cli.verbs import VERBS, python_name

if TYPE_CHECKING:
    from brimful.base.errors import BrimfulError as BrimfulError
    from brimful.base.errors import BrimfulWarning as BrimfulWarning
    from brimful.hf.text_encoder import TextEncoder
    from brimful.tasks.model import TaskModel as TaskModel

    Encoder = TextEncoder

_named, _names, __all__ = lazy_names(
    __name__,
    {
        **{name: f"commands.{name}" for name in map(python_name, VERBS)},
        "Encoder": "hf.text_encoder:TextEncoder",
        "TaskModel": "tasks.model",
        "BrimfulError": "base.errors",
        "BrimfulWarning": "base.errors",
    },
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from brimful.version import VERSION

        return VERSION
    if name in RETIRED:
        raise AttributeError(f"brimful.{name} is retired: {RETIRED[name]}")
    return _named(name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
