"""The format hf: the folder that the AutoModel classes of transformers load."""

from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.exporting.exported import Export
from brimful.exporting.format import Format, save_folder

if TYPE_CHECKING:
    from brimful.exporting.runtimes import Run
    from brimful.exporting.text_gate import TextGate
    from brimful.hf.tensors import Head


class HuggingFace(Format):
    """Weights that `transformers` loads, with their head. How an encoder makes vectors has no place there."""

    name = "hf"
    library = "transformers"
    runs_with = ("transformers",)
    makes_vectors = False

    def head_of(self, head: "Head | None") -> "Head | None":
        if getattr(head, "linear", False):
            raise BrimfulError(
                "transformers has no class for a classifier of the mean on this kind of encoder: export it"
                " with --format sentence-transformers or --format onnx"
            )
        return head

    def masked_lm_head_of(self, head: "Head | None") -> "Head":
        raise BrimfulError("--masked-lm exports a masked-LM head as ONNX, and hf keeps it: leave it out")

    def write(self, folder: Path, export: Export, gate: "TextGate | None") -> float | None:
        from brimful.exporting.gate import check_written
        from brimful.exporting.transformers_runs import transformers_run

        save_folder(folder, export, vectors=False)
        load = lambda: transformers_run(folder, export.head)  # noqa: E731
        return check_written(export, load, folder, self.name, vectors=False)

    def run(self, folder: Path, export: Export) -> "Run":
        from brimful.exporting.transformers_runs import transformers_run

        return transformers_run(folder, export.head, token_types=export.token_types)
