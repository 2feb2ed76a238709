"""The format sentence-transformers: the weights of the format hf, and the modules that follow the encoder."""

from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.exporting.exported import Export
from brimful.exporting.format import Format, save_folder

if TYPE_CHECKING:
    from brimful.exporting.runtimes import Run
    from brimful.exporting.text_gate import TextGate
    from brimful.hf.tensors import Head


class SentenceTransformers(Format):
    """An encoder of texts, or one with a classifier of the mean, whose logits are its embeddings."""

    name = "sentence-transformers"
    library = "sentence-transformers"
    runs_with = ("transformers",)

    def head_of(self, head: "Head | None") -> "Head | None":
        head = super().head_of(head)
        if head is None or getattr(head, "linear", False):
            return head
        raise BrimfulError(
            f"sentence-transformers has no module for this {type(head).__name__}: export it with --format hf"
            " or --format onnx"
        )

    def write(self, folder: Path, export: Export, gate: "TextGate | None") -> float | None:
        from brimful.exporting.gate import check_written
        from brimful.exporting.transformers_runs import sentence_run

        save_folder(folder, export, vectors=True)
        return check_written(export, lambda: sentence_run(folder), folder, self.name)

    def run(self, folder: Path, export: Export) -> "Run":
        from brimful.exporting.transformers_runs import sentence_run

        return sentence_run(folder, token_types=export.token_types)
