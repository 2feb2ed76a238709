"""Brimful: from raw text to a small, fast, deployed BERT-style encoder.

The verbs of the command line are functions here: `brimful.prepare(paths=["reviews.txt"], out="data")`. Names
are resolved when first used (PEP 562), so `import brimful` is quick and `brimful.corpus` never needs torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "prepare": "brimful.corpus.prepare",
    "inspect": "brimful.inspection",
    "verify": "brimful.verification",
    "pack": "brimful.planning.verb",
    "pretrain": "brimful.objectives.pretrain",
    "finetune": "brimful.objectives.finetune",
    "distil": "brimful.objectives.distil",
    "predict": "brimful.objectives.predict",
    "export": "brimful.exporting",
    "report": "brimful.reporting.verb",
    "demo": "brimful.demonstration.verb",
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
    from brimful.corpus.prepare import prepare
    from brimful.demonstration.verb import demo
    from brimful.errors import BrimfulError
    from brimful.exporting import export
    from brimful.inspection import inspect
    from brimful.nn.encoder import Encoder
    from brimful.objectives.distil import distil
    from brimful.objectives.finetune import finetune
    from brimful.objectives.predict import predict
    from brimful.objectives.pretrain import pretrain
    from brimful.planning.verb import pack
    from brimful.reporting.verb import report
    from brimful.verification import verify


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'brimful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
