"""What a format of exports is: the head that it takes, its folder, how others run it, and its example.

A format is one class, which `formats.FORMATS` lists. Nothing heavy is imported before a
format writes: the command line asks formats what they need before torch is loaded.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brimful.base.errors import BrimfulError
from brimful.base.extras import require
from brimful.base.storage import read_json, write_json
from brimful.corpus.text.sentence_folder import PROMPTS, SETTINGS, transformer_settings

if TYPE_CHECKING:
    from brimful.exporting.exported import Export
    from brimful.exporting.gate import Facts, Gate
    from brimful.exporting.runtimes import Run
    from brimful.hf.tensors import Head
    from brimful.model.encoder import Encoder

_TEMPLATES = Path(__file__).with_name("templates")


class Format:
    """A format.

    Attributes:
        name: what the user calls it.
        library: by which model hubs name what loads it.
        file: the model, in the export's folder, under the name by which others load it.
        packages: modules that write and check it, beyond the core.
        extra: of pyproject.toml, which brings them.
        runs_with: modules that run it on texts, beyond `packages`.
        rounds: whether its runtime may compute in fewer bits than float32, so that texts must show what it
            costs.
        makes_vectors: whether it says how an encoder makes vectors of texts.
        takes_masked_lm: whether it has a place for the scores of a vocabulary, where they are asked for.
    """

    name: ClassVar[str]
    library: ClassVar[str]
    file: ClassVar[str] = "model.safetensors"
    packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    runs_with: ClassVar[tuple[str, ...]] = ()
    rounds: ClassVar[bool] = False
    makes_vectors: ClassVar[bool] = True
    takes_masked_lm: ClassVar[bool] = False

    def require_packages(self) -> None:
        """Check that what the format needs can be imported.

        Raises:
            BrimfulError: it is not installed.
        """
        if self.packages:
            require(f"--format {self.name}", *self.packages, extra=self.extra)

    def require_machine(self, encoder: "Encoder") -> None:
        """Refuse a machine that cannot compute the format.

        Raises:
            BrimfulError: it lacks something.
        """

    def head_of(self, head: "Head | None", masked_lm: bool) -> "Head | None":
        """The head that the format takes along. A masked-LM head stays out, which leaves an encoder of texts,
        unless a user asks for it.

        Raises:
            BrimfulError: the format has no place for the head, or the model has none of the kind asked for.
        """
        from brimful.model.heads import MaskedLMHead

        is_masked_lm = isinstance(head, MaskedLMHead)
        if not masked_lm:
            return None if is_masked_lm else head
        if is_masked_lm and self.takes_masked_lm:
            return head
        why = "the model has none" if self.takes_masked_lm else f"{self.name} has no place for it"
        raise BrimfulError(f"--masked-lm exports a masked-LM head as ONNX, and {why}: leave it out")

    def write(self, folder: Path, export: "Export", gate: "Gate | None") -> float | None:
        """Write the model into an empty folder, and compare its outputs with the model's on random texts.

        Args:
            gate: has the texts to calibrate by.

        Returns:
            the largest absolute difference of an output, before anything is rounded; None if the package that
            reads the folder is not installed.

        Raises:
            BrimfulError: outputs differ, or the folder cannot be read back.
        """
        raise NotImplementedError

    def run(self, folder: Path, export: "Export") -> "Run":
        """The written model, as its users run it."""
        raise NotImplementedError

    def judge(self, folder: Path, export: "Export", gate: "Gate") -> "Facts":
        """What the written model loses on real texts: see `Gate.judge`.

        Raises:
            BrimfulError: it is more than it may lose.
        """
        return gate.judge(self.run(folder, export))

    def describe_file(self) -> str:
        """A sentence of the model card: where the model is, and what its numbers are."""
        return f"The model is `{self.file}` ({self.name})."

    def example(self, export: "Export") -> str:
        """The text of example.py, a program that predicts for the texts of its command line."""
        from brimful.hf.folders import HEADS

        reading = export.reading
        return render(
            f"{self.name.removesuffix('-int8')}.py.j2",
            kind=export.kind,
            reads_two=export.reads_two,
            file=self.file,
            suffix=HEADS[type(export.head)] if export.head else "",
            max_length=export.max_length,
            side=export.side,
            pad=export.special["pad"],
            mask=export.special.get("mask", ("", 0))[0],
            token_types=export.token_types,
            prompt=reading.prompt if reading else "",
            pooling=reading.pooling if reading else "mean",
            values=export.values,
        )


def render(template: str, /, **values: Any) -> str:
    """A file of `templates`, filled in."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # The text is a program or Markdown; nothing in it is HTML to escape.
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)


def save_folder(folder: Path, export: "Export", *, vectors: bool) -> None:
    """Write the model as a Hugging Face folder.

    Args:
        vectors: whether the folder says how an encoder makes vectors of texts.
    """
    from brimful.hf.folders import save_model

    reading = export.reading if vectors else None
    modules = reading.arguments if reading else None
    save_model(folder, export.encoder, export.head, export.labels, modules=modules, **export.settings)
    if reading is None or not export.source.modules:
        return
    # sentence-transformers has more to say: prompts, the similarity, lower case.
    prompts = export.source.path / PROMPTS
    if prompts.is_file():
        shutil.copyfile(prompts, folder / PROMPTS)
    lowers = transformer_settings(export.source.encoder_path).get("do_lower_case")
    if lowers:
        write_json(folder / SETTINGS, read_json(folder / SETTINGS) | {"do_lower_case": lowers})
