"""The format int8: the weights of the format hf, and the steps by which `brimful predict` rounds."""

from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.exporting.exported import Export
from brimful.exporting.format import Format, save_folder

if TYPE_CHECKING:
    from brimful.exporting.text_gate import Facts, TextGate
    from brimful.model.encoder import Encoder


class EightBits(Format):
    """Weights in float32, which Brimful rounds as it computes."""

    name = "int8"
    library = "brimful"
    rounds = True

    def require_machine(self, encoder: "Encoder") -> None:
        from brimful.hf.int8_steps import int8_needs

        need = int8_needs(encoder.device)
        if need is not None:
            raise BrimfulError(
                f"--format int8 is compared with the model where it computes, which needs {need}"
            )

    def write(self, folder: Path, export: Export, gate: "TextGate | None") -> float | None:
        from brimful.exporting.gate import check_written
        from brimful.exporting.transformers_runs import sentence_run, transformers_run

        save_folder(folder, export, vectors=True)
        apart = export.head is None or getattr(export.head, "linear", False)
        run = lambda: sentence_run(folder) if apart else transformers_run(folder, export.head)  # noqa: E731
        return check_written(export, run, folder, self.name)

    def judge(self, folder: Path, export: Export, gate: "TextGate") -> "Facts":
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
