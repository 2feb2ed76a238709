"""Let transformers' AutoTokenizer read a folder once, and keep the result.

A class of transformers, such as BertTokenizer, rebuilds its pipeline even if there is a tokenizer.json. So
the backend tokenizer and its settings are taken from the class. Since importing transformers takes seconds,
both are kept in Brimful's cache (`base.cache`), under a hash of the folder's tokenizer files and the version
of transformers. Where transformers is missing, the entry of the newest version is read.
"""

import hashlib
import json
import logging
import re
import tempfile
import warnings
from codecs import BOM_UTF8
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from brimful.base.cache import RECORD, VARIABLE, cache_folder, remove_oldest, touch_entry
from brimful.base.config import config_hash
from brimful.base.console import warn
from brimful.base.environment import describe_missing
from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_directory, commit, find_commit, readable
from brimful.corpus.text.folder_files import (
    CONFIG,
    MAP,
    TOKENIZER,
    find_tokenizer_files,
    read_model_values,
    read_values,
    require_ids,
)
from brimful.corpus.text.special_ids import Side

ENTRY_VERSION = 2
_MAX_REASON_CHARACTERS = 200


class TokenizerFacts(TypedDict):
    """Facts about a tokenizer from the files of a folder, or from AutoTokenizer."""

    class_name: str  # the class of the tokenizer
    model: str  # the type of the model in the folder's tokenizer.json; empty without one
    roles: dict[str, str]  # the special tokens by key, such as cls_token
    splits: bool  # whether special tokens in a text are plain text
    side: Side  # the side on which texts are cut
    token_types: bool  # whether a model gets token_type_ids


class _Entry(TypedDict):
    facts: TokenizerFacts


def open_auto_tokenizer(folder: Path) -> Any:
    """Read a folder with AutoTokenizer, without network access, third-party code or screen output.

    Raises:
        Exception: whatever the files of a folder make transformers raise.
    """
    import transformers

    # The level is restored, since the calling program may use the same logger.
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
    """Return the tokenizer.json of AutoTokenizer's backend, and the settings, from the cache if possible.

    Args:
        vocabulary: a vocab.txt or vocab.json that the user names, in place of the folder's tokenizer.json.

    Raises:
        BrimfulError: transformers is missing or cannot read the folder, or its tokenizer has no backend.
    """
    contents = _read_contents(folder, vocabulary)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    key = config_hash({"files": hashes, "tokenizers": version("tokenizers"), "entry": ENTRY_VERSION})
    cache: Path | None = None
    problem: Exception | None = None
    try:
        cache = cache_folder()
    except BrimfulError as error:
        problem = error
    absence = describe_missing(f"the tokenizer of {folder}, which its class builds anew,", "transformers")
    name = f"{key}-*" if absence else f"{key}-{version('transformers')}"
    entry = _read_entry(cache, name)
    if entry is not None:
        return entry
    if absence:
        raise BrimfulError(absence)
    text, facts = _convert(folder, contents)
    if cache is not None:
        try:
            with atomic_directory(cache / name) as temporary:
                (temporary / TOKENIZER).write_text(text, encoding="utf-8")
                commit(temporary / RECORD, [temporary / TOKENIZER], facts=facts)
            remove_oldest(cache)
        except (BrimfulError, OSError) as error:
            # Another process may have made the entry meanwhile.
            if _read_entry(cache, name) is None:
                problem = error
    if problem is not None:
        warn(
            f"the tokenizer that transformers builds for {folder} is not cached, and takes seconds each time"
            f" ({problem}); set {VARIABLE} to a folder that can be written, or to off"
        )
    return text, facts


def _read_contents(folder: Path, vocabulary: Path | None) -> dict[str, bytes]:
    """Return the contents of the files that AutoTokenizer is to read, by name."""
    files = {path.name: path for path in find_tokenizer_files(folder)}
    if vocabulary is not None:
        files.pop(TOKENIZER, None)
        if vocabulary.suffix == ".json":
            files.pop("vocab.txt", None)
            files |= {"vocab.json": vocabulary, "merges.txt": vocabulary.with_name("merges.txt")}
        else:
            files["vocab.txt"] = vocabulary
    contents = {}
    for name, path in files.items():
        with readable(path):
            # Windows editors add a byte order mark, which transformers reads as part of the text.
            contents[name] = path.read_bytes().removeprefix(BOM_UTF8)
        try:
            if path.suffix != ".model":
                contents[name].decode()
        except UnicodeDecodeError as error:
            raise BrimfulError(
                f"{path} is not UTF-8 (byte {error.start:,}); put back the one that belongs here"
            ) from error
    if MAP in contents:
        special = read_values(folder, MAP)
        for value in special.values():
            if isinstance(value, dict):
                value.pop("__type", None)  # transformers would hand it on to `tokenizers`, which complains
        contents[MAP] = json.dumps(special).encode()
    # Of config.json, transformers gets only the keys that name the class.
    model = read_model_values(folder)
    config = {key: model[key] for key in ("model_type", "tokenizer_class") if model.get(key)}
    if not config and TOKENIZER not in files and not read_values(folder, CONFIG).get("tokenizer_class"):
        # As in Google's folders: a vocabulary without a class is BERT's or RoBERTa's.
        config["model_type"] = "roberta" if "vocab.json" in files else ""
        if "vocab.txt" in files:
            config["model_type"] = "bert"
    contents["config.json"] = json.dumps(config, sort_keys=True).encode()
    return contents


def _convert(folder: Path, contents: dict[str, bytes]) -> tuple[str, TokenizerFacts]:
    """Return the tokenizer.json that AutoTokenizer makes of these files, and its settings."""
    model = _check_json(folder, contents)
    if TOKENIZER not in contents and any(name.endswith(".model") for name in contents):
        for module in ("sentencepiece", "google.protobuf"):
            if find_spec(module) is None:
                raise BrimfulError(
                    f"{folder} holds a SentencePiece model, which transformers reads with more packages:"
                    " pip install sentencepiece protobuf"
                )
    tokenizer = _open_contents(folder, contents)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    class_name = type(tokenizer).__name__
    text = None
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
        # A part of the pipeline may be written in Python, such as RoFormer's word splitting. Then
        # `tokenizers` raises a bare Exception.
        with suppress(Exception):
            text = backend.to_str()
    if text is None:
        raise BrimfulError(
            f"{folder} has the tokenizer {class_name}, which is written in Python: transformers has no"
            " tokenizer.json for it, and Brimful reads no other; take a model with a fast tokenizer"
        )
    # A class of transformers whose files are missing makes up a vocabulary.
    files = {file for key, file in tokenizer.vocab_files_names.items() if key != "tokenizer_file"}
    absent = sorted(files - contents.keys())
    if absent and not any(name.startswith("tokenizer.") for name in contents):
        raise BrimfulError(
            f"{folder} has the tokenizer {class_name} and lacks its {' and '.join(absent)}; copy the files of"
            f" the tokenizer there, or name another tokenizer_class in {CONFIG}"
        )
    facts = TokenizerFacts(
        class_name=class_name,
        model=model,
        roles={key: str(name) for key, name in tokenizer.special_tokens_map.items() if isinstance(name, str)},
        splits=tokenizer.split_special_tokens is True,
        side=tokenizer.truncation_side,
        token_types="token_type_ids" in tokenizer.model_input_names,
    )
    return text, facts


def _open_contents(folder: Path, contents: dict[str, bytes]) -> Any:
    """Let AutoTokenizer read a copy of these files."""
    with tempfile.TemporaryDirectory() as copy:
        for name, content in contents.items():
            Path(copy, name).write_bytes(content)
        try:
            return open_auto_tokenizer(Path(copy))
        except ImportError as error:
            reason = str(error).strip().partition("\n")[0][:_MAX_REASON_CHARACTERS]
            raise BrimfulError(
                f"transformers cannot read the tokenizer of {folder} with the packages that are installed"
                f" ({reason}): install what it names, or pip install --upgrade transformers"
            ) from error
        except Exception as error:  # tokenizers and transformers raise errors of many types
            reason = " ".join(str(error).replace(copy, str(folder)).split())[:_MAX_REASON_CHARACTERS]
            if TOKENIZER not in contents and "instantiate the backend" in reason:
                reason = f"its class is unknown to transformers, or needs a {TOKENIZER}, which is missing"
            # Only a ValueError is meant for a user; other errors describe Python internals.
            note = ""
            if isinstance(error, ValueError) and "<class" not in reason:
                note = f" ({reason})"
            raise BrimfulError(
                f"transformers' AutoTokenizer cannot read the tokenizer of {folder}{note}; put back the files"
                f" that belong together, or name its class as tokenizer_class in {CONFIG}"
            ) from error


def _check_json(folder: Path, contents: dict[str, bytes]) -> str:
    """Return the type of the model in a tokenizer.json; an empty text without that file.

    An id far too large is refused, because transformers would count up to it for minutes.
    """
    kind = ""
    for name in (TOKENIZER, "vocab.json"):
        if name not in contents:
            continue
        try:
            pieces = json.loads(contents[name])
        except (ValueError, RecursionError) as error:
            raise BrimfulError(f"{folder / name} is not JSON; put back the one that belongs here") from error
        if name == TOKENIZER and isinstance(pieces, dict):
            model = pieces.get("model")
            if not isinstance(model, dict):
                model = {}  # AutoTokenizer says what is wrong
            pieces, kind = model.get("vocab"), str(model.get("type") or "")
        if isinstance(pieces, dict):
            require_ids((index for index in pieces.values() if type(index) is int), folder / name)
    return kind


def _read_entry(cache: Path | None, pattern: str) -> tuple[str, TokenizerFacts] | None:
    """Return the complete entry that the newest version of transformers made; None without any."""

    def version_of(place: Path) -> list[int]:
        return list(map(int, re.findall(r"\d+", place.name.partition("-")[2])))

    if cache is None:
        return None
    for place in sorted(cache.glob(pattern), key=version_of, reverse=True):
        record = find_commit(place / RECORD, _Entry, verify=True)
        if record is None:
            continue
        with suppress(OSError):  # another process may remove it
            text = (place / TOKENIZER).read_text(encoding="utf-8")
            touch_entry(place)
            return text, record["facts"]
    return None
