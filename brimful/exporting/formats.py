"""The formats of exports: the head that each takes, its folder, how others run it, and its example.

A format is one class, which `FORMATS` lists. Nothing heavy is imported before a format writes: the command
line asks formats what they need before torch is loaded.
"""

import importlib.util
import logging
import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from brimful.base.console import warn
from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError
from brimful.base.seals import EXPORT, PAGES
from brimful.base.storage import (
    LOCK,
    crc32,
    read_json,
    read_object,
    read_record,
    require_folder_place,
    write_json,
)
from brimful.corpus.text.folder_files import PROMPTS, SETTINGS, read_transformer_settings
from brimful.exporting.padded_batches import GraphSession, Run
from brimful.hf.model_folder import INTEGER_WEIGHTS, WEIGHTS, ModelFolder

if TYPE_CHECKING:
    from brimful.exporting.exported_model import Export
    from brimful.exporting.gate import Facts, Gate
    from brimful.hf.tensor_names import Head
    from brimful.model.encoder import Encoder

DESCRIPTION_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
"""Files of a folder of weights that stay beside a graph without vectors."""
_TEMPLATES = Path(__file__).with_name("templates")


class Format:
    """A format.

    Attributes:
        name: its name in `--format`.
        library: the library that loads it, as model hubs call it.
        file: the model, in the export's folder, under the name by which others load it.
        packages: modules that write and check it, beyond the core.
        runs_with: modules that run it on texts, beyond `packages`.
        rounds: whether its runtime may compute in fewer bits than float32, so that texts must show the loss.
        makes_vectors: whether it says how an encoder makes vectors of texts.
    """

    name: str
    library: str
    file = "model.safetensors"
    packages: tuple[str, ...] = ()
    runs_with: tuple[str, ...] = ()
    rounds = False
    makes_vectors = True

    def require_packages(self) -> None:
        """Check that what the format needs can be imported.

        Raises:
            BrimfulError: it is not installed.
        """
        require_packages(f"--format {self.name}", *self.packages)

    def require_machine(self, encoder: "Encoder") -> None:
        """Refuse a machine that cannot compute the format.

        Raises:
            BrimfulError: it lacks something.
        """

    def head_of(self, head: "Head | None") -> "Head | None":
        """Return the head that is exported. A masked-LM head stays out, which leaves an encoder of texts.

        Raises:
            BrimfulError: the format has no place for the head.
        """
        from brimful.model.heads import MaskedLMHead

        return None if isinstance(head, MaskedLMHead) else head

    def write(self, folder: Path, export: "Export") -> float | None:
        """Write the model into an empty folder, and compare its outputs with the model's on random texts.

        Returns:
            The largest absolute difference of an output, before rounding; None if the package that reads the
            folder is not installed.

        Raises:
            BrimfulError: outputs differ, or the folder cannot be read back.
        """
        raise NotImplementedError

    def run(self, folder: Path, export: "Export") -> Run:
        """Open the written model as its users run it."""
        raise NotImplementedError

    def judge(self, folder: Path, export: "Export", gate: "Gate") -> "Facts":
        """Measure the loss of the written model on real texts: see `Gate.judge`.

        Raises:
            BrimfulError: it is more than it may lose.
        """
        return gate.judge(self.run(folder, export))

    def describe_file(self) -> str:
        """Return a sentence of the model card on the file of the model and its numbers."""
        return f"The model is `{self.file}` ({self.name})."

    def example(self, export: "Export") -> str:
        """Return the text of example.py, a program that predicts for the texts of its command line."""
        from brimful.hf.folders import HEADS

        suffix = HEADS[type(export.head)] if export.head else ""
        name = self.name.removesuffix("-int8")
        return render(f"{name}.py.j2", export=export, file=self.file, suffix=suffix)


def render(template: str, /, **values: Any) -> str:
    """Fill in a file of `templates`."""
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

    modules = None
    if vectors and export.reading is not None:
        modules = export.reading.arguments
    save_model(folder, export.encoder, export.head, export.labels, modules=modules, **export.settings)
    if modules is None or not export.source.modules:
        return
    # More settings of sentence-transformers: prompts, the similarity, lower case.
    prompts = export.source.path / PROMPTS
    if prompts.is_file():
        shutil.copyfile(prompts, folder / PROMPTS)
    lowers = read_transformer_settings(export.source.encoder_path).get("do_lower_case")
    if lowers:
        write_json(folder / SETTINGS, read_json(folder / SETTINGS) | {"do_lower_case": lowers})


class WeightFormat(Format):
    """Weights in float32, which `transformers` reads."""

    runs_with: tuple[str, ...] = ("transformers",)

    def write(self, folder: Path, export: "Export") -> float | None:
        from brimful.exporting.gate import check_written

        save_folder(folder, export, vectors=self.makes_vectors)
        if not importlib.util.find_spec("transformers"):
            warn("transformers is not installed, so the folder was not checked against it")
            return None
        return check_written(export, self.name, partial(self.run, folder, export), vectors=self.makes_vectors)

    def run(self, folder: Path, export: "Export") -> Run:
        from brimful.exporting.padded_model import sentence_run, transformers_run

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

    def head_of(self, head: "Head | None") -> "Head | None":
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

    def head_of(self, head: "Head | None") -> "Head | None":
        head = super().head_of(head)
        if head is None or getattr(head, "linear", False):
            return head
        raise BrimfulError(
            f"sentence-transformers has no module for this {type(head).__name__}: export it with --format hf"
            " or --format onnx"
        )


class EightBits(WeightFormat):
    """The encoder's matrices in eight bits, and the steps by which `brimful predict` rounds their inputs."""

    name = "int8"
    library = "brimful"
    file = INTEGER_WEIGHTS
    runs_with = ()
    rounds = True

    def require_machine(self, encoder: "Encoder") -> None:
        from brimful.hf.int8_steps import lacks_for_int8

        need = lacks_for_int8(encoder.device)
        if need is not None:
            raise BrimfulError(
                f"--format int8 is compared with the model where it computes, which needs {need}"
            )

    def judge(self, folder: Path, export: "Export", gate: "Gate") -> "Facts":
        from safetensors.torch import load_file

        floats = load_file(folder / WEIGHTS[0])
        (folder / WEIGHTS[0]).unlink()
        return gate.judge_int8(folder, floats)

    def describe_file(self) -> str:
        from brimful.hf.int8_steps import FILE

        return (
            f"The model is `{self.file}`: the encoder's matrices in eight bits, with a scale for each row."
            f" On x86 CPUs Brimful also computes in eight bits, by the steps in `{FILE}`."
        )


class Onnx(Format):
    """The graph in float32, without weights beside it, which onnxruntime runs."""

    name = "onnx"
    library = "onnx"
    file = "onnx/model.onnx"
    packages = ("onnx", "onnxscript", "onnxruntime")

    def write(self, folder: Path, export: "Export") -> float:
        from brimful.exporting.gate import check_written
        from brimful.exporting.padded_model import write_onnx

        vectors = export.reading is not None  # their files say where texts are cut
        save_folder(folder, export, vectors=True)
        for path in folder.iterdir():
            if path.is_dir() and not vectors:
                shutil.rmtree(path)
            elif path.name == "model.safetensors" or not (vectors or path.name in DESCRIPTION_FILES):
                path.unlink()
        traced = folder / "traced" / "model.onnx"
        write_onnx(traced, export)
        largest = check_written(export, self.name, lambda: GraphSession(traced).run)
        self.convert(traced, folder / self.file, export)  # only now, so that rounding is not compared
        shutil.rmtree(traced.parent, ignore_errors=True)
        return largest

    def run(self, folder: Path, export: "Export") -> Run:
        return GraphSession(folder / self.file).run

    def convert(self, traced: Path, out: Path, export: "Export") -> None:
        """Write the traced graph, which is not needed afterwards, as the format's."""
        # The folder comes along: the weights of a large graph are in a file beside it.
        traced.parent.rename(out.parent)


class OnnxInt8(Onnx):
    """The same with matrix products in eight bits: weights by channel, and their inputs, by tensor, when they
    are computed; embeddings by row. Without instructions that sum four products, weights of products have
    seven bits, so that no sum saturates."""

    name = "onnx-int8"
    file = "onnx/model_quantized.onnx"
    rounds = True

    def convert(self, traced: Path, out: Path, export: "Export") -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        from brimful.exporting.gate import DOT_PRODUCT_SETS, list_instruction_sets
        from brimful.exporting.padded_model import gather_rounded, write_onnx
        from brimful.model.int8_rounding import Steps, round_weights

        shutil.rmtree(traced.parent)
        embedding = export.encoder.embedding
        rounded = round_weights(embedding.weight.detach(), Steps(1.0, 0))
        with embedding.register_forward_hook(partial(gather_rounded, *rounded)):
            write_onnx(traced, export)
        out.parent.mkdir(parents=True, exist_ok=True)
        level = logging.getLogger().level
        logging.getLogger().setLevel(logging.ERROR)  # it recommends a preprocessing that changes nothing here
        try:
            quantize_dynamic(
                traced,
                out,
                op_types_to_quantize=["MatMul", "Gemm"],
                per_channel=True,
                reduce_range=not set(DOT_PRODUCT_SETS) & set(list_instruction_sets()),
                weight_type=QuantType.QInt8,
                use_external_data_format=traced.with_name(f"{traced.name}.data").is_file(),
            )
        finally:
            logging.getLogger().setLevel(level)


FormatName = Literal["hf", "sentence-transformers", "onnx", "onnx-int8", "int8"]
FORMATS: dict[FormatName, Format] = {
    "hf": HuggingFace(),
    "sentence-transformers": SentenceTransformers(),
    "int8": EightBits(),
    "onnx": Onnx(),
    "onnx-int8": OnnxInt8(),
}


def format_of(name: FormatName | None, source: ModelFolder, run: str) -> Format:
    """Return the format of that name, or the usual one of a folder: sentence-transformers for folders of its
    own that are not runs, and for a classifier that `transformers` has no class for; else hf."""
    if name is not None:
        return FORMATS[name]
    is_linear = "problem_type" in source.values and source.has_classifier
    is_theirs = bool(source.modules) and source.path == Path(run)
    return FORMATS["sentence-transformers" if is_linear or is_theirs else "hf"]


def require_replaceable(out: Path | str) -> None:
    """Refuse a folder that holds something other than an export."""
    require_folder_place(Path(out), replaces=("an earlier export", _is_export))


def require_export_place(out: Path, source: ModelFolder, form: Format) -> None:
    """Refuse a folder that an export may not replace.

    Raises:
        BrimfulError: it is the model itself, an export in another format or a folder in one, or holds
            something else, such as files of the user.
    """
    require_replaceable(out)
    if out.resolve() == source.path.resolve():
        raise BrimfulError(f"{out} is the model itself; choose another --out")
    for outer in out.resolve().parents:
        if _is_export(outer):
            raise BrimfulError(
                f"{out} is in the export {outer}, which a later export replaces; choose another --out"
            )
    if _is_export(out):
        old_format = read_object(out / EXPORT).get("format")
        if old_format not in (None, form.name):
            raise BrimfulError(
                f"{out} holds an export in the format {old_format}, and this one is {form.name}: remove it,"
                " or choose another --out"
            )
    require_no_own_files(out / EXPORT)  # pages that the user has edited, too


def _is_export(folder: Path) -> bool:
    return (folder / EXPORT).is_file()


def require_no_own_files(record: Path) -> None:
    """Refuse to replace a folder that holds files of its user.

    They are the files and links that its commit record does not list, and pages that were edited since.

    Raises:
        BrimfulError: there are such files; or the record is damaged, so that its list of files is lost.
    """
    if not record.is_file():
        return
    folder = record.parent
    content = read_record(record, remedy="choose another folder")
    listed = {record.name, LOCK, *map(os.path.normpath, content["files"])}
    for name, crc in content.get(PAGES, {}).items():
        if (folder / name).is_file() and crc32(folder / name) == crc:
            listed.add(name)
    # rglob does not follow links, and a link is the user's own even if it leads nowhere.
    own = []
    for path in sorted(folder.rglob("*")):
        name = os.path.relpath(path, folder)
        if (path.is_symlink() or path.is_file()) and name not in listed:
            own.append(name)
    if own:
        others = f" and {len(own) - 1:,} more" if len(own) > 1 else ""
        raise BrimfulError(
            f"{folder} has {own[0]}{others}, of your own or edited since {record.name}: move it away, or"
            " choose another folder"
        )
