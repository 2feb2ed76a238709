"""The special tokens of a tokenizer: which piece has which role.

A tokenizer.json does not say which token has which role, and reading a large one takes long. So the
settings in the files beside it are remembered for each tokenizer that is loaded (`TokenizerSettings`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

from brimful.base.errors import BrimfulError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens."""

    pad: int
    unk: int | None  # None where the tokenizer can spell everything
    cls: int
    sep: int
    mask: int | None  # None where the vocabulary has no mask token


Side = Literal["right", "left"]


@dataclass(frozen=True)
class TokenizerSettings:
    """The settings in the files beside a tokenizer.json."""

    # Names of special tokens by role; with an empty name, the tokenizer has no token of that role.
    roles: Mapping[str, str] = field(default_factory=dict)
    side: Side = "right"  # the side on which a text that is too long loses tokens
    token_types: bool = False  # whether a model gets token types
    owner: str = field(default="the tokenizer", compare=False)  # its name in messages


TOKEN_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
"""The usual names of special tokens, by role, where no file names them."""
CONFIG_KEYS = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "cls": ("cls_token", "bos_token"),
    "sep": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
"""The keys of tokenizer_config.json and special_tokens_map.json, by the role of the token."""
_settings: "WeakKeyDictionary[Tokenizer, TokenizerSettings]" = WeakKeyDictionary()
_unknown_ids: "WeakKeyDictionary[Tokenizer, int]" = WeakKeyDictionary()


def special_tokens(tokenizer: "Tokenizer") -> dict[str, tuple[str, int]]:
    """Return the names and ids of the special tokens that the vocabulary has, by role.

    Raises:
        BrimfulError: a special token that an encoder needs is missing.
    """
    tokens = {}
    for role in TOKEN_NAMES:
        name = token_name(tokenizer, role)
        index = tokenizer.token_to_id(name or "")
        if name and index is not None:
            tokens[role] = (name, index)
        elif role in ("pad", "cls", "sep"):
            raise _missing(tokenizer, role)
    return tokens


def token_name(tokenizer: "Tokenizer", role: str) -> str | None:
    """Return the name of a special token that the vocabulary has, or None.

    The files beside the tokenizer name the token; otherwise BERT's name ([CLS]) or RoBERTa's (<s>) is tried.
    """
    roles = settings_of(tokenizer).roles
    for name in [roles[role]] if role in roles else TOKEN_NAMES[role]:
        if name and tokenizer.token_to_id(name) is not None:
            return name
    return None


def settings_of(tokenizer: "Tokenizer") -> TokenizerSettings:
    """Return the settings beside a tokenizer; the defaults for one that comes from no folder."""
    return _settings.get(tokenizer, TokenizerSettings())


def remember_settings(tokenizer: "Tokenizer", settings: TokenizerSettings) -> None:
    """Keep the settings beside a tokenizer for `settings_of`."""
    _settings[tokenizer] = settings


def truncation_side(tokenizer: "Tokenizer") -> Side:
    """Return the side on which a text that is too long loses tokens."""
    return settings_of(tokenizer).side


def _missing(tokenizer: "Tokenizer", role: str) -> BrimfulError:
    return BrimfulError(
        f"{settings_of(tokenizer).owner} has no {role} token (looked for {', '.join(TOKEN_NAMES[role])});"
        f" name it as {' or '.join(CONFIG_KEYS[role])} in tokenizer_config.json"
    )


def special_ids(tokenizer: "Tokenizer") -> SpecialIds:
    """Return the ids of the special tokens.

    Raises:
        BrimfulError: a special token that an encoder needs is missing.
    """
    ids = {role: index for role, (_, index) in special_tokens(tokenizer).items()}
    return SpecialIds(ids["pad"], ids.get("unk"), ids["cls"], ids["sep"], ids.get("mask"))


def mask_id(tokenizer: "Tokenizer") -> int:
    """Return the id of the mask token.

    Raises:
        BrimfulError: a special token is missing.
    """
    mask = special_ids(tokenizer).mask
    if mask is None:
        raise _missing(tokenizer, "mask")
    return mask


def unknown_id(tokenizer: "Tokenizer") -> int:
    """Return the id of the unknown token, or -1 where the tokenizer can spell everything."""
    if tokenizer not in _unknown_ids:
        model = json.loads(tokenizer.to_str())["model"]
        # WordPiece and BPE name their unknown token; Unigram has its id.
        index = model.get("unk_id")
        if model.get("unk_token"):
            index = tokenizer.token_to_id(model["unk_token"])
        _unknown_ids[tokenizer] = -1 if index is None else index
    return _unknown_ids[tokenizer]


def marker_names(tokenizer: "Tokenizer") -> set[str]:
    """Return the names of the model's own special tokens, which no text of a loaded tokenizer gets."""
    return {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}


def name_like(tokenizer: "Tokenizer", original: "Tokenizer") -> "Tokenizer":
    """Return a tokenizer that was made from `original`, with its settings and its plain markers."""
    remember_settings(tokenizer, settings_of(original))
    tokenizer.encode_special_tokens = original.encode_special_tokens
    return tokenizer
