"""Read the tokenizer of a Hugging Face folder, with the ids that transformers' AutoTokenizer gives.

`tokenizers` reads a tokenizer.json directly if the class of the folder uses the file unchanged and the file
has all tokens that other files name, as in folders that Brimful writes. Any other folder goes through
AutoTokenizer, once (`auto_tokenizer`). Special tokens in a text are still tokens here; `markers` turns them
into plain text.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import readable
from brimful.base.types import Values
from brimful.corpus.text.auto_tokenizer import TokenizerFacts, read_by_auto_tokenizer
from brimful.corpus.text.folder_files import (
    ADDED,
    CONFIG,
    MAP,
    MAX_IDS,
    TOKENIZER,
    read_model_values,
    read_values,
    require_ids,
)
from brimful.corpus.text.special_ids import Side

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BACKENDS = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""The classes that take a tokenizer.json as it is."""
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_KINDS: dict[str, tuple[type, ...]] = {"auto_map": (dict, list), "tokenizer_class": (str, type(None))}
"""The types of values of tokenizer_config.json, by key."""
_EXTRA_KEYS = ("extra_special_tokens", "additional_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_LARGE_ID = re.compile(rf'": ?\d{{{len(str(MAX_IDS))},}}')
"""Matches an id of a tokenizer.json that may be beyond `MAX_IDS`."""
_PIECES_NAMED = 3


def read_folder(folder: Path, file: Path | None = None) -> tuple["Tokenizer", TokenizerFacts]:
    """Read the tokenizer of a folder, without padding and truncation, and the facts in its files.

    Args:
        file: a file that the user names, read in place of the folder's tokenizer.json.

    Raises:
        BrimfulError: a file is missing or damaged, or the folder needs its own code.
    """
    config = read_values(folder, CONFIG)
    for key, kinds in _KINDS.items():
        if key in config and not isinstance(config[key], kinds):
            raise BrimfulError(
                f"{key} of {folder / CONFIG} is {json.dumps(config[key]):.60}, which is not a valid value;"
                " remove it"
            )
    code = config.get("auto_map")
    if isinstance(code, list) or (isinstance(code, dict) and "AutoTokenizer" in code):
        raise BrimfulError(
            f"{folder / CONFIG} names code of its own for the tokenizer (auto_map), which Brimful never runs;"
            " take a model whose tokenizer needs none"
        )
    if file is not None and file.suffix == ".json" and file.name != "vocab.json":
        return _read_beside(_read_json(file), folder, config)
    if file is None and (folder / TOKENIZER).is_file() and _is_backend(folder, config):
        tokenizer = _read_json(folder / TOKENIZER)
        if _has_all_tokens(folder, config, tokenizer):
            return _read_beside(tokenizer, folder, config)
    text, facts = read_by_auto_tokenizer(folder, file)
    where = file or folder
    tokenizer = _fill_gaps(_parse(text, where))
    model = tokenizer.model
    kind = type(model).__name__
    if kind == "WordPiece" and model.token_to_id(model.unk_token) is None:
        # Encoding a text with an unknown word would fail.
        raise BrimfulError(
            f"{where} lacks {model.unk_token}, its token for unknown words; name another as unk_token in"
            f" {CONFIG}"
        )
    if facts["model"] not in ("", kind):
        warn(
            f"{folder / TOKENIZER} is a {facts['model']} model, and transformers reads it as"
            f" {facts['class_name']}, a {kind} model; to read it as it stands, write"
            f' "tokenizer_class": "{BACKENDS[0]}" into {CONFIG} beside it'
        )
    if "do_lower_case" not in config:
        _warn_of_capitals(tokenizer, folder, where)
    return tokenizer, facts


def _read_json(file: Path) -> "Tokenizer":
    try:
        with readable(file):
            return _parse(file.read_text(encoding="utf-8-sig"), file)
    except UnicodeDecodeError as error:
        raise BrimfulError(f"{file} is not UTF-8; put back the one that belongs here") from error


def _parse(text: str, file: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot parse
        reason = " ".join(str(error).split())
        raise BrimfulError(f"{file} is not a tokenizer.json that `tokenizers` can read ({reason})") from error
    # Asking a tokenizer for its ids takes half as long as reading it, so the text is searched first.
    if _LARGE_ID.search(text):
        require_ids(tokenizer.get_vocab(with_added_tokens=False).values(), file)
    return tokenizer


def _is_backend(folder: Path, config: Values) -> bool:
    """Whether AutoTokenizer takes the tokenizer.json of a folder as it is."""
    if "fast_tokenizer_files" in config:
        return False
    # If no file names a class or a model, transformers takes the tokenizer.json unchanged, too.
    model = read_model_values(folder)
    class_name = config.get("tokenizer_class") or model.get("tokenizer_class")
    return class_name in BACKENDS or (not class_name and not model.get("model_type"))


def _has_all_tokens(folder: Path, config: Values, tokenizer: "Tokenizer") -> bool:
    """Whether a tokenizer.json has all tokens that the files beside it name, with the flags that they set."""
    added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    names = [*read_values(folder, ADDED)]
    for values in (config, read_values(folder, MAP)):
        for key in _EXTRA_KEYS:
            extra = values.get(key) or []
            if not isinstance(extra, dict | list):
                return False  # transformers says what is wrong
            names += map(_name_of, extra.values() if isinstance(extra, dict) else extra)
        for key, value in values.items():
            if not key.endswith("_token") or value is None or isinstance(value, bool):
                continue
            name = _name_of(value)
            if name in added and not added[name].special:
                return False
            # A special token that is a piece need not be added: `markers` makes it special.
            is_named_role = key in _ROLES and isinstance(value, str)
            if not is_named_role or tokenizer.token_to_id(name) is None:
                names.append(name)
    decoder = config.get("added_tokens_decoder") or {}
    if not isinstance(decoder, dict) or not added.keys() >= set(names):
        return False
    for values in decoder.values():
        token = added.get(_name_of(values))
        if token is None or not isinstance(values, dict):
            return False
        flags = {"normalized": not values.get("special")} | values
        if any(bool(flags.get(flag)) != getattr(token, flag) for flag in _FLAGS):
            return False
    return True


def _name_of(token: Any) -> str:
    """Return the name of a token, which may be an object with a `content`."""
    return str(token.get("content") if isinstance(token, dict) else token)


def _read_beside(tokenizer: "Tokenizer", folder: Path, config: Values) -> tuple["Tokenizer", TokenizerFacts]:
    """Return the tokenizer without padding and truncation, and the facts in the files beside it."""
    values = config
    if "added_tokens_decoder" not in config:
        values = config | read_values(folder, MAP)
    roles = {key: _name_of(values[key]) for key in _ROLES if values.get(key)}
    if tokenizer.padding is not None:
        roles.setdefault("pad_token", tokenizer.padding["pad_token"])
    truncation = tokenizer.truncation or {"direction": "right"}
    side = config.get("truncation_side", truncation["direction"].lower())
    if side not in get_args(Side):
        raise BrimfulError(f"truncation_side of {CONFIG} is {json.dumps(side):.60}; write right or left")
    inputs = config.get("model_input_names")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer, TokenizerFacts(
        class_name=BACKENDS[0],
        model=type(tokenizer.model).__name__,
        roles=roles,
        splits=config.get("split_special_tokens") is True,
        side=side,
        token_types=isinstance(inputs, list) and "token_type_ids" in inputs,
    )


def _fill_gaps(tokenizer: "Tokenizer") -> "Tokenizer":
    """Return the tokenizer with a placeholder, which no text contains, for each id without a piece.

    Ids lack a piece where a vocab.txt has an empty line, or a line that occurs again later.
    """
    from tokenizers import Tokenizer

    pieces = tokenizer.get_vocab(with_added_tokens=False)
    added = tokenizer.get_added_tokens_decoder().values()
    names = {index: piece for piece, index in pieces.items() if piece}
    size = max(names, default=-1) + 1
    # Added tokens are numbered from the number of pieces on, so gaps before them must stay.
    if size == len(pieces) or any(token.content not in pieces for token in added):
        return tokenizer
    state = json.loads(tokenizer.to_str())
    if state["model"]["type"] == "Unigram":
        return tokenizer
    state["model"]["vocab"] = {names.get(index, f"[line {index}]"): index for index in range(size)}
    return Tokenizer.from_str(json.dumps(state))


def _warn_of_capitals(tokenizer: "Tokenizer", folder: Path, where: Path) -> None:
    """Warn if a vocabulary has pieces with capitals while texts are read in lower case by default."""
    from tokenizers.normalizers import BertNormalizer

    normalizer = tokenizer.normalizer
    if not isinstance(normalizer, BertNormalizer) or not normalizer.lowercase:
        return
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    capitals = []
    for piece in sorted(pieces.keys() - added, key=pieces.__getitem__):
        if piece != piece.lower() and not re.fullmatch(r"\[.*\]", piece, re.DOTALL):
            capitals.append(piece)
    if capitals:
        warn(
            f"{where}: texts are read in lower case, as transformers does without a setting, so"
            f" {len(capitals):,} of {len(pieces):,} pieces can never occur"
            f" ({', '.join(capitals[:_PIECES_NAMED])}); if the model is cased, write"
            f' {{"do_lower_case": false}} into {folder / CONFIG}'
        )
