"""Brimful: from raw text to a small, fast, deployed BERT-style encoder.

The verbs of the command line are functions here: `brimful.prepare(paths=["reviews.txt"], out="data")`. Names
are resolved when first used (PEP 562), so `import brimful` is quick and `brimful.corpus` never needs torch.
"""

from typing import TYPE_CHECKING, Any

from brimful.lazy import lazy_names

if TYPE_CHECKING:
    from brimful.commands.augment import augment as augment
    from brimful.commands.check import check as check
    from brimful.commands.convert import convert as convert
    from brimful.commands.demo import demo as demo
    from brimful.commands.distil import distil as distil
    from brimful.commands.doctor import doctor as doctor
    from brimful.commands.estimate import estimate as estimate
    from brimful.commands.evaluate import evaluate as evaluate
    from brimful.commands.export import export as export
    from brimful.commands.finetune import finetune as finetune
    from brimful.commands.inspect import inspect as inspect
    from brimful.commands.pack import pack as pack
    from brimful.commands.predict import predict as predict
    from brimful.commands.prepare import prepare as prepare
    from brimful.commands.pretrain import pretrain as pretrain
    from brimful.commands.report import report as report
    from brimful.commands.verify import verify as verify
    from brimful.errors import BrimfulError as BrimfulError
    from brimful.nn.model import Encoder as Encoder
    from brimful.tasks.model import TaskModel as TaskModel

_named, _names, __all__ = lazy_names(
    __name__,
    {
        "prepare": "commands.prepare",
        "inspect": "commands.inspect",
        "verify": "commands.verify",
        "pack": "commands.pack",
        "doctor": "commands.doctor",
        "estimate": "commands.estimate",
        "pretrain": "commands.pretrain",
        "check": "commands.check",
        "finetune": "commands.finetune",
        "evaluate": "commands.evaluate",
        "distil": "commands.distil",
        "augment": "commands.augment",
        "predict": "commands.predict",
        "export": "commands.export",
        "convert": "commands.convert",
        "report": "commands.report",
        "demo": "commands.demo",
        "Encoder": "nn.model",
        "TaskModel": "tasks.model",
        "BrimfulError": "errors",
    },
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from brimful.version import VERSION

        return VERSION
    return _named(name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
