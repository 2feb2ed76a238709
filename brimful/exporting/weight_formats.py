"""The formats hf, sentence-transformers and int8: a Hugging Face folder with the weights of the model."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.exporting.format import Format, save_folder

if TYPE_CHECKING:
    from brimful.exporting.exported import Export
    from brimful.exporting.gate import Facts, Gate
    from brimful.exporting.runtimes import Run
    from brimful.hf.tensors import Head
    from brimful.model.encoder import Encoder


class WeightFormat(Format):
    """Weights in float32, which `transformers` reads."""

    runs_with: ClassVar[tuple[str, ...]] = ("transformers",)

    def write(self, folder: Path, export: "Export", gate: "Gate | None") -> float | None:
        from brimful.exporting.gate import check_pairs, check_written
        from brimful.model.heads import PretrainingHead

        save_folder(folder, export, vectors=self.makes_vectors)
        if not importlib.util.find_spec("transformers"):
            warn("transformers is not installed, so the folder was not checked against it")
            return None
        load = lambda: self.run(folder, export)  # noqa: E731
        largest = check_written(export, self.name, load, vectors=self.makes_vectors)
        if isinstance(export.head, PretrainingHead):
            largest = max(largest, check_pairs(export, self.name, folder, export.head.pair))
        return largest

    def run(self, folder: Path, export: "Export") -> "Run":
        from brimful.exporting.transformers_runs import sentence_run, transformers_run

        head, token_types = export.head, export.token_types
        if getattr(head, "linear", False) or (head is None and self.makes_vectors):
            return sentence_run(folder, token_types=token_types)
        return transformers_run(folder, head, token_types=token_types)


class HuggingFace(WeightFormat):
    """The folder that the AutoModel classes of `transformers` load, with the head. How an encoder makes
    vectors has no place there."""

    name = "hf"
    library = "transformers"
    makes_vectors = False

    def head_of(self, head: "Head | None", masked_lm: bool) -> "Head | None":
        if masked_lm:
            raise BrimfulError("--masked-lm exports a masked-LM head as ONNX, and hf keeps it: leave it out")
        if getattr(head, "linear", False):
            raise BrimfulError(
                "transformers has no class for a classifier of the mean on this kind of encoder: export it"
                " with --format sentence-transformers or --format onnx"
            )
        return head


class SentenceTransformers(WeightFormat):
    """An encoder of texts, or one with a classifier of the mean, whose logits are its embeddings, and the
    modules that follow the encoder."""

    name = "sentence-transformers"
    library = "sentence-transformers"

    def head_of(self, head: "Head | None", masked_lm: bool) -> "Head | None":
        head = super().head_of(head, masked_lm)
        if head is None or getattr(head, "linear", False):
            return head
        raise BrimfulError(
            f"sentence-transformers has no module for this {type(head).__name__}: export it with --format hf"
            " or --format onnx"
        )


class EightBits(WeightFormat):
    """The steps by which `brimful predict` rounds, beside weights in float32."""

    name = "int8"
    library = "brimful"
    runs_with = ()
    rounds = True

    def require_machine(self, encoder: "Encoder") -> None:
        from brimful.hf.int8_steps import int8_needs

        need = int8_needs(encoder.device)
        if need is not None:
            raise BrimfulError(
                f"--format int8 is compared with the model where it computes, which needs {need}"
            )

    def judge(self, folder: Path, export: "Export", gate: "Gate") -> "Facts":
        from brimful.hf.int8_steps import write_steps

        facts = gate.judge_int8()
        write_steps(folder, export.encoder)
        return facts

    def describe_file(self) -> str:
        from brimful.hf.int8_steps import FILE

        return (
            f"The model is `{self.file}`, with the weights and the size of the format hf. Eight bits are only"
            f" how Brimful computes when it predicts, on x86 CPUs; the steps for it are in `{FILE}`."
        )
