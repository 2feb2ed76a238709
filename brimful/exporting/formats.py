"""The formats of exports, and where an export in one may be written. Nothing here loads torch."""

from pathlib import Path
from typing import Literal

from brimful.base.errors import BrimfulError
from brimful.base.seals import EXPORT, require_no_own_files
from brimful.base.storage import read_object, require_folder_place
from brimful.exporting.format import Format
from brimful.exporting.graph_formats import Onnx, OnnxInt8, OpenVino, OpenVinoInt8
from brimful.exporting.weight_formats import EightBits, HuggingFace, SentenceTransformers
from brimful.hf.model_folder import ModelFolder

FormatName = Literal["hf", "sentence-transformers", "onnx", "onnx-int8", "openvino", "openvino-int8", "int8"]
FORMATS: dict[FormatName, Format] = {
    "hf": HuggingFace(),
    "sentence-transformers": SentenceTransformers(),
    "int8": EightBits(),
    "onnx": Onnx(),
    "onnx-int8": OnnxInt8(),
    "openvino": OpenVino(),
    "openvino-int8": OpenVinoInt8(),
}


def format_of(name: FormatName | None, source: ModelFolder, run: str) -> Format:
    """The format of that name, or the usual one of a folder: that of sentence-transformers for a folder
    of theirs that is no run, and for a classifier that `transformers` has no class for."""
    linear = "problem_type" in source.values and source.has_classifier
    of_sentences = linear or (source.modules and source.path == Path(run))
    return FORMATS[name or ("sentence-transformers" if of_sentences else "hf")]


def require_export_place(out: Path, source: ModelFolder, form: Format) -> None:
    """Refuse a folder that an export may not replace.

    Raises:
        BrimfulError: it is the model itself, an export in another format or a folder in one, or holds
            something else, such as files of the user.
    """
    require_folder_place(out, replaces=("an earlier export", _is_export))
    if out.resolve() == source.path.resolve():
        raise BrimfulError(f"{out} is the model itself; choose another --out")
    if outer := next((each for each in out.resolve().parents if _is_export(each)), None):
        raise BrimfulError(
            f"{out} is in the export {outer}, which a later export replaces; choose another --out"
        )
    known = read_object(out / EXPORT).get("format") if (out / EXPORT).is_file() else None
    if known not in (None, form.name):
        raise BrimfulError(
            f"{out} holds an export in the format {known}, and this one is {form.name}: remove it, or choose"
            " another --out"
        )
    require_no_own_files(out / EXPORT)


def _is_export(folder: Path) -> bool:
    return (folder / EXPORT).is_file()
