"""The tokenizer of a Hugging Face folder, with the ids that transformers' AutoTokenizer gives.

A tokenizer.json of a folder whose class takes it as it is, such as those that Brimful writes, is read by
`tokenizers` if it has all tokens that other files name. Any other folder goes through AutoTokenizer, once
(`auto_tokenizer`). Nothing here knows of markers that are plain
text (`markers`).
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.corpus.text.auto_tokenizer import TokenizerFacts, read_by_auto_tokenizer
from brimful.corpus.text.folder_files import ADDED, CONFIG, MAP, TOKENIZER, read_model_values, read_values
from brimful.corpus.text.special_ids import Side
from brimful.corpus.text.tokenizer_json import MAX_IDS, require_ids

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

BACKENDS = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""The classes that take a tokenizer.json as it is."""
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_KINDS: dict[str, tuple[type, ...]] = {"auto_map": (dict, list), "tokenizer_class": (str, type(None))}
"""What stands under a key of tokenizer_config.json."""
_EXTRA_KEYS = ("extra_special_tokens", "additional_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_LARGE_ID = re.compile(rf'": ?\d{{{len(str(MAX_IDS))},}}')
"""What an id of a tokenizer.json that `MAX_IDS` forbids looks like."""
_MAX_SHOWN_PIECES = 3


def read_folder(folder: Path, given: Path | None = None) -> tuple["Tokenizer", TokenizerFacts]:
    """Read the tokenizer of a folder, without padding and truncation, and what is said of it.

    Args:
        given: a file that the user names, read in place of the folder's tokenizer.json.

    Raises:
        BrimfulError: a file is missing or damaged, or only code of the folder's own could read it.
    """
    config = read_values(folder, CONFIG)
    for key, kinds in _KINDS.items():
        if key in config and not isinstance(config[key], kinds):
            raise BrimfulError(
                f"{key} of {folder / CONFIG} is {json.dumps(config[key]):.60}, which means nothing there;"
                " remove it"
            )
    code = config.get("auto_map")
    if isinstance(code, list) or (isinstance(code, dict) and "AutoTokenizer" in code):
        raise BrimfulError(
            f"{folder / CONFIG} names code of its own for the tokenizer (auto_map), which Brimful never runs;"
            " take a model whose tokenizer needs none"
        )
    if given is not None and given.suffix == ".json" and given.name != "vocab.json":
        return _as_it_is(_read_json(given), folder, config)
    if given is None and (folder / TOKENIZER).is_file() and _is_backend(folder, config):
        tokenizer = _read_json(folder / TOKENIZER)
        if _has_all_tokens(folder, config, tokenizer):
            return _as_it_is(tokenizer, folder, config)
    text, facts = read_by_auto_tokenizer(folder, given)
    return _converted(text, facts, folder, given or folder)


def _read_json(file: Path) -> "Tokenizer":
    try:
        return _parsed(file.read_text(encoding="utf-8-sig"), file)
    except OSError as error:
        raise BrimfulError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _not_readable(file, "it is not UTF-8") from error


def _parsed(text: str, file: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot parse
        raise _not_readable(file, " ".join(str(error).split())) from error
    if _LARGE_ID.search(text):  # to ask for all ids takes half as long as to read them
        require_ids(tokenizer.get_vocab(with_added_tokens=False).values(), file)
    return tokenizer


def _not_readable(file: Path, reason: str) -> BrimfulError:
    return BrimfulError(f"{file} is not a tokenizer.json that `tokenizers` can read ({reason})")


def _is_backend(folder: Path, config: dict[str, Any]) -> bool:
    """Whether AutoTokenizer takes the tokenizer.json of a folder as it is: its class says so, or no file
    names a class or a model."""
    if "fast_tokenizer_files" in config:
        return False
    model = read_model_values(folder)
    class_name = config.get("tokenizer_class") or model.get("tokenizer_class")
    return class_name in BACKENDS or (not class_name and not model.get("model_type"))


def _has_all_tokens(folder: Path, config: dict[str, Any], tokenizer: "Tokenizer") -> bool:
    """Whether a tokenizer.json has all tokens that the files beside it name, and as they say: AutoTokenizer
    adds others. Special tokens that are pieces need nothing more (`markers`)."""
    inside = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    names = [*read_values(folder, ADDED)]
    for values in (config, read_values(folder, MAP)):
        for key in _EXTRA_KEYS:
            extra = values.get(key) or []
            if isinstance(extra, dict):
                extra = list(extra.values())
            elif not isinstance(extra, list):
                return False  # transformers says what is wrong
            names += map(_name_of, extra)
        for key, value in values.items():
            if not key.endswith("_token") or value is None or isinstance(value, bool):
                continue
            name = _name_of(value)
            if name in inside and not inside[name].special:
                return False
            if not (key in _ROLES and isinstance(value, str) and tokenizer.token_to_id(name) is not None):
                names.append(name)
    decoder = config.get("added_tokens_decoder") or {}
    if not isinstance(decoder, dict) or any(name not in inside for name in names):
        return False
    return all(isinstance(v, dict) and _is_same(v, inside.get(_name_of(v))) for v in decoder.values())


def _name_of(token: Any) -> str:
    """The name of a token, which may be an object with a `content`."""
    return str(token.get("content") if isinstance(token, dict) else token)


def _is_same(values: dict[str, Any], token: "AddedToken | None") -> bool:
    usual = {"normalized": not values.get("special")}
    return token is not None and all(
        bool(values.get(flag, usual.get(flag))) == getattr(token, flag) for flag in _FLAGS
    )


def _as_it_is(
    tokenizer: "Tokenizer", folder: Path, config: dict[str, Any]
) -> tuple["Tokenizer", TokenizerFacts]:
    """A tokenizer.json, and what the files beside it say of it."""
    values = config if "added_tokens_decoder" in config else config | read_values(folder, MAP)
    roles = {key: _name_of(values[key]) for key in _ROLES if values.get(key)}
    if tokenizer.padding is not None:
        roles.setdefault("pad_token", tokenizer.padding["pad_token"])
    usual_side = "right" if tokenizer.truncation is None else tokenizer.truncation["direction"].lower()
    side = config.get("truncation_side", usual_side)
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


def _converted(
    text: str, facts: TokenizerFacts, folder: Path, where: Path
) -> tuple["Tokenizer", TokenizerFacts]:
    """What AutoTokenizer made of a folder, with warnings of what it makes in silence."""
    tokenizer = _without_gaps(_parsed(text, where))
    model = tokenizer.model
    kind = type(model).__name__
    unknown = getattr(model, "unk_token", None)
    if kind == "WordPiece" and model.token_to_id(unknown) is None:  # an unknown word is an error there
        raise BrimfulError(
            f"{where} lacks {unknown}, its token for unknown words; name another as unk_token in {CONFIG}"
        )
    if facts["model"] not in ("", kind):
        warn(
            f"{folder / TOKENIZER} is a {facts['model']} model, and transformers reads it as"
            f" {facts['class_name']}, a {kind} model; to read it as it stands, write"
            f' "tokenizer_class": "{BACKENDS[0]}" into {CONFIG} beside it'
        )
    _warn_of_capitals(tokenizer, folder, where)
    return tokenizer, facts


def _without_gaps(tokenizer: "Tokenizer") -> "Tokenizer":
    """The tokenizer with a name that no text has for each id without a piece: those of empty lines, and all
    but the last of equal lines. Where tokens were added, their ids count the pieces, and gaps stay."""
    from tokenizers import Tokenizer

    pieces = tokenizer.get_vocab(with_added_tokens=False)
    added = tokenizer.get_added_tokens_decoder().values()
    last = max((index for piece, index in pieces.items() if piece), default=-1)
    if last + 1 == len(pieces) or any(token.content not in pieces for token in added):
        return tokenizer
    state = json.loads(tokenizer.to_str())
    if state["model"]["type"] == "Unigram":
        return tokenizer
    names = dict.fromkeys(range(last + 1)) | {index: piece for piece, index in pieces.items() if piece}
    state["model"]["vocab"] = {f"[line {index}]" if n is None else n: index for index, n in names.items()}
    return Tokenizer.from_str(json.dumps(state))


def _warn_of_capitals(tokenizer: "Tokenizer", folder: Path, where: Path) -> None:
    """Say that a vocabulary has pieces with capitals while texts are read in lower case, unasked."""
    from tokenizers.normalizers import BertNormalizer

    normalizer = tokenizer.normalizer
    if not isinstance(normalizer, BertNormalizer) or not normalizer.lowercase:
        return
    if "do_lower_case" in read_values(folder, CONFIG):
        return
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    capitals = [
        piece
        for piece in sorted(pieces.keys() - added, key=pieces.__getitem__)
        if piece != piece.lower() and not (piece[0] == "[" and piece[-1] == "]")
    ]
    if capitals:
        warn(
            f"{where}: texts are read in lower case, as transformers does without a setting, so"
            f" {len(capitals):,} of {len(pieces):,} pieces can never occur"
            f" ({', '.join(capitals[:_MAX_SHOWN_PIECES])}); if cased, write"
            f' {{"do_lower_case": false}} into {folder / CONFIG}'
        )
