"""Where an export may be written, and in which format, before its model is loaded."""

from pathlib import Path
from typing import TYPE_CHECKING

from brimful.base.errors import BrimfulError
from brimful.base.seals import CONVERSION, EXPORT
from brimful.base.storage import read_object, require_folder_place
from brimful.exporting.formats import FormatName
from brimful.hf.model_folder import ModelFolder

if TYPE_CHECKING:
    from brimful.exporting.config import ExportConfig


def format_of(config: "ExportConfig", source: ModelFolder) -> FormatName:
    """The format that is asked for, or the usual one of a folder: that of sentence-transformers for a folder
    of theirs that is no run, and for a classifier that `transformers` has no class for."""
    linear = "problem_type" in source.values and source.has_classifier
    of_sentences = linear or (source.modules and source.path == Path(config.run))
    return config.format or ("sentence-transformers" if of_sentences else "hf")


def require_export_place(out: Path, source: ModelFolder, form: FormatName) -> None:
    """Refuse a folder that an export may not replace.

    Raises:
        BrimfulError: it is the model itself, an export in another format or a folder in one, or holds
            something else.
    """
    require_folder_place(out, replaces=("an earlier export", _is_export))
    if out.resolve() == source.path.resolve():
        raise BrimfulError(f"{out} is the model itself; choose another --out")
    if outer := next((each for each in out.resolve().parents if _is_export(each)), None):
        raise BrimfulError(
            f"{out} is in the export {outer}, which a later export replaces; choose another --out"
        )
    known = read_object(out / EXPORT).get("format") if (out / EXPORT).is_file() else None
    if known not in (None, form):
        raise BrimfulError(
            f"{out} holds an export in the format {known}, and this one is {form}: remove it, or choose"
            " another --out"
        )


def _is_export(folder: Path) -> bool:
    """Whether a folder is an export, or what `brimful convert` wrote until 0.1.0."""
    return (folder / EXPORT).is_file() or (folder / CONVERSION).is_file()
