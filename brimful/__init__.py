"""Brimful: from raw text to a small, fast, deployed BERT-style encoder.

The verbs of the command line are functions here: `brimful.prepare(paths=["reviews.txt"], out="data")`. Names
are resolved when first used (PEP 562), so `import brimful` is quick and `brimful.corpus` never needs torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "prepare": "brimful.commands.prepare",
    "inspect": "brimful.commands.inspect",
    "verify": "brimful.commands.verify",
    "pack": "brimful.commands.pack",
    "pretrain": "brimful.commands.pretrain",
    "finetune": "brimful.commands.finetune",
    "distil": "brimful.commands.distil",
    "predict": "brimful.commands.predict",
    "export": "brimful.commands.export",
    "report": "brimful.commands.report",
    "demo": "brimful.commands.demo",
    "Encoder": "brimful.nn.encoder",
    "BrimfulError": "brimful.errors",
}

__all__ = [  # noqa: RUF022 (in the order of the pipeline)
    "prepare",
    "inspect",
    "verify",
    "pack",
    "pretrain",
    "finetune",
    "distil",
    "predict",
    "export",
    "report",
    "demo",
    "Encoder",
    "BrimfulError",
]

if TYPE_CHECKING:
    from brimful.commands.demo import demo
    from brimful.commands.distil import distil
    from brimful.commands.export import export
    from brimful.commands.finetune import finetune
    from brimful.commands.inspect import inspect
    from brimful.commands.pack import pack
    from brimful.commands.predict import predict
    from brimful.commands.prepare import prepare
    from brimful.commands.pretrain import pretrain
    from brimful.commands.report import report
    from brimful.commands.verify import verify
    from brimful.errors import BrimfulError
    from brimful.nn.encoder import Encoder


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'brimful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
