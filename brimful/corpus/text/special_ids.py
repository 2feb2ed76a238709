"""The special tokens of a tokenizer: which piece has which role.

A tokenizer.json does not say which token has which role, and takes long to read where it is large. So what
the files beside it say is remembered for each tokenizer that is loaded (`Beside`).
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
    """Ids of the special tokens; `unk` is None where the tokenizer can spell everything, `mask` where the
    vocabulary has none."""

    pad: int
    unk: int | None
    cls: int
    sep: int
    mask: int | None


Side = Literal["right", "left"]


@dataclass(frozen=True)
class TokenizerSettings:
    """What the files beside a tokenizer.json say.

    Attributes:
        roles: names of special tokens by role; an empty name says that there is none.
        side: where a text that is too long loses tokens.
        token_types: whether a model gets token types.
        owner: the tokenizer's name in messages.
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    side: Side = "right"
    token_types: bool = False
    owner: str = field(default="the tokenizer", compare=False)


TOKEN_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
CONFIG_KEYS = {role: (f"{role}_token",) for role in TOKEN_NAMES} | {
    "cls": ("cls_token", "bos_token"),
    "sep": ("sep_token", "eos_token"),
}
"""The keys of tokenizer_config.json and special_tokens_map.json, by the role of the token."""
_settings: "WeakKeyDictionary[Tokenizer, TokenizerSettings]" = WeakKeyDictionary()
_unknown: "WeakKeyDictionary[Tokenizer, int]" = WeakKeyDictionary()


def special_tokens(tokenizer: "Tokenizer") -> dict[str, tuple[str, int]]:
    """The names and ids of the special tokens that the vocabulary has, by role: those that the files beside
    it say, else those of BERT or RoBERTa."""
    found = {}
    for role in TOKEN_NAMES:
        name = token_name(tokenizer, role)
        index = None if name is None else tokenizer.token_to_id(name)
        if name is not None and index is not None:
            found[role] = (name, index)
        elif role in ("pad", "cls", "sep"):
            raise _missing(tokenizer, role)
    return found


def token_name(tokenizer: "Tokenizer", role: str) -> str | None:
    """The name of a special token that the vocabulary has; None where it has none."""
    roles = settings_of(tokenizer).roles
    candidates = (roles[role],) if role in roles else TOKEN_NAMES[role]
    return next((name for name in candidates if name and tokenizer.token_to_id(name) is not None), None)


def settings_of(tokenizer: "Tokenizer") -> TokenizerSettings:
    """What the files beside a tokenizer say; of one that comes from no folder, nothing."""
    return _settings.get(tokenizer, TokenizerSettings())


def remember_settings(tokenizer: "Tokenizer", said: TokenizerSettings) -> None:
    """Keep what the files beside a tokenizer say."""
    _settings[tokenizer] = said


def truncation_side(tokenizer: "Tokenizer") -> Side:
    """Where a text that is too long loses tokens, as the files beside a tokenizer say."""
    return settings_of(tokenizer).side


def _missing(tokenizer: "Tokenizer", role: str) -> BrimfulError:
    looked = ", ".join(TOKEN_NAMES[role])
    keys = " or ".join(CONFIG_KEYS[role])
    return BrimfulError(
        f"{settings_of(tokenizer).owner} has no {role} token (looked for {looked}); name it as {keys} in"
        " tokenizer_config.json"
    )


def special_ids(tokenizer: "Tokenizer") -> SpecialIds:
    """Ids of the special tokens, under the names that the files beside the tokenizer say, or else those of
    BERT ([CLS]) or RoBERTa (<s>).

    Raises:
        BrimfulError: one that an encoder needs is missing.
    """
    ids = {role: index for role, (_, index) in special_tokens(tokenizer).items()}
    return SpecialIds(ids["pad"], ids.get("unk"), ids["cls"], ids["sep"], ids.get("mask"))


def mask_id(tokenizer: "Tokenizer") -> int:
    """The id of the mask token.

    Raises:
        BrimfulError: a special token is missing.
    """
    found = special_ids(tokenizer).mask
    if found is None:
        raise _missing(tokenizer, "mask")
    return found


def unknown_id(tokenizer: "Tokenizer") -> int:
    """The id of the unknown token, or -1 where the tokenizer can spell everything."""
    if tokenizer not in _unknown:
        model = json.loads(tokenizer.to_str())["model"]
        name = model.get("unk_token")
        found = tokenizer.token_to_id(name) if name else model.get("unk_id")
        _unknown[tokenizer] = -1 if found is None else found
    return _unknown[tokenizer]


def ids_of_special_names(tokenizer: "Tokenizer") -> set[int]:
    """Ids of the pieces that have the name of a special token."""
    names = {*settings_of(tokenizer).roles.values()}.union(*TOKEN_NAMES.values())
    names.discard("")
    return {index for name in names if (index := tokenizer.token_to_id(name)) is not None}


def marker_names(tokenizer: "Tokenizer") -> set[str]:
    """The names of the model's own special tokens, which no text of a loaded tokenizer gets."""
    return {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}


def name_like(tokenizer: "Tokenizer", other: "Tokenizer") -> "Tokenizer":
    """The tokenizer, which was made of another one: its special tokens have the names of the other's, and are
    as plain in a text, and a text is cut on the same side."""
    remember_settings(tokenizer, settings_of(other))
    tokenizer.encode_special_tokens = other.encode_special_tokens
    return tokenizer
