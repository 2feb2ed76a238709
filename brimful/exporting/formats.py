"""The formats of exports: where each has its model, and what writes it."""

from dataclasses import dataclass
from typing import Literal

from brimful.extras import require

FormatName = Literal["hf", "sentence-transformers", "onnx"]


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        file: the model, in the export's folder, under the name by which others load it.
        packages: modules that write and check it, beyond the core.
        extra: of pyproject.toml, which brings them.
        graph: whether it is one graph, which `PaddedModel` is traced to, and not weights.
    """

    file: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    graph: bool = True


FORMATS: dict[FormatName, Format] = {
    "hf": Format("model.safetensors", graph=False),
    "sentence-transformers": Format("model.safetensors", graph=False),
    "onnx": Format("onnx/model.onnx", ("onnx", "onnxscript", "onnxruntime"), "onnx"),
}


def require_packages(name: FormatName) -> None:
    """Check that what a format needs can be imported.

    Raises:
        BrimfulError: it is not installed.
    """
    form = FORMATS[name]
    if form.packages:
        require(f"--format {name}", *form.packages, extra=form.extra)
