"""transformers' AutoTokenizer: it reads a folder once, and what it makes of the folder is kept.

A class of transformers, such as BertTokenizer, builds its pipeline anew even from a tokenizer.json. So its
result is asked for: the backend tokenizer and what stands beside it. transformers takes seconds to import,
so the result is kept in Brimful's cache (`base.cache`), under a hash of the folder's tokenizer files and the
version of transformers. Where transformers is missing, the entry of the newest version is read.
"""

import hashlib
import json
import logging
import re
import tempfile
import warnings
from codecs import BOM_UTF8
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from brimful.base.cache import RECORD, VARIABLE, cache_folder, remove_oldest, touch_entry
from brimful.base.config import config_hash
from brimful.base.console import warn
from brimful.base.environment import describe_missing
from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_directory, commit, find_commit
from brimful.corpus.text.folder_files import (
    CONFIG,
    MAP,
    TOKENIZER,
    find_tokenizer_files,
    read_model_values,
    read_values,
)
from brimful.corpus.text.special_ids import Side
from brimful.corpus.text.tokenizer_json import require_ids

ENTRY_VERSION = 2
_MODEL_TYPES = {"vocab.txt": "bert", "vocab.json": "roberta"}
"""The model that a vocabulary belongs to where no file names one, as in Google's folders."""
_MAX_REASON_CHARACTERS = 200


class TokenizerFacts(TypedDict):
    """What the files of a folder, or AutoTokenizer, say of a tokenizer.

    Attributes:
        class_name: of the tokenizer.
        model: the type of the model in the folder's tokenizer.json; empty without one.
        roles: the special tokens by key, such as cls_token.
        splits: whether special tokens in a text are plain text.
        side: on which texts are cut.
        token_types: whether a model gets token_type_ids.
    """

    class_name: str
    model: str
    roles: dict[str, str]
    splits: bool
    side: Side
    token_types: bool


class _Entry(TypedDict):
    facts: TokenizerFacts


def open_auto_tokenizer(folder: Path) -> Any:
    """AutoTokenizer's tokenizer of a folder, without the network, foreign code, or words on the screen.

    Raises:
        Exception: whatever the files of a folder make transformers raise.
    """
    import transformers

    # Its logger is Python's; the level comes back, since the program around us may use it.
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return transformers.AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
    finally:
        logger.setLevel(level)


def read_by_auto_tokenizer(folder: Path, vocabulary: Path | None = None) -> tuple[str, TokenizerFacts]:
    """The tokenizer.json of AutoTokenizer's backend, and what it says beside it; out of the cache if there.

    Args:
        vocabulary: a vocab.txt or vocab.json that the user names, in place of the folder's tokenizer.json.

    Raises:
        BrimfulError: transformers is missing or cannot read the folder, or its tokenizer has no backend.
    """
    contents = _contents(folder, vocabulary)
    names = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    key = config_hash({"files": names, "tokenizers": version("tokenizers"), "entry": ENTRY_VERSION})
    problem: Exception | None = None
    try:
        cache = cache_folder()
    except BrimfulError as error:
        cache, problem = None, error
    if line := describe_missing(f"the tokenizer of {folder}, which its class builds anew,", "transformers"):
        entry = None if cache is None else _newest_entry(cache, key)
        if entry is None:
            raise BrimfulError(line)
        return entry
    key += f"-{version('transformers')}"
    if cache is not None and (entry := _read_entry(cache / key)) is not None:
        return entry
    text, facts = _convert(folder, contents)
    if cache is not None:
        try:
            _write_entry(cache / key, text, facts)
        except (BrimfulError, OSError) as error:
            # Another process may have made the entry meanwhile.
            problem = None if _read_entry(cache / key) else error
    if problem is not None:
        warn(
            f"what transformers makes of the tokenizer of {folder} is not kept, and takes seconds each time"
            f" ({problem}); set {VARIABLE} to a folder that can be written, or to off"
        )
    return text, facts


def _contents(folder: Path, vocabulary: Path | None) -> dict[str, bytes]:
    """The files that AutoTokenizer is to read, by name. A vocabulary whose folder names no model and no class
    is BERT's or RoBERTa's.

    Raises:
        BrimfulError: one of them cannot be read.
    """
    files = {path.name: path for path in find_tokenizer_files(folder)}
    if vocabulary is not None:
        files.pop(TOKENIZER, None)
        files["vocab.json" if vocabulary.suffix == ".json" else "vocab.txt"] = vocabulary
        if vocabulary.suffix == ".json":
            files["merges.txt"] = vocabulary.with_name("merges.txt")
    contents = {}
    for name, path in files.items():
        try:
            # Editors on Windows put a mark first, which transformers takes for a part of the text.
            contents[name] = path.read_bytes().removeprefix(BOM_UTF8)
            if path.suffix != ".model":
                contents[name].decode()
        except OSError as error:
            raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise BrimfulError(
                f"{path} is not UTF-8 (byte {error.start:,}); put back the one that belongs here"
            ) from error
    if MAP in contents:
        special = read_values(folder, MAP)
        for value in special.values():
            if isinstance(value, dict):
                value.pop("__type", None)  # transformers hands it on to `tokenizers`, which complains
        contents[MAP] = json.dumps(special).encode()
    model = read_model_values(folder)
    told = {key: model[key] for key in ("model_type", "tokenizer_class") if model.get(key)}
    if not told and TOKENIZER not in files and not read_values(folder, CONFIG).get("tokenizer_class"):
        model_type = next((kind for name, kind in _MODEL_TYPES.items() if name in files), "")
        told = {"model_type": model_type}
    contents["config.json"] = json.dumps(told, sort_keys=True).encode()
    return contents


def _convert(folder: Path, contents: dict[str, bytes]) -> tuple[str, TokenizerFacts]:
    """Let AutoTokenizer read these files."""
    model = _model_in(folder, contents)
    if TOKENIZER not in contents and any(name.endswith(".model") for name in contents):
        for module in ("sentencepiece", "google.protobuf"):
            if find_spec(module) is None:
                raise BrimfulError(
                    f"{folder} holds a SentencePiece model, which transformers reads with more packages:"
                    " pip install sentencepiece protobuf"
                )
    with tempfile.TemporaryDirectory() as place:
        for name, content in contents.items():
            Path(place, name).write_bytes(content)
        try:
            tokenizer = open_auto_tokenizer(Path(place))
        except ImportError as error:
            words = str(error).strip().partition("\n")[0][:_MAX_REASON_CHARACTERS]
            raise BrimfulError(
                f"transformers cannot read the tokenizer of {folder} with the packages that are installed"
                f" ({words}): install what it names, or pip install --upgrade 'brimful[hf]'"
            ) from error
        except Exception as error:  # tokenizers and transformers raise whatever they like
            words = " ".join(str(error).replace(place, str(folder)).split())[:_MAX_REASON_CHARACTERS]
            if TOKENIZER not in contents and "instantiate the backend" in words:
                words = f"its class is unknown to transformers, or needs a {TOKENIZER}, which is missing"
            # Only a ValueError is meant for a user; other errors speak of Python's objects.
            reason = f" ({words})" if isinstance(error, ValueError) and "<class" not in words else ""
            raise BrimfulError(
                f"transformers' AutoTokenizer cannot read the tokenizer of {folder}{reason}; put back the"
                f" files that belong together, or name its class as tokenizer_class in {CONFIG}"
            ) from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    class_name = type(tokenizer).__name__
    text = None if backend is None else _as_json(backend)
    if text is None:
        raise BrimfulError(
            f"{folder} has the tokenizer {class_name}, which is written in Python: transformers has no"
            " tokenizer.json for it, and Brimful reads no other; take a model with a fast tokenizer"
        )
    _require_vocabulary(folder, tokenizer, contents)
    facts = TokenizerFacts(
        class_name=class_name,
        model=model,
        roles={key: str(name) for key, name in tokenizer.special_tokens_map.items() if isinstance(name, str)},
        splits=tokenizer.split_special_tokens is True,
        side=tokenizer.truncation_side,
        token_types="token_type_ids" in tokenizer.model_input_names,
    )
    return text, facts


def _as_json(backend: Any) -> str | None:
    """The tokenizer.json of a backend tokenizer, without padding and truncation; None where a part of it is
    Python's, as RoFormer's division into words is."""
    backend.no_padding()
    backend.no_truncation()
    try:
        return backend.to_str()
    except Exception:  # tokenizers raises bare Exception
        return None


def _require_vocabulary(folder: Path, tokenizer: Any, contents: dict[str, bytes]) -> None:
    """Refuse a tokenizer whose vocabulary transformers made up, since its files are not there.

    Raises:
        BrimfulError: it is such a tokenizer.
    """
    needed = [name for key, name in tokenizer.vocab_files_names.items() if key != "tokenizer_file"]
    missing = [name for name in needed if name not in contents]
    if missing and TOKENIZER not in contents and not any(name.startswith("tokenizer.") for name in contents):
        raise BrimfulError(
            f"{folder} has the tokenizer {type(tokenizer).__name__} and lacks its {' and '.join(missing)};"
            f" copy the files of the tokenizer there, or name another tokenizer_class in {CONFIG}"
        )


def _model_in(folder: Path, contents: dict[str, bytes]) -> str:
    """The type of the model in a tokenizer.json; empty without one.

    Raises:
        BrimfulError: the file or a vocab.json is not JSON, or has an id that no vocabulary has, up to which
            transformers would count for minutes.
    """
    kind = ""
    for name in (TOKENIZER, "vocab.json"):
        if name not in contents:
            continue
        try:
            values = json.loads(contents[name])
        except (ValueError, RecursionError) as error:
            raise BrimfulError(f"{folder / name} is not JSON; put back the one that belongs here") from error
        if name == TOKENIZER and isinstance(values, dict):
            model = values.get("model")
            values = model.get("vocab") if isinstance(model, dict) else None
            kind = str(model.get("type") or "") if isinstance(model, dict) else ""
        if isinstance(values, dict):
            require_ids((index for index in values.values() if type(index) is int), folder / name)
    return kind


def _write_entry(place: Path, text: str, facts: TokenizerFacts) -> None:
    with atomic_directory(place) as temporary:
        (temporary / TOKENIZER).write_text(text, encoding="utf-8")
        commit(temporary / RECORD, [temporary / TOKENIZER], facts=facts)
    remove_oldest(place.parent)


def _newest_entry(cache: Path, key: str) -> tuple[str, TokenizerFacts] | None:
    """The entry of a folder's files that the newest version of transformers made."""
    numbers = {
        place: [*map(int, re.findall(r"\d+", place.name[len(key) :]))] for place in cache.glob(f"{key}-*")
    }
    for place in sorted(numbers, key=numbers.__getitem__, reverse=True):
        if (entry := _read_entry(place)) is not None:
            return entry
    return None


def _read_entry(place: Path) -> tuple[str, TokenizerFacts] | None:
    """An entry of the cache; None if it is absent, unfinished or damaged."""
    record = find_commit(place / RECORD, _Entry, verify=True)
    if record is None:
        return None
    try:
        text = (place / TOKENIZER).read_text(encoding="utf-8")
    except OSError:  # another process removed it
        return None
    touch_entry(place)
    return text, record["facts"]
